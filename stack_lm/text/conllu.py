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
    begun: list[tuple[str, str]] = []  # the lines of a sentence, each with its place
    number, numbered, warned = 1, False, False  # whether a word of it had a number; whether there was a warning
    for line_number, line in chain(lines, [(0, "")]):
        where, ends, match = f"{source}, line {line_number}", not line.strip(), _NUMBER.match(line)
        restarts = numbered and match is not None and match[1] == "1" and match[3] is None
        if begun and (ends or line.startswith("#") or restarts):
            if not ends and not warned:
                warned = True
                warnings.warn(f"{where}: a sentence begins without an empty line before it", stacklevel=2)
            try:
                yield TaggedWords(number, *_parse(begun))
            except InputError as error:
                on_error(error)
            begun, number, numbered = [], number + 1, False
        if not ends and not line.startswith("#"):
            begun.append((where, line))
            numbered |= match is not None and not (match[2] or match[3])


def _parse(lines: list[tuple[str, str]]) -> tuple[list[str], list[str] | None, list[Dependent]]:
    """The words, tags and parts of the lines of a sentence, each with its place.

    Raises:
        InputError: for an error in a line, parts of a word that are missing, or no words.
    """
    words: list[str] = []
    tags: list[list[str]] = []  # of a word those of its parts
    parts: list[Dependent] = []
    last = covered = 0  # the last part that was read, and that of the last word
    for where, line in lines:
        cells = line.split("\t")
        match = _NUMBER.fullmatch(cells[0])
        if match is None or len(cells) != _COLUMNS:
            problem = f"a word of CoNLL-U has {_COLUMNS} columns between tabs, the first a number"
            raise InputError(f"{where}: {problem}; got {shortened(line, 60)!r}")
        if match[3] is not None:
            continue
        first, stop = int(match[1]), int(match[2] or match[1])
        form = "\u00a0".join(cells[_FORM].split())
        if first != last + 1 or stop < first or (match[2] and first <= covered) or not form:
            problem = f"the numbers of a sentence's words count up from 1, and {last + 1} comes here"
            raise InputError(f"{where}: {problem if form else 'the word is empty'}; got {shortened(line, 60)!r}")
        if first > covered:
            words.append(form)
            tags.append([])
            covered = stop
        if not match[2]:
            last = first
            tags[-1].append(cells[_UPOS])
            parts.append(Dependent(len(words) - 1, cells[_HEAD], cells[_RELATION]))
    if last < covered:
        raise InputError(f"{lines[0][0]}: the sentence ends inside of {words[-1]!r}")
    if set(words) <= {_NONE}:
        raise InputError(f"{lines[0][0]}: the sentence has no words")
    if any(not of or _NONE in of for of in tags):
        return words, None, parts
    return words, ["+".join(of) for of in tags], parts
