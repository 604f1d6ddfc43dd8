"""Languages whose strings are built from one word w, by copies, reversals and marks."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from math import inf, log

from ...errors import InputError
from ..base import SplitChanges
from ..bounded import BoundedLanguage


class WordLanguage(BoundedLanguage):
    """Strings that begin with a word and are determined by it. All words of a length are equally likely.

    Args:
        splits: changes of the plan (see `Task`).

    Attributes:
        letters: the letters of words.
        others: the other symbols of strings.
    """

    paper = "DuSell and Chiang 2023"
    letters: tuple[str, ...] = ("0", "1")
    others: tuple[str, ...] = ()

    def __init__(self, *, splits: SplitChanges | None = None) -> None:
        super().__init__((*self.letters, *self.others), splits=splits)

    @abstractmethod
    def made_of(self, word: list[str]) -> list[str]:
        """The string built from a word; its length is a linear function of the word's."""

    def word_length(self, length: int) -> int | None:
        """The length of the word in a string of a given length; None if there is no such string."""
        empty = len(self.made_of([]))
        letters, rest = divmod(length - empty, len(self.made_of([self.letters[0]])) - empty)
        return letters if letters >= 0 and not rest else None

    def possible(self, length: int) -> bool:
        """See `BoundedLanguage.possible`."""
        return self.word_length(length) is not None

    def string(self, rng: random.Random, length: int) -> Sequence[str]:
        """See `BoundedLanguage.string`.

        Raises:
            InputError: if there is none.
        """
        letters = self.word_length(length)
        if letters is None:
            raise InputError(f"{self} has no string of length {length}")
        return self.made_of(rng.choices(self.letters, k=letters))

    def contains(self, string: Sequence[str]) -> bool:
        """See `BoundedLanguage.contains`."""
        letters = self.word_length(len(string))
        if letters is None or not set(string[:letters]) <= set(self.letters):
            return False
        return self.made_of(list(string[:letters])) == list(string)

    def log_given_length(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """See `BoundedLanguage.log_given_length`."""
        return [
            -(self.word_length(len(string)) or 0) * log(len(self.letters)) if self.contains(string) else -inf
            for string in strings
        ]
