"""Deterministic automata, whose runs are drawn by length."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import fsum, inf, log
from typing import Any, NamedTuple

from ..core.errors import InputError
from .exact import ExactLanguage
from .recognition import END, String, Symbols

State = Any  # hashable
Arcs = Mapping[State, Mapping[str, State]]


class _Level(NamedTuple):
    """The paths to the end with a given number of symbols.

    Attributes:
        ways: the total weight of those from each state, divided by the largest total.
        scale: the logarithm of that total.
        arcs_to: from each state to the states of this level: the symbols, and the cumulative weights.
    """

    ways: dict[State, float]
    scale: float
    arcs_to: dict[State, tuple[list[str], list[float]]]


class Automaton(ExactLanguage):
    """A deterministic automaton.

    Without weights, every arc of a state has the same weight, as does stopping in an accepting state. The probability
    of a string among those of its length is proportional to the product of its weights.

    Args:
        start: the state in which strings begin.
        arcs: for each state the next one by symbol; a missing symbol rejects. States from which no string is accepted,
            or that none reaches, are removed.
        accepting: the states in which strings may end.
        symbols: all symbols of the language; by default those of the arcs.
        weights: of the arcs of each state by symbol, and of its end by `</s>`; none may be 0.

    Raises:
        InputError: if it accepts no string.
    """

    def __init__(
        self,
        start: State,
        arcs: Arcs,
        accepting: Collection[State],
        symbols: Sequence[str] | None = None,
        weights: Mapping[State, Mapping[str, float]] | None = None,
    ) -> None:
        self.symbols = tuple(symbols or dict.fromkeys(symbol for row in arcs.values() for symbol in row))
        self.start, self.accepting = start, frozenset(accepting)
        useful = _reached([start], arcs) & _reached(self.accepting, _reversed(arcs))
        if start not in useful:
            raise InputError("the language is empty: no string leads from the start to an accepting state")
        self.arcs = {
            state: {symbol: to for symbol, to in row.items() if to in useful}
            for state, row in arcs.items()
            if state in useful
        }
        self._symbols = {
            state: frozenset([*row, *[END] * (state in self.accepting)]) for state, row in self.arcs.items()
        }
        self._weights = weights or {state: dict.fromkeys(of, 1 / len(of)) for state, of in self._symbols.items()}

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """The arcs of the states on the string's path."""
        state = self.start
        yield self._symbols[state]
        for symbol in string:
            state = self.arcs[state][symbol]
            yield self._symbols[state]

    @cached_property
    def _levels(self) -> list[_Level]:
        stops = {state: self._weights[state].get(END, 0.0) if state in self.accepting else 0.0 for state in self.arcs}
        return [self._scaled(stops, 0.0)]

    def _level(self, left: int) -> _Level:
        while len(self._levels) <= left:
            longer = {state: fsum(self._products(state, self._levels[-1].ways)) for state in self.arcs}
            self._levels.append(self._scaled(longer, self._levels[-1].scale))
        return self._levels[left]

    def _products(self, state: State, ways: Mapping[State, float]) -> list[float]:
        return [self._weights[state][symbol] * ways[to] for symbol, to in self.arcs[state].items()]

    def _scaled(self, ways: dict[State, float], scale: float) -> _Level:
        """Divide by the largest weight: those of long strings would overflow a float."""
        largest = max(ways.values()) or 1.0
        ways = {state: way / largest for state, way in ways.items()}
        arcs_to = {s: (list(row), list(accumulate(self._products(s, ways)))) for s, row in self.arcs.items()}
        return _Level(ways, scale + log(largest), arcs_to)

    def possible(self, length: int) -> bool:
        """See `ExactLanguage.possible`."""
        return bool(self._level(length).ways[self.start])

    def draw(self, rng: random.Random, length: int) -> String:
        """See `ExactLanguage.draw`."""
        string, state = [], self.start
        for left in reversed(range(length)):
            symbols, weights = self._level(left).arcs_to[state]
            symbol = rng.choices(symbols, cum_weights=weights)[0]
            string.append(symbol)
            state = self.arcs[state][symbol]
        return tuple(string)

    def log_of_member(self, string: Sequence[str]) -> float:
        """See `ExactLanguage.log_of_member`."""
        weights, state = [], self.start
        for symbol in string:
            weights.append(log(self._weights[state][symbol]))
            state = self.arcs[state][symbol]
        weights.append(log(self._weights[state][END]))
        level = self._level(len(string))
        return fsum(weights) - log(level.ways[self.start]) - level.scale

    def edit_distance(self, string: Sequence[str]) -> int:
        """The smallest number of symbols to insert, replace and delete that turns a string into a member.

        Args:
            string: a string of the language's symbols.
        """
        # For each state the fewest edits with which the symbols read so far lead to it.
        edits = self._with_insertions({state: 0 if state == self.start else inf for state in self.arcs})
        for symbol in string:
            after = {state: number + 1 for state, number in edits.items()}
            for state, row in self.arcs.items():
                for expected, to in row.items():
                    after[to] = min(after[to], edits[state] + (expected != symbol))
            edits = self._with_insertions(after)
        return int(min(edits[state] for state in self.accepting & edits.keys()))

    def _with_insertions(self, edits: dict[State, float]) -> dict[State, float]:
        """The fewest edits for each state, if each arc may also be taken without a symbol."""
        waiting = list(edits)
        while waiting:
            state = waiting.pop()
            for to in self.arcs[state].values():
                if edits[state] + 1 < edits[to]:
                    edits[to] = edits[state] + 1
                    waiting.append(to)
        return edits


def _reached(start: Collection[State], arcs: Mapping[State, Mapping[Any, State]]) -> set[State]:
    reached, waiting = set(start), list(start)
    while waiting:
        new = set(arcs.get(waiting.pop(), {}).values()) - reached
        reached |= new
        waiting += new
    return reached


def _reversed(arcs: Arcs) -> dict[State, dict[Any, State]]:
    """The states that lead to each state."""
    back: dict[State, dict[Any, State]] = {}
    for state, row in arcs.items():
        for to in row.values():
            back.setdefault(to, {})[state] = state
    return back


def minimal(start: State, arcs: Arcs, accepting: Collection[State]) -> tuple[State, Arcs, set[State]]:
    """The smallest automaton of the same language, by refining a partition (Moore 1956).

    Args:
        start, arcs, accepting: as of `Automaton`; every state has an arc for every symbol.
    """
    part = {state: int(state in accepting) for state in arcs}
    while True:
        keys = {
            state: (part[state], *((symbol, part[to]) for symbol, to in sorted(row.items())))
            for state, row in arcs.items()
        }
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys.values()))}
        finer = {state: numbers[key] for state, key in keys.items()}
        if len(numbers) == len(set(part.values())):
            merged = {finer[state]: {symbol: finer[to] for symbol, to in row.items()} for state, row in arcs.items()}
            return finer[start], merged, {finer[state] for state in accepting}
        part = finer
