"""Binary numbers in strings of symbols, the least significant bit first."""

from __future__ import annotations

from collections.abc import Sequence


def bits(number: int, width: int = 1) -> tuple[int, ...]:
    """The bits of a number, followed by zeros up to a width."""
    return tuple(int(bit) for bit in reversed(f"{number:0{width}b}"))


def number(digits: Sequence[int | str]) -> int:
    """The number with these bits, which may be integers or symbols."""
    return int("".join(map(str, reversed(digits))), 2)
