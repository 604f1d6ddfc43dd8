"""Tasks on your own languages: `regex:EXPRESSION`, `grammar:FILE` and `automaton:FILE`."""

from __future__ import annotations

import csv
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.messages import first_line, nearest
from ..text.files import check_file
from ..text.plain import json_value, read_text
from .automata import Automaton
from .base import SplitChanges, Task
from .bounded import log_given_length
from .exact import ExactLanguage, View, as_task
from .expressions import Symbols as SymbolKind
from .expressions import compile_expression
from .grammars import ByLength, Grammar
from .recognition import END, String, Symbols


class GrammarStrings(ExactLanguage):
    """The strings of a weighted context-free grammar, in proportion to their weights among those of a length.

    Args:
        grammar: the grammar.

    Raises:
        InputError: if it derives no string.
    """

    def __init__(self, grammar: Grammar) -> None:
        if grammar.is_empty:
            raise InputError(
                f"the grammar derives no string: none of its rules leads from {grammar.start} to terminals"
            )
        self.grammar, self.lengths, self.symbols = grammar, ByLength(grammar), tuple(sorted(grammar.terminals))

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """See `Continued.following`."""
        for terminals, complete in self.grammar.following(string):
            yield terminals | {END} if complete else terminals

    def possible(self, length: int) -> bool:
        """See `ExactLanguage.possible`."""
        return self.lengths.possible(length)

    def draw(self, rng: random.Random, length: int) -> String:
        """See `ExactLanguage.draw`."""
        return self.lengths.draw(rng, length)

    def log_of_member(self, string: Sequence[str]) -> float:
        """See `ExactLanguage.log_of_member`."""
        return self.logs_of_members([string])[0]

    def logs_of_members(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """See `ExactLanguage.logs_of_members`; each sums over the derivations of a string."""
        return log_given_length(self.lengths, strings)


def regex_task(
    expression: str,
    *,
    kind: View = "classification",
    symbols: SymbolKind = "characters",
    alphabet: str = "",
    splits: SplitChanges | None = None,
) -> Task:
    """A task on the strings of a regular expression; see `compile_expression` and `as_task`."""
    return as_task(compile_expression(expression, symbols, alphabet), kind, splits)


def grammar_task(path: str, *, kind: View = "classification", splits: SplitChanges | None = None) -> Task:
    """A task on the strings of a grammar in NLTK's format, `S -> 'a' S 'b' [0.5] | 'a' 'b' [0.5]`; see `as_task`.

    Without probabilities, the rules of a nonterminal are equally likely.
    """
    text = read_text(check_file(path))
    import nltk

    weighted = "[" in text.replace("'['", "").replace('"["', "")
    try:
        read = (nltk.PCFG if weighted else nltk.CFG).fromstring(text)
    except ValueError as error:
        raise InputError(f"{path} is not a grammar: {first_line(error)}") from error
    rules: dict[str, dict[str, float]] = {}
    lefts = {production.lhs() for production in read.productions()}
    for production in sorted(read.productions(), key=lambda rule: rule.lhs() != read.start()):
        for symbol in production.rhs():
            if isinstance(symbol, nltk.Nonterminal) and symbol not in lefts:
                raise InputError(f"{path}: {symbol} has no rules; terminals are in quotation marks")
            if isinstance(symbol, str) and symbol.split() != [symbol]:
                raise InputError(f"{path}: a terminal has no blanks; got {symbol!r}")
        right = " ".join(_name(symbol) for symbol in production.rhs())
        weights = rules.setdefault(_name(production.lhs()), {})
        weight = production.prob() if weighted else 1.0
        if weight > 0:
            weights[right] = weights.get(right, 0.0) + weight
    return _of_file(path, text, lambda: as_task(GrammarStrings(Grammar(rules)), kind, splits))


def _name(symbol: Any) -> str:
    """A symbol's name in a `Grammar`, in which a nonterminal must differ from every terminal."""
    return symbol if isinstance(symbol, str) else f"<{symbol}>"


def automaton_task(path: str, *, kind: View = "classification", splits: SplitChanges | None = None) -> Task:
    """A task on the strings of a deterministic automaton; see `Automaton` and `as_task`.

    A table (.csv, .tsv) has a row for each state and a column for each symbol; `->` marks the start before its name,
    and `*` accepting states; an empty cell rejects. JSON has the fields of automata-lib: transitions, initial_state,
    final_states, and, unless every state has a move for every symbol, allow_partial.
    """
    text = read_text(check_file(path))
    read = _automaton_of_json if Path(path).suffix == ".json" else _automaton_of_table
    return _of_file(path, text, lambda: as_task(read(text, path), kind, splits))


def _of_file(path: str, text: str, make: Callable[[], Task]) -> Task:
    try:
        task = make()
    except InputError as error:
        raise error if str(error).startswith(path) else InputError(f"{path}: {error}") from error
    task.digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return task


def _automaton_of_table(text: str, path: str) -> Automaton:
    rows = [row for row in csv.reader(StringIO(text), delimiter="\t" if "\t" in text else ",") if row]
    (_, *symbols), *states = [[cell.strip() for cell in row] for row in rows] if rows else [[""]]
    starts, accepting, arcs = [], set(), {}
    for marked, *moves in states:
        name = marked.removeprefix("->").strip()
        accepting |= {name.removeprefix("*").strip()} if name.startswith("*") else set()
        name = name.removeprefix("*").strip()
        starts += [name] if marked.startswith("->") else []
        if len(moves) != len(symbols):
            raise InputError(f"{path}: state {name!r} has {len(moves)} moves for {len(symbols)} symbols")
        if name in arcs:
            raise InputError(f"{path}: state {name!r} has two rows")
        arcs[name] = {symbol: to for symbol, to in zip(symbols, moves, strict=True) if to}
    if len(starts) != 1:
        raise InputError(f"{path}: one state is marked as the start, as `->q0`; got {', '.join(starts) or 'none'}")
    return _automaton(path, starts[0], arcs, accepting, symbols)


def _automaton_of_json(text: str, path: str) -> Automaton:
    values = json_value(text, path)
    fields = {"transitions": dict, "initial_state": str, "final_states": list}
    for name, kind in fields.items():
        if not isinstance(values, dict) or not isinstance(values.get(name), kind):
            raise InputError(
                f"{path} needs the fields of an automaton: {', '.join(fields)}; {name} is missing or wrong"
            )
    arcs = values["transitions"]
    if not all(isinstance(row, dict) for row in arcs.values()):
        raise InputError(f"{path}: transitions must be {{state: {{symbol: state}}}}, of a deterministic automaton")
    symbols = sorted(values.get("input_symbols") or {symbol for row in arcs.values() for symbol in row})
    for state, row in arcs.items():
        missing = [symbol for symbol in symbols if symbol not in row]
        if missing and not values.get("allow_partial", False):
            raise InputError(
                f"{path}: state {state!r} has no move for {missing[0]!r}; with allow_partial=true that rejects"
            )
    return _automaton(path, values["initial_state"], arcs, set(values["final_states"]), symbols)


def _automaton(
    path: str, start: str, arcs: Mapping[str, Mapping[str, str]], accepting: set[str], symbols: Sequence[str]
) -> Automaton:
    named = {f"the move of {state!r} for {symbol!r}": to for state, row in arcs.items() for symbol, to in row.items()}
    for what, state in ({"the start": start} | {f"the final state {s!r}": s for s in accepting} | named).items():
        if state not in arcs:
            near = nearest(str(state), arcs)
            hint = f"; did you mean {near!r}?" if near else ""
            raise InputError(f"{path}: {what} leads to {state!r}, which is no state with a row{hint}")
    return Automaton(start, arcs, accepting, symbols)


LANGUAGES: dict[str, Callable[..., Task]] = {
    "regex": regex_task,
    "grammar": grammar_task,
    "automaton": automaton_task,
}
"""What makes a task of the rest of a name, by its prefix."""
