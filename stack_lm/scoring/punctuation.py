"""Punctuation at the ends of words."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal
from unicodedata import category

Punctuation = Literal["attach", "split"]
"""Either `attach`: punctuation belongs to the word that it touches; or `split`: it is split off."""


@cache
def _marks() -> str:
    """All punctuation of Unicode (categories P*), and the opening quotation mark of the Penn Treebank."""
    return "`" + "".join(c for c in map(chr, range(sys.maxunicode + 1)) if category(c).startswith("P"))


def inner(word: str) -> slice:
    """A word without the punctuation at its ends; a word of punctuation only stays unchanged."""
    start, stop = len(word) - len(word.lstrip(_marks())), len(word.rstrip(_marks()))
    return slice(start, stop) if start < stop else slice(0, len(word))


def is_punctuation(word: str) -> bool:
    """True if a word has only punctuation."""
    return not word.strip(_marks())


def split_points(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Find the beginning of each word, and of punctuation that is split off it, in the words joined by spaces.

    A token is never cut: punctuation that shares a token with its word stays there.

    Args:
        words: the words of a sentence.
        offsets: the characters of each token, as start and stop.
    """
    inside = {place for start, stop in offsets for place in range(start + 1, stop)}
    begin = 0
    for word in words:
        part = inner(word)
        points = (begin + part.start, begin + part.stop)
        yield [begin, *(p for p in points if begin < p < begin + len(word) and p not in inside)]
        begin += len(word) + 1
