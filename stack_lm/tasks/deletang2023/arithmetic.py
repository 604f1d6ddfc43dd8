"""Arithmetic modulo 5 (Delétang et al. 2023)."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from ..registry import register_task
from .answered import AnsweredTask, String

MODULUS = 5
_DIGITS = ("0", "1", "2", "3", "4")
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


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


def value(expression: Sequence[str], operators: str) -> int | None:
    """The value of such an expression modulo 5; None for a string that is not one."""
    pending: list[tuple[str, int]] = []  # brackets and operators; "literal" and "value" with what they are
    for symbol in expression:
        if symbol in _DIGITS:
            digit = int(symbol)
            if [kind for kind, _ in pending[-1:]] == ["-"] and (len(pending) < 2 or not _is_value(pending[-2])):
                pending.pop()
                digit = -digit
            pending.append(("literal", digit))
        elif symbol == ")":
            inside: list[tuple[str, int]] = []
            while pending and pending[-1][0] != "(":
                inside.insert(0, pending.pop())
            result = _combine(inside)
            if not pending or result is None:
                return None
            pending[-1] = ("value", result)
        elif symbol == "(" or symbol in operators:
            pending.append((symbol, 0))
        else:
            return None
        # Two adjacent values, whatever their origin.
        if len(pending) > 1 and _is_value(pending[-1]) and _is_value(pending[-2]):
            return None
    return pending[0][1] % MODULUS if len(pending) == 1 and _is_value(pending[0]) else None


def _is_value(item: tuple[str, int]) -> bool:
    return item[0] in ("literal", "value")


def _combine(inside: list[tuple[str, int]]) -> int | None:
    """Evaluate the content of brackets: a literal, or an operation on two values."""
    if [kind for kind, _ in inside] == ["literal"]:
        return inside[0][1]
    if len(inside) != 3 or not (_is_value(inside[0]) and _is_value(inside[2])) or inside[1][0] not in _OPERATIONS:
        return None
    return _OPERATIONS[inside[1][0]](inside[0][1], inside[2][1]) % MODULUS


class _Bracketed(AnsweredTask):
    """Fully bracketed expressions."""

    answers = _DIGITS
    operators: ClassVar[str]

    def value(self, string: Sequence[str]) -> int | None:
        """The value of an expression, as the function of that name."""
        return value(string, self.operators)

    def ids(self, symbols: Sequence[str]) -> String:
        """The ids of symbols."""
        places: Mapping[str, int] = {symbol: place for place, symbol in enumerate(self.vocabulary)}
        return tuple(places[symbol] for symbol in symbols)


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
        return self.ids(draw_expression(rng, length, self.operators))

    def answer(self, string: String) -> String | None:
        """The value modulo 5."""
        result = self.value([self.vocabulary[symbol] for symbol in string])
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
        due = self.value(expression)
        place = rng.randrange(len(expression))
        while expression[place] not in _DIGITS:
            place = (place + 1) % len(expression)
        return self.ids([*expression[:place], "x", *expression[place + 1 :], "=", str(due)])

    def answer(self, string: String) -> String | None:
        """The digit that solves the equation."""
        symbols = [self.vocabulary[symbol] for symbol in string]
        if len(symbols) < 3:
            return None if any(string) else (0,)
        *left, equals, right = symbols
        if equals != "=" or right not in _DIGITS or left.count("x") != 1:
            return None
        solutions = [digit for digit in _DIGITS if str(self.value([digit if s == "x" else s for s in left])) == right]
        return (int(solutions[0]),) if solutions else None
