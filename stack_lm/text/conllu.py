"""The words and tags of CoNLL-U, the format of Universal Dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..core.errors import InputError, OnError
from ..core.messages import shortened

# The number of a word; of words written as one, such as "du" for "de le"; of a word that is not written.
_NUMBER = re.compile(r"(\d+)(?:-(\d+)|(\.\d+))?")
_COLUMNS, _UPOS, _NONE = 10, 3, "_"


def sentences_of_conllu(
    lines: Iterable[tuple[int, str]], source: str, on_error: OnError
) -> Iterator[tuple[list[str], list[str] | None]]:
    """The words of each sentence as written, "du" and not "de" and "le", and their universal tags.

    The tag of "du" is ADP+DET. A sentence in which a word has no tag has None.

    Args:
        lines: the lines of a file, each with its number from 1.
        source: the name of the file, for messages.
        on_error: called with the error of a line that is not a word, which is then left out.
    """
    words: list[str] = []
    tags: list[list[str]] = []  # of a word those of its parts
    covered = 0  # the last part of a word that was read
    for number, line in lines:
        if not line.strip():
            if words:
                yield words, _joined(tags)
            words, tags, covered = [], [], 0
            continue
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        match = _NUMBER.fullmatch(cells[0])
        if match is None or len(cells) != _COLUMNS:
            on_error(
                InputError(
                    f"{source}, line {number}: a word of CoNLL-U has {_COLUMNS} columns between tabs, the first a "
                    f"number; got {shortened(line, 60)!r}"
                )
            )
            continue
        first, last, empty = match.groups()
        if empty is not None:
            continue
        if int(first) > covered:
            words.append(cells[1])
            tags.append([])
            covered = int(last or first)
        if last is None and tags:
            tags[-1].append(cells[_UPOS])
    if words:
        yield words, _joined(tags)


def _joined(tags: list[list[str]]) -> list[str] | None:
    if any(not word_tags or _NONE in word_tags for word_tags in tags):
        return None
    return ["+".join(word_tags) for word_tags in tags]
