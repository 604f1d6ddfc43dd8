"""Binary numbers (Delétang et al. 2023). Operands and results have the least significant bit first."""

from __future__ import annotations

import random
from abc import abstractmethod
from math import isqrt
from typing import ClassVar

from ..bits import bits, number
from ..registry import register_task
from .answered import TERMINATOR, AnsweredTask, String

_SEPARATOR = 2


class _Operation(AnsweredTask):
    """Two numbers, the operator between them, and the result in its shortest form, a terminator and zeros."""

    aliases: ClassVar = {"2": "+"}
    answers = ("0", "1", "2")
    terminated = True

    def draw_input(self, rng: random.Random, length: int) -> String:
        """Numbers of one or more, with uniform widths. NOTE: below three symbols there is only one number."""
        if length < 3:
            return bits(rng.randrange(2**length - 1), length)
        first = rng.randint(1, length - 2)
        widths = (first, length - 1 - first)
        left, right = (bits(rng.randint(1, 2**width - 1), width) for width in widths)
        return (*left, _SEPARATOR, *right)

    def answer(self, string: String) -> String | None:
        """The result."""
        if _SEPARATOR not in string:
            return self.answer_single(string) if len(string) < 3 else None
        place = string.index(_SEPARATOR)
        left, right = string[:place], string[place + 1 :]
        if not left or not right or _SEPARATOR in right:
            return None
        return self.finish(self.compute(number(left), number(right)), len(string))

    def finish(self, result: int, length: int) -> String:
        """The answer for a result, to an input of a length."""
        written = (*bits(result), TERMINATOR)
        return written + (0,) * (length + self.longer - len(written))

    # Symbols by which the answer is longer than the input.
    longer: ClassVar[int]

    @abstractmethod
    def compute(self, left: int, right: int) -> int:
        """The result of the operation."""

    @abstractmethod
    def answer_single(self, string: String) -> String:
        """The answer to a single number of one or two bits."""


@register_task("deletang2023/binary_addition")
class BinaryAddition(_Operation):
    """The sum of two numbers; a single number is its own sum."""

    vocabulary = ("0", "1", "+")
    longer = 1

    def compute(self, left: int, right: int) -> int:
        """The sum."""
        return left + right

    def answer_single(self, string: String) -> String:
        """The number."""
        return self.finish(number(string), len(string))


@register_task("deletang2023/binary_multiplication")
class BinaryMultiplication(_Operation):
    """The product of two numbers; for a single number zero, whose last bit is omitted if there is no room."""

    vocabulary = ("0", "1", "*")
    aliases: ClassVar = {"2": "*"}
    longer = 0

    def compute(self, left: int, right: int) -> int:
        """The product."""
        return left * right

    def answer_single(self, string: String) -> String:
        """A zero, if it fits, and the terminator."""
        return (0,) * (len(string) - 1) + (TERMINATOR,)


@register_task("deletang2023/compute_sqrt")
class ComputeSqrt(AnsweredTask):
    """The integer part of the square root, in half as many bits as the number; the most significant bit comes first."""

    def draw_input(self, rng: random.Random, length: int) -> String:
        """Numbers of one or more."""
        return bits(rng.randint(1, 2**length - 1), length)[::-1]

    def answer(self, string: String) -> String:
        """The root, preceded by zeros."""
        return bits(isqrt(number(string[::-1])), (len(string) + 1) // 2)[::-1]
