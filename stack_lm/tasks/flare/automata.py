"""The regular languages of FLaRe, as automata whose runs are drawn by length (Butoi et al. 2025)."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import fsum, inf, log
from typing import ClassVar, NamedTuple

from ...core.errors import InputError
from ..base import Example, Split
from ..registry import register_task
from .recognition import END, HELD_OUT, REJECT, MeasuredLanguage, String, Symbols

State = Hashable
MODULUS = 5
_DIGITS = tuple(str(digit) for digit in range(MODULUS))
EDIT_DISTANCE = "test_edit_distance"
_DISTANCES = {EDIT_DISTANCE: Split(50, 0, 500)}


class _Level(NamedTuple):
    """The paths to the end with a given number of symbols.

    Attributes:
        ways: the total weight of those from each state, divided by the largest total.
        scale: the logarithm of that total.
        arcs_to: from each state to the states of this level: the symbols, and the cumulative weights of `ways`.
    """

    ways: dict[State, float]
    scale: float
    arcs_to: dict[State, tuple[list[str], list[float]]]


class AutomatonTask(MeasuredLanguage):
    """A deterministic automaton without dead states.

    Every arc of a state has the same weight, as does stopping in an accepting state. A length is uniform over those
    with members, and the probability of a string of a length is proportional to the product of its weights.
    """

    start: ClassVar[State]
    arcs: ClassVar[Mapping[State, Mapping[str, State]]]
    accepting: ClassVar[frozenset[State]]

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """The arcs of the states on the string's path."""
        state = self.start
        yield self._symbols[state]
        for symbol in string:
            state = self.arcs[state][symbol]
            yield self._symbols[state]

    @cached_property
    def _symbols(self) -> dict[State, Symbols]:
        return {state: frozenset([*arcs, *[END] * (state in self.accepting)]) for state, arcs in self.arcs.items()}

    @cached_property
    def _levels(self) -> list[_Level]:
        stops = {state: self._weight(state) if state in self.accepting else 0.0 for state in self.arcs}
        return [self._scaled(stops, 0.0)]

    def _weight(self, state: State) -> float:
        return 1 / len(self._symbols[state])

    def _level(self, left: int) -> _Level:
        while len(self._levels) <= left:
            ways, scale, _ = self._levels[-1]
            longer = {s: self._weight(s) * fsum(ways[to] for to in arcs.values()) for s, arcs in self.arcs.items()}
            self._levels.append(self._scaled(longer, scale))
        return self._levels[left]

    def _scaled(self, ways: dict[State, float], scale: float) -> _Level:
        """Divide by the largest weight: those of long strings would overflow a float."""
        largest = max(ways.values())
        if not largest:
            raise InputError("an automaton must have a way to the end")
        ways = {state: way / largest for state, way in ways.items()}
        arcs_to = {s: (list(arcs), list(accumulate(ways[to] for to in arcs.values()))) for s, arcs in self.arcs.items()}
        return _Level(ways, scale + log(largest), arcs_to)

    @cached_property
    def _lengths(self) -> dict[int, list[int]]:
        """The lengths with members, by the longest length."""
        return {}

    def lengths(self, longest: int) -> list[int]:
        """The lengths that have members."""
        if longest not in self._lengths:
            self._lengths[longest] = [n for n in range(longest + 1) if self._level(n).ways[self.start]]
        return self._lengths[longest]

    def positive(self, rng: random.Random, longest: int) -> String:
        """A length, and a run of that length."""
        string, state = [], self.start
        for left in reversed(range(rng.choice(self.lengths(longest)))):
            symbols, weights = self._level(left).arcs_to[state]
            symbol = rng.choices(symbols, cum_weights=weights)[0]
            string.append(symbol)
            state = self.arcs[state][symbol]
        return tuple(string)

    def edit_distance(self, string: Sequence[str]) -> int:
        """The smallest number of symbols to insert, replace and delete that turns a string into a member.

        Args:
            string: a string of the language's symbols.
        """
        # For each state the fewest edits with which the symbols read so far lead to it.
        edits = self._with_insertions({state: 0 if state == self.start else inf for state in self.arcs})
        for symbol in string:
            after = {state: number + 1 for state, number in edits.items()}
            for state, arcs in self.arcs.items():
                for expected, to in arcs.items():
                    after[to] = min(after[to], edits[state] + (expected != symbol))
            edits = self._with_insertions(after)
        return int(min(edits[state] for state in self.accepting))

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

    def split(self, name: str, seed: int) -> list[Example]:
        """See `RecognitionTask.split`; all strings of `test_edit_distance` are non-members, with their distance."""
        if name != EDIT_DISTANCE:
            return super().split(name, seed)
        plan, rng = self.planned(name), random.Random(f"{seed}/{name}")
        strings = [self.negative(rng, plan.longest) for _ in range(plan.number)]
        return [self._labelled(string, REJECT, self.edit_distance(string)) for string in strings]

    def log_of_member(self, string: Sequence[str], longest: int) -> float:
        """See `MeasuredLanguage.log_of_member`."""
        weights, state = [], self.start
        for symbol in string:
            weights.append(log(self._weight(state)))
            state = self.arcs[state][symbol]
        weights.append(log(self._weight(state)))
        level = self._level(len(string))
        return fsum(weights) - log(level.ways[self.start]) - level.scale - log(len(self.lengths(longest)))


@register_task("flare/even_pairs")
class EvenPairs(AutomatonTask):
    """Strings with as many pairs 01 as 10: the first symbol equals the last, or the string is empty."""

    start = ""
    arcs: ClassVar = {
        "": {"0": "00", "1": "11"},
        **{first + last: {"0": first + "0", "1": first + "1"} for first in "01" for last in "01"},
    }
    accepting = frozenset(["", "00", "11"])


@register_task("flare/repeat_01")
class Repeat01(AutomatonTask):
    """01, any number of times. There is one member of each even length, so none can be held out."""

    default_plan: ClassVar = {
        name: split for name, split in AutomatonTask.default_plan.items() if name != HELD_OUT
    } | _DISTANCES
    start = "even"
    arcs: ClassVar = {"even": {"0": "odd"}, "odd": {"1": "even"}}
    accepting = frozenset(["even"])


@register_task("flare/parity")
class Parity(AutomatonTask):
    """An odd number of ones."""

    start, smallest = 0, 1
    arcs: ClassVar = {0: {"0": 0, "1": 1}, 1: {"0": 1, "1": 0}}
    accepting = frozenset([1])


@register_task("flare/cycle_navigation")
class CycleNavigation(AutomatonTask):
    """Moves on a circle of five, and their final position."""

    symbols = ("<", ">", "=", *_DIGITS)
    start, smallest = 0, 1
    arcs: ClassVar = {
        **{
            place: {">": (place + 1) % MODULUS, "<": (place - 1) % MODULUS, "=": place, str(place): "end"}
            for place in range(MODULUS)
        },
        "end": {},
    }
    accepting = frozenset(["end"])


def _arithmetic() -> dict[State, dict[str, State]]:
    arcs: dict[State, dict[str, State]] = {"start": {digit: int(digit) for digit in _DIGITS}, "end": {}}
    for value in range(MODULUS):
        arcs[value] = {operator: (value, operator) for operator in "+-*="}
        arcs[value, "+"] = {digit: (value + int(digit)) % MODULUS for digit in _DIGITS}
        arcs[value, "-"] = {digit: (value - int(digit)) % MODULUS for digit in _DIGITS}
        arcs[value, "*"] = {digit: value * int(digit) % MODULUS for digit in _DIGITS}
        arcs[value, "="] = {str(value): "end"}
    return arcs


@register_task("flare/modular_arithmetic_simple")
class SimpleArithmetic(AutomatonTask):
    """Digits with operators between them, =, and their value modulo 5, computed from left to right."""

    symbols = (*_DIGITS, "+", "-", "*", "=")
    start, smallest = "start", 3
    arcs: ClassVar = _arithmetic()
    accepting = frozenset(["end"])


def _dyck(pairs: int, depth: int) -> dict[State, dict[str, State]]:
    arcs: dict[State, dict[str, State]] = {}
    open_brackets = [""]
    for state in open_brackets:  # it grows
        arcs[state] = {}
        if len(state) < depth:
            deeper = {f"({kind}": f"{state}{kind}" for kind in range(pairs)}
            arcs[state] |= deeper
            open_brackets += deeper.values()
        if state:
            arcs[state][f"){state[-1]}"] = state[:-1]
    return arcs


@register_task("flare/dyck_2_3")
class Dyck(AutomatonTask):
    """Balanced brackets of two types, at most three deep."""

    default_plan: ClassVar = AutomatonTask.default_plan | _DISTANCES
    symbols = ("(0", "(1", ")0", ")1")
    start = ""
    arcs: ClassVar = _dyck(2, 3)
    accepting = frozenset([""])


@register_task("flare/first")
class First(AutomatonTask):
    """Strings that begin with 1."""

    start, smallest = "start", 1
    arcs: ClassVar = {"start": {"1": "rest"}, "rest": {"0": "rest", "1": "rest"}}
    accepting = frozenset(["rest"])
