"""Regular expressions, compiled to automata by derivatives (Brzozowski 1964)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

from ..core.errors import InputError
from .automata import Automaton, minimal

Symbols = Literal["characters", "words"]
_MOST_STATES = 10_000
_MOST_REPEATS = 1_000
_TOKENS = {
    "characters": re.compile(r"\s*(\\\S|\[[^\]]*\]|\{\d*,?\d*\}|\S)"),
    "words": re.compile(r"\s*(\\?[^\s()|*+?{}.\[\]\\]+|\\\S|\[[^\]]*\]|\{\d*,?\d*\}|\S)"),
}


class _Node(NamedTuple):
    """An expression: the symbols of "one", or the parts of "then", "or" and "many"; "or" without parts is empty."""

    kind: Literal["one", "then", "or", "many"]
    parts: Any  # frozenset[str], frozenset[_Node] or tuple[_Node, ...]

    @property
    def nullable(self) -> bool:
        """True if it matches the empty string."""
        if self.kind == "one":
            return False
        inside = (part.nullable for part in self.parts)
        return any(inside) if self.kind == "or" else self.kind == "many" or all(inside)


_NOTHING, _EMPTY = _Node("or", frozenset()), _Node("then", ())


def _then(*parts: _Node) -> _Node:
    flat: list[_Node] = []
    for part in parts:
        flat += part.parts if part.kind == "then" else [part]
    if _NOTHING in flat:
        return _NOTHING
    return flat[0] if len(flat) == 1 else _Node("then", tuple(flat))


def _either(*parts: _Node) -> _Node:
    flat: set[_Node] = set()
    for part in parts:
        flat |= part.parts if part.kind == "or" else {part}
    return flat.pop() if len(flat) == 1 else _Node("or", frozenset(flat))


@cache
def _derivative(node: _Node, symbol: str) -> _Node:
    """What must follow a symbol."""
    if node.kind == "one":
        return _EMPTY if symbol in node.parts else _NOTHING
    if node.kind == "or":
        return _either(*(_derivative(part, symbol) for part in node.parts))
    if node.kind == "many":
        (inside,) = node.parts
        return _then(_derivative(inside, symbol), node)
    ways = []
    for place, part in enumerate(node.parts):
        ways.append(_then(_derivative(part, symbol), *node.parts[place + 1 :]))
        if not part.nullable:
            break
    return _either(*ways)


class _Parser:
    """A parser of an expression, by recursive descent."""

    def __init__(self, text: str, symbols: Symbols, alphabet: frozenset[str]) -> None:
        self.text = text
        self.tokens = [found[1] for found in _TOKENS[symbols].finditer(text)]
        self.words = symbols == "words"
        self.alphabet = alphabet.union(*(self._members(token) for token in self.tokens if token not in "()|*+?."))

    def parse(self) -> _Node:
        node = self._alternatives()
        if self.tokens:
            raise self._error(f"{self.tokens[0]!r} closes nothing")
        return node

    def _error(self, problem: str) -> InputError:
        return InputError(f"the regular expression {self.text!r}: {problem}")

    def _members(self, token: str) -> Iterator[str]:
        """The symbols that a token names, but for an excluded class: those that it excludes."""
        if token[0] == "[" and len(token) > 1:
            inside = token[1:-1].removeprefix("^")
            if self.words:
                yield from inside.split()
                return
            for found in re.finditer(r"(\S)(?:-(\S))?", inside):
                yield from map(chr, range(ord(found[1]), ord(found[2] or found[1]) + 1))
        elif token[0] != "{":
            yield token.removeprefix("\\") or token

    def _alternatives(self) -> _Node:
        nodes = [self._sequence()]
        while self.tokens[:1] == ["|"]:
            self.tokens.pop(0)
            nodes.append(self._sequence())
        return _either(*nodes)

    def _sequence(self) -> _Node:
        nodes = []
        while self.tokens and self.tokens[0] not in "|)":
            node = self._atom(self.tokens.pop(0))
            while self.tokens and (self.tokens[0] in "*+?" or self.tokens[0][0] == "{"):
                node = self._repeated(node, self.tokens.pop(0))
            nodes.append(node)
        return _then(*nodes)

    def _atom(self, token: str) -> _Node:
        if token == "(":
            node = self._alternatives()
            if not self.tokens:
                raise self._error("a ( has no )")
            self.tokens.pop(0)
            return node
        if token in "*+?" or token[0] == "{":
            raise self._error(f"{token!r} repeats nothing")
        if token == ".":
            return _Node("one", self.alphabet)
        named = frozenset(self._members(token))
        return _Node("one", self.alphabet - named if token.startswith("[^") else named)

    def _repeated(self, node: _Node, token: str) -> _Node:
        bounds = {"*": "0,", "+": "1,", "?": "0,1"}.get(token, token[1:-1])
        low, comma, high = bounds.partition(",")
        least, most = int(low or 0), int(high or 0) if comma else int(low or 0)
        if token == "{" or bounds in ("", ",") or max(least, most) > _MOST_REPEATS or (high and most < least):
            raise self._error(f"{token} is not a number of repetitions up to {_MOST_REPEATS}, such as {{2}} or {{2,4}}")
        if comma and not high:
            return _then(*[node] * least, _Node("many", (node,)))
        optional = _EMPTY
        for _ in range(most - least):
            optional = _either(_EMPTY, _then(node, optional))
        return _then(*[node] * least, optional)


def compile_expression(text: str, symbols: Symbols = "characters", alphabet: str = "") -> Automaton:
    """The smallest automaton of a regular expression.

    Args:
        text: symbols, `( )`, `|`, `*`, `+`, `?`, `{2}`, `{2,4}`, `{2,}`, `.` for any symbol, `[a-c]`, `[^a]`, and `\\`
            before one of these that is a symbol. Blanks separate.
        symbols: "characters", each a symbol, or "words", in which also `[...]` has words.
        alphabet: further symbols of the language, likewise.

    Raises:
        InputError: for an expression that cannot be read, matches nothing or only the empty string, or whose automaton
            is too large.
    """
    further = frozenset(alphabet.split() if symbols == "words" else "".join(alphabet.split()))
    parser = _Parser(text, symbols, further)
    letters, start = sorted(parser.alphabet), parser.parse()
    arcs: dict[_Node, dict[str, _Node]] = {}
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node not in arcs:
            arcs[node] = {symbol: _derivative(node, symbol) for symbol in letters}
            waiting += arcs[node].values()
            if len(arcs) > _MOST_STATES:
                raise InputError(f"the regular expression {text!r} needs more than {_MOST_STATES:,} states")
    _derivative.cache_clear()
    try:
        automaton = Automaton(*minimal(start, arcs, [node for node in arcs if node.nullable]), letters)
    except InputError:
        raise InputError(f"the regular expression {text!r} matches no string") from None
    if not any(automaton.arcs.values()):
        raise InputError(f"the regular expression {text!r} matches only the empty string")
    return automaton
