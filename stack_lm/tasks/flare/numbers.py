"""Arithmetic of FLaRe: numbers of one bit or more, least significant first, followed by any number of zeros."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from math import floor, isqrt
from typing import ClassVar

from ..bits import bits, number
from ..recognition import BITS, END, RecognitionTask, String, Symbols
from ..registry import register_task

_EQUALS = "="


def written(number: int, width: int = 1) -> String:
    """The bits of a number as symbols, followed by zeros up to a width."""
    return tuple(map(str, bits(number, width)))


def shares(rng: random.Random, total: int, parameters: Sequence[float]) -> list[int]:
    """Split a number by the shares of a Dirichlet distribution, rounded down; the last part takes the rest.

    Args:
        rng: source of randomness.
        total: the number to split.
        parameters: the parameters of the distribution, one for each part.
    """
    drawn = [rng.gammavariate(parameter, 1.0) for parameter in parameters]
    ends = [floor(total * share / sum(drawn)) for share in accumulate(drawn[:-1])]
    return [end - begin for begin, end in zip([0, *ends], [*ends, total], strict=True)]


class _Equation(RecognitionTask):
    """Operands with separators between them, =, and a result."""

    separators: ClassVar[String] = ()

    @abstractmethod
    def compute(self, operands: Sequence[int]) -> int:
        """The result."""

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """Bits, and after the first bit of an operand also its separator; then the result's bits, zeros and the end."""
        operands: list[list[str]] = [[]]
        separators = [*self.separators, _EQUALS]
        yield frozenset(BITS)
        for symbol in string:
            if symbol in BITS:
                operands[-1].append(symbol)
                yield frozenset([*BITS, separators[len(operands) - 1]])
            elif symbol != _EQUALS:
                operands.append([])
                yield frozenset(BITS)
            else:
                due = written(self.compute([number(operand) for operand in operands]))
                yield from (frozenset([bit]) for bit in due)
                yield from repeat(frozenset(["0", END]))


class _Operation(_Equation):
    """Two operands."""

    smallest = 5
    weights: ClassVar[tuple[float, float, float]]

    def positive(self, rng: random.Random, longest: int) -> String:
        """Widths, then operands whose result fits into its width."""
        length = rng.randint(5, longest)
        *widths, width = (share + 1 for share in shares(rng, length - 5, self.weights))
        first, second = sorted(widths)
        x, y = self.draw_operands(rng, 2**first - 1, 2**second - 1, 2**width - 1)
        left, right = written(x, first), written(y, second)
        if rng.random() < 0.5:
            left, right = right, left
        return (*left, *self.separators, *right, _EQUALS, *written(self.compute([x, y]), width))

    @abstractmethod
    def draw_operands(self, rng: random.Random, first: int, second: int, result: int) -> tuple[int, int]:
        """Draw both operands, given the largest numbers that fit."""


@register_task("flare/binary_addition")
class BinaryAddition(_Operation):
    """`x + y = z`, where z is the sum."""

    symbols = (*BITS, "+", _EQUALS)
    separators = ("+",)
    weights = (1, 1, 1)

    def compute(self, operands: Sequence[int]) -> int:
        """The sum."""
        return sum(operands)

    def draw_operands(self, rng: random.Random, first: int, second: int, result: int) -> tuple[int, int]:
        """Each is uniform over those whose sum fits."""
        x = rng.randint(0, min(first, result))
        return x, rng.randint(0, min(second, result - x))


@register_task("flare/binary_multiplication")
class BinaryMultiplication(_Operation):
    """`x × y = z`, where z is the product."""

    symbols = (*BITS, "×", _EQUALS)
    aliases: ClassVar = {"*": "×"}
    separators = ("×",)
    weights = (1, 1, 2)

    def compute(self, operands: Sequence[int]) -> int:
        """The product."""
        return operands[0] * operands[1]

    def draw_operands(self, rng: random.Random, first: int, second: int, result: int) -> tuple[int, int]:
        """The first is uniform, the second over those whose product fits."""
        x = rng.randint(0, first)
        return x, rng.randint(0, min(second, result // x) if x else second)


@register_task("flare/compute_sqrt")
class ComputeSqrt(_Equation):
    """`x = z`, where z is the whole part of the square root of x.

    NOTE: the released strings from length 169 on have roots computed in floating point, many of which are wrong; these
        are exact.
    """

    symbols = (*BITS, _EQUALS)
    smallest = 3

    def compute(self, operands: Sequence[int]) -> int:
        """The root."""
        return isqrt(operands[0])

    def positive(self, rng: random.Random, longest: int) -> String:
        """Widths, then a number whose root fits into its width."""
        first, width = (share + 1 for share in shares(rng, rng.randint(3, longest) - 3, (2, 1)))
        x = rng.randint(0, min(2**first - 1, 4**width - 1))
        return (*written(x, first), _EQUALS, *written(isqrt(x), width))
