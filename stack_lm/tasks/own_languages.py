"""Tasks on your own languages: `regex:EXPRESSION`, `grammar:FILE` and `automaton:FILE`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from ..core.errors import InputError
from ..core.messages import explaining, shortened
from ..text.files import check_file
from ..text.formats import cells_of
from ..text.plain import read_text
from .automata import Automaton
from .base import SplitChanges, Task
from .exact import GrammarStrings, View, as_task
from .expressions import Symbols, compile_expression
from .grammars import Grammar


def regex_task(
    expression: str,
    *,
    kind: View = "classification",
    symbols: Symbols = "characters",
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
    with explaining(f"{path} is not a grammar", ValueError):
        read = (nltk.PCFG if weighted else nltk.CFG).fromstring(text)
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

    Its table has a row for each state and a column for each symbol, as CSV or TSV; `->` marks the start before its
    name, and `*` accepting states; an empty cell rejects.
    """
    text = read_text(check_file(path))
    return _of_file(path, text, lambda: as_task(_read_automaton(text), kind, splits))


def _of_file(path: str, text: str, make: Callable[[], Task]) -> Task:
    with explaining(path, InputError):
        task = make()
    task.digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return task


def _read_automaton(text: str) -> Automaton:
    (_, *symbols), *states = cells_of(text, "\t" if "\t" in text else ",")
    starts, accepting, arcs = [], set(), {}
    for marked, *moves in states:
        name = re.sub(r"^(->)?\s*\*?\s*", "", marked)
        starts += [name] * marked.startswith("->")
        accepting |= {name} if marked.removeprefix("->").lstrip().startswith("*") else set()
        if name in arcs or len(moves) != len(symbols):
            problem = "two rows" if name in arcs else f"{len(moves)} moves for {len(symbols)} symbols"
            raise InputError(f"state {name!r} has {problem}")
        arcs[name] = {symbol: to for symbol, to in zip(symbols, moves, strict=True) if to}
    if len(starts) != 1:
        raise InputError(f"one state is marked as the start, as `->q0`; got {', '.join(starts) or 'none'}")
    for state, row in arcs.items():
        for symbol, to in row.items():
            if to not in arcs:
                target = shortened(to, 60)
                raise InputError(f"the move of {state!r} for {symbol!r} leads to {target!r}, no state with a row")
    return Automaton(starts[0], arcs, accepting, symbols)


LANGUAGES: dict[str, Callable[..., Task]] = {"regex": regex_task, "grammar": grammar_task, "automaton": automaton_task}
"""What makes a task of the rest of a name, by its prefix."""
