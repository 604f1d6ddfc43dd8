"""The languages of DuSell and Chiang (2023), not context-free or with many symbol types.

Strings of the former are built from one word, by copies, reversals and marks. The latter test the capacity of a stack:
types are equally likely, so a lower bound is that of one type, plus log k for each symbol whose type is free.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from math import inf, log
from typing import Annotated

from ...core.checks import Integer
from ...core.errors import InputError
from ..base import SplitChanges
from ..bounded import BoundedLanguage, log_given_length
from ..exact import GrammarLanguage
from ..grammars import Grammar
from ..registry import register_task

# The number of symbol types, limited so that a vocabulary fits into memory.
SymbolTypes = Annotated[int, Integer(1, 100_000)]
# The seven that are not context-free; see `WordLanguage` for the notation.
_PATTERNS = {
    "count_3": ("w b* c*", "a"),
    "marked_reverse_and_copy": ("w # r # w", "01"),
    "count_and_copy": ("w #* w", "01"),
    "marked_copy": ("w # w", "01"),
    "unmarked_copy_different_alphabets": ("w v", "01"),
    "unmarked_reverse_and_copy": ("w r w", "01"),
    "unmarked_copy": ("w w", "01"),
}
_OTHER_ALPHABET = {"0": "2", "1": "3"}


class WordLanguage(BoundedLanguage):
    """Strings that begin with a word and are determined by it. All words of a length are equally likely.

    Args:
        pattern: the parts of a string: `w` is the word, `r` the word reversed, `v` the word in another alphabet (2 for
            0, 3 for 1), `#` a mark, and `b*` as many `b` as the word has letters.
        letters: the letters of words.
        splits: changes of the plan (see `Task`).
    """

    paper = "DuSell and Chiang 2023"

    def __init__(self, pattern: str, letters: Sequence[str], *, splits: SplitChanges | None = None) -> None:
        self.pattern, self.letters = pattern.split(), letters
        marks = dict.fromkeys(part[0] for part in self.pattern if part not in "wrv")
        others = _OTHER_ALPHABET.values() if "v" in self.pattern else ()
        super().__init__((*letters, *marks, *others), splits=splits)

    def unfold(self, word: Sequence[str]) -> list[str]:
        """The string built from a word."""
        string: list[str] = []
        for part in self.pattern:
            if part == "v":
                string += [_OTHER_ALPHABET[letter] for letter in word]
            elif part in "wr":
                string += word if part == "w" else reversed(word)
            else:
                string += part[0] * (len(word) if part.endswith("*") else 1)
        return string

    def word_length(self, length: int) -> int | None:
        """The length of the word in a string of a given length; None if there is no such string."""
        marks = len(self.unfold([]))
        letters, rest = divmod(length - marks, len(self.unfold([self.letters[0]])) - marks)
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
        return self.unfold(rng.choices(self.letters, k=letters))

    def contains(self, string: Sequence[str]) -> bool:
        """See `BoundedLanguage.contains`."""
        letters = self.word_length(len(string))
        if letters is None or not set(string[:letters]) <= set(self.letters):
            return False
        return self.unfold(string[:letters]) == list(string)

    def log_given_length(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """See `BoundedLanguage.log_given_length`."""
        return [
            -(self.word_length(len(string)) or 0) * log(len(self.letters)) if self.contains(string) else -inf
            for string in strings
        ]


for _name, (_pattern, _letters) in _PATTERNS.items():
    register_task(f"dusell2023/{_name}")(partial(WordLanguage, _pattern, _letters))


def _reversal(pattern: str, *, symbol_types: SymbolTypes = 2, splits: SplitChanges | None = None) -> WordLanguage:
    """A word and its reversal, over any number of symbol types."""
    return WordLanguage(pattern, tuple(map(str, range(symbol_types))), splits=splits)


register_task("dusell2023/marked_reversal")(partial(_reversal, "w # r"))
register_task("dusell2023/unmarked_reversal")(partial(_reversal, "w r"))


@register_task("dusell2023/dyck")
class Dyck(GrammarLanguage):
    """Well-nested strings with any number of types of pairs: on average one split at each level, and 40 levels.

    The grammar is that of `dusell2020/dyck`, with one type of pairs; each pair of a string then gets a type.

    Args:
        symbol_types: the number of types of pairs.
        splits: changes of the plan (see `Task`).
    """

    paper = "DuSell and Chiang 2023"
    grammar = Grammar({"S": {"S T": 1 / 2, "T": 1 / 2}, "T": {"( S )": 39 / 40, "( )": 1 / 40}})

    def __init__(self, *, symbol_types: SymbolTypes = 2, splits: SplitChanges | None = None) -> None:
        self.types = range(symbol_types)
        self._closing = {f"({number}": f"){number}" for number in self.types}
        self.symbols = [symbol for pair in self._closing.items() for symbol in pair]
        super().__init__(splits=splits)

    def string(self, rng: random.Random, length: int) -> tuple[str, ...]:
        """See `BoundedLanguage.string`."""
        string, opened = [], []
        for bracket in self.lengths.draw(rng, length):
            if bracket == "(":
                opened.append(rng.choice(self.types))
                string.append(f"({opened[-1]}")
            else:
                string.append(f"){opened.pop()}")
        return tuple(string)

    def contains(self, string: Sequence[str]) -> bool:
        """See `BoundedLanguage.contains`."""
        expected: list[str] = []
        for symbol in string:
            if symbol in self._closing:
                expected.append(self._closing[symbol])
            elif not expected or symbol != expected.pop():
                return False
        return bool(string) and not expected

    def log_given_length(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """See `BoundedLanguage.log_given_length`."""
        shapes = log_given_length(self.lengths, [[symbol[0] for symbol in string] for string in strings])
        return [
            shape - len(string) / 2 * log(len(self.types)) if self.contains(string) else -inf
            for shape, string in zip(shapes, strings, strict=True)
        ]
