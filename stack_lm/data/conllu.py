"""The words of CoNLL-U, the format of Universal Dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..errors import InputError, OnError
from ..messages import shortened

# The number of a word; of the words that are written as one, as "de le" is "du"; of a word that is not written.
_NUMBER = re.compile(r"(\d+)(?:-(\d+)|(\.\d+))?")
_COLUMNS = 10


def words_of_conllu(lines: Iterable[tuple[int, str]], source: str, on_error: OnError) -> Iterator[str]:
    """The words of each sentence as they are written, separated by spaces: "du", and not "de" and "le".

    Args:
        lines: of a file, each with its number from 1.
        source: the name of the file, for messages.
        on_error: called with the error of a line that is no word, which is then left out.
    """
    words: list[str] = []
    covered = 0  # the last word of a token that was read
    for number, line in lines:
        if not line.strip():
            if words:
                yield " ".join(words)
            words, covered = [], 0
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
        if empty is None and int(first) > covered:
            words.append(cells[1])
            covered = int(last or first)
    if words:
        yield " ".join(words)
