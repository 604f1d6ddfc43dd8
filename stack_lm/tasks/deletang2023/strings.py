"""Strings to move, copy, sort or answer a question about (Delétang et al. 2023)."""

from __future__ import annotations

import random
from itertools import takewhile
from typing import ClassVar

from ..registry import register_task
from .answered import TERMINATOR, AnsweredTask, String

_HIDDEN, _FILLER = 2, 3
_POP, _PUSH_0 = 2, 3


@register_task("deletang2023/even_pairs")
class EvenPairs(AnsweredTask):
    """The parity of the number of neighbours that differ: odd (1) or even (0)."""

    def answer(self, string: String) -> String:
        """Return the parity: odd if the first symbol differs from the last."""
        return (int(string[0] != string[-1]),)


@register_task("deletang2023/parity_check")
class ParityCheck(AnsweredTask):
    """The parity of the number of ones: odd (1) or even (0)."""

    def answer(self, string: String) -> String:
        """The sum modulo 2."""
        return (sum(string) % 2,)


@register_task("deletang2023/cycle_navigation")
class CycleNavigation(AnsweredTask):
    """The position on a circle of five after steps of -1, 0 and 1, written 0, 1 and 2, from position 0."""

    vocabulary = ("0", "1", "2")
    answers = ("0", "1", "2", "3", "4")

    def answer(self, string: String) -> String:
        """The sum of steps modulo 5."""
        return ((sum(string) - len(string)) % 5,)


@register_task("deletang2023/stack_manipulation")
class StackManipulation(AnsweredTask):
    """A stack, from its bottom, and operations on it; the answer is the resulting stack, from its top.

    Popping an empty stack does nothing. The answer has one symbol more than the input.
    """

    vocabulary = ("0", "1", "pop", "push0", "push1")
    aliases: ClassVar = {"2": "pop", "3": "push0", "4": "push1"}
    answers = ("0", "1", "2")
    terminated = True

    def draw_input(self, rng: random.Random, length: int) -> String:
        """The height is uniform; at least one symbol is an operation if there are two or more."""
        height = rng.randint(1, max(1, length - 1))
        bits = rng.choices(range(2), k=height)
        return (*bits, *rng.choices(range(_POP, _PUSH_0 + 2), k=length - height))

    def answer(self, string: String) -> String | None:
        """The stack, the terminator and zeros."""
        stack = list(takewhile(lambda symbol: symbol < _POP, string))
        for operation in string[len(stack) :] if stack else ():
            if operation >= _PUSH_0:
                stack.append(operation - _PUSH_0)
            elif operation != _POP:
                return None
            elif stack:
                stack.pop()
        if string[0] >= _POP:
            return None
        return (*reversed(stack), TERMINATOR) + (0,) * (len(string) - len(stack))


@register_task("deletang2023/reverse_string")
class ReverseString(AnsweredTask):
    """The input from its end to its beginning."""

    def answer(self, string: String) -> String:
        """All of it, reversed."""
        return string[::-1]


@register_task("deletang2023/duplicate_string")
class DuplicateString(AnsweredTask):
    """The input twice."""

    def answer(self, string: String) -> String:
        """One after the other."""
        return string + string


@register_task("deletang2023/missing_duplicate")
class MissingDuplicate(AnsweredTask):
    """A string twice, with one symbol hidden as `_`, which is the answer; a last `.` makes the length odd."""

    vocabulary = ("0", "1", "_", ".")
    aliases: ClassVar = {"2": "_", "3": "."}

    def draw_input(self, rng: random.Random, length: int) -> String:
        """All strings and positions are equally likely; the only string of length 1 is `1`."""
        if length == 1:
            return (1,)
        string = rng.choices(range(2), k=length // 2) * 2
        string[rng.randrange(len(string))] = _HIDDEN
        return (*string, *[_FILLER] * (length % 2))

    def answer(self, string: String) -> String | None:
        """The symbol of the other half."""
        if len(string) == 1:
            return (1,) if string == (1,) else None
        whole = string[:-1] if len(string) % 2 else string
        if whole.count(_HIDDEN) != 1 or _FILLER in whole or (len(string) % 2 and string[-1] != _FILLER):
            return None
        half, place = len(whole) // 2, whole.index(_HIDDEN)
        missing = whole[(place + half) % len(whole)]
        full = (*whole[:place], missing, *whole[place + 1 :])
        return (missing,) if full[:half] == full[half:] else None


@register_task("deletang2023/odds_first")
class OddsFirst(AnsweredTask):
    """Every other symbol, then the rest.

    NOTE: the second, fourth and so on come first, as in the released code; in the paper the odd ones do.
    """

    def answer(self, string: String) -> String:
        """The symbols at even positions, counted from 1, then those at odd ones."""
        return string[1::2] + string[::2]


@register_task("deletang2023/bucket_sort")
class BucketSort(AnsweredTask):
    """The symbols in ascending order."""

    vocabulary = answers = ("0", "1", "2", "3", "4")

    def answer(self, string: String) -> String:
        """All of them, sorted."""
        return tuple(sorted(string))
