"""The regular languages of FLaRe, as automata whose runs are drawn by length (Butoi et al. 2025)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from ..automata import Arcs, Automaton, State
from ..base import Example, Split, SplitChanges
from ..exact import Recogniser
from ..recognition import HELD_OUT, REJECT, RecognitionTask
from ..registry import register_task

MODULUS = 5
_DIGITS = tuple(str(digit) for digit in range(MODULUS))
EDIT_DISTANCE = "test_edit_distance"
_DISTANCES = {EDIT_DISTANCE: Split(50, 0, 500)}


class AutomatonTask(Recogniser):
    """A deterministic automaton without dead states.

    Every arc of a state has the same weight, as does stopping in an accepting state. A length is uniform over those
    with members, and the probability of a string of a length is proportional to the product of its weights.
    """

    paper = RecognitionTask.paper
    default_plan: ClassVar = RecognitionTask.default_plan
    start: ClassVar[State]
    arcs: ClassVar[Arcs]
    accepting: ClassVar[frozenset[State]]

    def __init__(self, *, splits: SplitChanges | None = None) -> None:
        self.automaton = Automaton(self.start, self.arcs, self.accepting, self.symbols)
        super().__init__(self.automaton, splits=splits)

    def edit_distance(self, string: Sequence[str]) -> int:
        """See `Automaton.edit_distance`."""
        return self.automaton.edit_distance(string)

    def split(self, name: str, seed: int) -> list[Example]:
        """See `RecognitionTask.split`; all strings of `test_edit_distance` are non-members, with their distance."""
        if name != EDIT_DISTANCE:
            return super().split(name, seed)
        plan, rng = self.planned(name), random.Random(f"{seed}/{name}")
        strings = [self.negative(rng, plan.longest) for _ in range(plan.number)]
        return [self._labelled(string, REJECT, self.edit_distance(string)) for string in strings]


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
