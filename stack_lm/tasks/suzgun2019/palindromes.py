"""Palindromes with a marked centre, and reversal, symbol by symbol (Suzgun et al. 2019, sections 6 and 7)."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ...core.errors import InputError
from ..base import Example, Split, Task
from ..registry import register_task

LETTERS = (0, 1, 2)
MARK = 3


class _Mirrored(Task):
    """Strings determined by their first half `w` over a, b and c.

    All possible lengths are equally likely, as are the halves of a length; lengths count the whole string.
    """

    paper = "Suzgun et al. 2019"
    kind = "next_symbols"
    distinct = True
    vocabulary: tuple[str, ...] = ("a", "b", "c", "#")
    default_plan: ClassVar = {"train": Split(5_000, 2, 50), "test": Split(5_000, 52, 100)}
    # The string has twice the length of its half, plus this many symbols.
    centre: ClassVar[int]

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The lengths with a half of at least one symbol, with equal weights."""
        first = max(shortest, 2 + self.centre)
        return {length: 1.0 for length in range(first, longest + 1) if length % 2 == self.centre}

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a string of a length.

        Raises:
            InputError: if there is none.
        """
        if not self.length_weights(length, length):
            raise InputError(f"{self} has no string of length {length}")
        half = tuple(rng.choice(LETTERS) for _ in range(length // 2))
        return self.unfold(half)

    def example(self, string: Sequence[int]) -> Example:
        """The example of a string of the language."""
        half = tuple(string[: len(string) // 2])
        if half and MARK not in half and max(half) < MARK:
            whole = self.unfold(half)
            if whole.source == tuple(string):
                return whole
        raise InputError(f"not a string of {self}: {self.write(string)}")

    @abstractmethod
    def unfold(self, half: tuple[int, ...]) -> Example:
        """The whole string of a first half, and its targets."""


class _Palindrome(_Mirrored):
    """`w # phi(w reversed)`: after each letter of `w` any letter or #, then one symbol at a time, then the end.

    NOTE: the end is a separate symbol, which is never read.
    """

    centre = 1

    def unfold(self, half: tuple[int, ...]) -> Example:
        """The string and the possible next symbols."""
        mirrored = tuple(self.image(letter) for letter in reversed(half))
        end = len(self.vocabulary) - 1
        targets = [frozenset({*LETTERS, MARK})] * len(half) + [frozenset({symbol}) for symbol in (*mirrored, end)]
        source = (*half, MARK, *mirrored)
        return Example(source, tuple(targets), (True,) * len(source))

    @abstractmethod
    def image(self, letter: int) -> int:
        """The homomorphism phi."""


@register_task("suzgun2019/homomorphic_palindrome")
class HomomorphicPalindrome(_Palindrome):
    """Phi maps a to x, b to y and c to z (section 6.1)."""

    vocabulary = ("a", "b", "c", "#", "x", "y", "z", "</s>")

    def image(self, letter: int) -> int:
        """x, y or z."""
        return letter + MARK + 1


@register_task("suzgun2019/simple_palindrome")
class SimplePalindrome(_Palindrome):
    """Phi maps each letter to itself (section 6.2)."""

    vocabulary = ("a", "b", "c", "#", "</s>")

    def image(self, letter: int) -> int:
        """The letter."""
        return letter


@register_task("suzgun2019/reversal")
class Reversal(_Mirrored):
    """From `w` and as many # to as many # and `w` reversed: one symbol at each step (section 7).

    NOTE: the paper names no alphabet; it is that of the palindromes.
    """

    centre = 0

    def unfold(self, half: tuple[int, ...]) -> Example:
        """The string and one target at each step."""
        marks = (MARK,) * len(half)
        targets = tuple(frozenset({symbol}) for symbol in marks + half[::-1])
        return Example(half + marks, targets, (True,) * len(targets))
