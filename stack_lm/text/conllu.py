"""The words and tags of CoNLL-U, the format of Universal Dependencies."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ..core.errors import InputError, OnError
from ..core.messages import shortened

# The number of a word; of words written as one, such as "du" for "de le"; of a word that is not written.
_NUMBER = re.compile(r"(\d+)(?:-(\d+)|(\.\d+))?", re.ASCII)
_COLUMNS, _FORM, _UPOS, _HEAD, _RELATION, _NONE = 10, 1, 3, 6, 7, "_"


class Dependent(NamedTuple):
    """A part of a word, as "de" and "le" are of "du": the word, from 0; the number of its head, and the relation."""

    word: int
    head: str
    relation: str


class TaggedWords(NamedTuple):
    """A sentence: its number from 1, its words, their universal tags (None if a word has none), and their parts."""

    number: int
    words: list[str]
    tags: list[str] | None
    parts: list[Dependent]


def sentences_of_conllu(lines: Iterable[tuple[int, str]], source: str, on_error: OnError) -> Iterator[TaggedWords]:
    """The words of each sentence as written, "du" and not "de" and "le", and their universal tags.

    The tag of "du" is ADP+DET. A space in a word becomes a no-break space. A comment, or a word with the number 1,
    begins a sentence even without an empty line before it, with a warning.

    Args:
        lines: the lines of a file, each with its number from 1.
        source: the name of the file, for messages.
        on_error: called with the first error of a sentence, which is then left out; its number counts.
    """
    sentence, number, warned = _Sentence(), 1, False
    for line_number, line in chain(lines, [(0, "")]):
        where = f"{source}, line {line_number}"
        ends = not line.strip()
        if sentence.begun and (ends or line.startswith("#") or sentence.restarts(line)):
            if not ends and not warned:
                warned = True
                warnings.warn(f"{where}: a sentence begins without an empty line before it", stacklevel=2)
            try:
                yield TaggedWords(number, *sentence.finish())
            except InputError as error:
                on_error(error)
            sentence, number = _Sentence(), number + 1
        if not ends and not line.startswith("#"):
            sentence.add(line, where)


class _Sentence:
    """A sentence that is being read."""

    def __init__(self) -> None:
        self._where = ""  # its first line
        self._words: list[str] = []
        self._tags: list[list[str]] = []  # of a word those of its parts
        self._parts: list[Dependent] = []
        self._last = self._covered = 0  # the last part that was read, and that of the last word
        self._error: InputError | None = None

    @property
    def begun(self) -> bool:
        """True after its first line."""
        return bool(self._where)

    def restarts(self, line: str) -> bool:
        """True if a line has the first word of another sentence."""
        match = _NUMBER.match(line)
        return match is not None and match[1] == "1" and match[3] is None and self._last > 0

    def add(self, line: str, where: str) -> None:
        """Read a line; its error, if it is the first, is that of the sentence."""
        self._where = self._where or where
        try:
            self._add(line)
        except ValueError as error:
            self._error = self._error or InputError(f"{where}: {error}; got {shortened(line, 60)!r}")

    def _add(self, line: str) -> None:
        cells = line.split("\t")
        match = _NUMBER.fullmatch(cells[0])
        if match is None or len(cells) != _COLUMNS:
            raise ValueError(f"a word of CoNLL-U has {_COLUMNS} columns between tabs, the first a number")
        if match[3] is not None:
            return
        first, last = int(match[1]), int(match[2] or match[1])
        if first != self._last + 1 or last < first or (match[2] and first <= self._covered):
            raise ValueError(f"the numbers of a sentence's words count up from 1, and {self._last + 1} comes here")
        form = "\u00a0".join(cells[_FORM].split())
        if not form:
            raise ValueError("the word is empty")
        if first > self._covered:
            self._words.append(form)
            self._tags.append([])
            self._covered = last
        if not match[2]:
            self._last = first
            self._tags[-1].append(cells[_UPOS])
            self._parts.append(Dependent(len(self._words) - 1, cells[_HEAD], cells[_RELATION]))

    def finish(self) -> tuple[list[str], list[str] | None, list[Dependent]]:
        """The words, tags and parts.

        Raises:
            InputError: for the first error in a line, parts of a word that are missing, or no words.
        """
        if self._error is None and self._last < self._covered:
            self._error = InputError(f"{self._where}: the sentence ends inside of {self._words[-1]!r}")
        if self._error is None and set(self._words) <= {_NONE}:
            self._error = InputError(f"{self._where}: the sentence has no words")
        if self._error is not None:
            raise self._error
        if any(not tags or _NONE in tags for tags in self._tags):
            return self._words, None, self._parts
        return self._words, ["+".join(tags) for tags in self._tags], self._parts
