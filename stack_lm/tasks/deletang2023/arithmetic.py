"""Arithmetic modulo 5 (Delétang et al. 2023)."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from ..registry import register_task
from .answered import AnsweredTask, String

MODULUS = 5
_DIGITS = ("0", "1", "2", "3", "4")
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
# A part of an expression is replaced by its value, written as a letter: literals in brackets, signed digits, digits;
# then operations on two values, from the innermost.
_VALUES = "abcde"
_LITERALS = [re.compile(form) for form in (r"\((-?[0-4])\)", r"(?<![0-4a-e)])(-[0-4])", "([0-4])")]
_OPERATION = re.compile(r"\(([a-e])([-+*])([a-e])\)")


@register_task("deletang2023/modular_arithmetic_simple")
class SimpleArithmetic(AnsweredTask):
    """The value of digits with operators between them, products before sums.

    NOTE: the released code counts a ninth symbol, which never occurs. It removes a symbol from even lengths, so all
        lengths are odd.
    """

    vocabulary = (*_DIGITS, "+", "-", "*")
    aliases: ClassVar = {"5": "+", "6": "-", "7": "*"}
    answers = _DIGITS

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The odd ones, equally often."""
        return {length: 1.0 for length in range(shortest, longest + 1) if length % 2}

    def draw_input(self, rng: random.Random, length: int) -> String:
        """All digits and operators are equally likely."""
        places = range(length - 1 + length % 2)
        return tuple(rng.randrange(5, 8) if place % 2 else rng.randrange(5) for place in places)

    def answer(self, string: String) -> String | None:
        """The value modulo 5."""
        if len(string) % 2 == 0 or any((symbol >= MODULUS) != place % 2 for place, symbol in enumerate(string)):
            return None
        total, term = 0, string[0]
        for sign, digit in zip(string[1::2], string[2::2], strict=True):
            if self.vocabulary[sign] == "*":
                term = term * digit % MODULUS
            else:
                total, term = total + term, _OPERATIONS[self.vocabulary[sign]](0, digit)
        return ((total + term) % MODULUS,)


def draw_expression(rng: random.Random, length: int, operators: str) -> list[str]:
    """Draw an expression from the top: a digit, perhaps with a sign and in brackets, or two expressions in brackets.

    Args:
        rng: source of randomness.
        length: the length in symbols, one or more.
        operators: those between expressions, equally likely.
    """
    literals = {1: "d", 2: "-d", 3: "(d)", 4: "(-d)"}
    written: list[str] = []
    agenda: list[int | str] = [length]
    while agenda:
        item = agenda.pop()
        if isinstance(item, str):
            written.append(item)
        elif item in literals:
            written += literals[item].replace("d", rng.choice(_DIGITS))
        else:
            left = rng.randint(1, item - 4)
            agenda += [")", item - 3 - left, rng.choice(operators), left, "("]
    return written


def value(expression: Sequence[str]) -> int | None:
    """The value of such an expression modulo 5; None for a string that is not one."""

    def combined(operation: re.Match[str]) -> str:
        left, right = (_VALUES.index(operation[side]) for side in (1, 3))
        return _VALUES[_OPERATIONS[operation[2]](left, right) % MODULUS]

    text, reduced = "".join(expression), 1
    for literal in _LITERALS:
        text = literal.sub(lambda found: _VALUES[int(found[1]) % MODULUS], text)
    while reduced:
        text, reduced = _OPERATION.subn(combined, text)
    return _VALUES.index(text) if len(text) == 1 and text in _VALUES else None


class _Bracketed(AnsweredTask):
    """Fully bracketed expressions."""

    answers = _DIGITS
    operators: ClassVar[str]


@register_task("deletang2023/modular_arithmetic")
class BracketedArithmetic(_Bracketed):
    """The value of an expression with brackets, sums, differences and products.

    NOTE: the released code counts an eleventh symbol, which never occurs.
    """

    vocabulary = (*_DIGITS, "+", "-", "*", "(", ")")
    aliases: ClassVar = {"5": "+", "6": "-", "7": "*", "8": "(", "9": ")"}
    operators = "+-*"

    def draw_input(self, rng: random.Random, length: int) -> String:
        """An expression of a length."""
        return self.read(" ".join(draw_expression(rng, length, self.operators)))

    def answer(self, string: String) -> String | None:
        """The value modulo 5."""
        result = value([self.vocabulary[symbol] for symbol in string])
        return None if result is None else (result,)


@register_task("deletang2023/solve_equation")
class SolveEquation(_Bracketed):
    """The value of x in `expression = value`; it is unique, because there are only sums and differences.

    NOTE: inputs below three symbols are not equations but zeros, whose answer is 0, as in the released code.
    """

    vocabulary = (*_DIGITS, "+", "-", "(", ")", "x", "=")
    aliases: ClassVar = {"5": "+", "6": "-", "7": "(", "8": ")", "9": "x", "10": "="}
    operators = "+-"

    def draw_input(self, rng: random.Random, length: int) -> String:
        """An expression in which x replaces a digit: the first at or after a uniformly drawn position."""
        if length < 3:
            return (0,) * length
        expression = draw_expression(rng, length - 2, self.operators)
        due = value(expression)
        place = rng.randrange(len(expression))
        while expression[place] not in _DIGITS:
            place = (place + 1) % len(expression)
        return self.read(" ".join([*expression[:place], "x", *expression[place + 1 :], "=", str(due)]))

    def answer(self, string: String) -> String | None:
        """The digit that solves the equation."""
        symbols = [self.vocabulary[symbol] for symbol in string]
        if len(symbols) < 3:
            return None if any(string) else (0,)
        *left, equals, right = symbols
        if equals != "=" or right not in _DIGITS or left.count("x") != 1:
            return None
        solutions = [digit for digit in _DIGITS if str(value([digit if s == "x" else s for s in left])) == right]
        return (int(solutions[0]),) if solutions else None
