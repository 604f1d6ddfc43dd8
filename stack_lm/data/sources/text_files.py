"""Text files, directories of them, and standard input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from ..corpora import Corpus, Request, Sentence, register_source
from ..text import Segmenter, read_lines, text_files

# Of a corpus, the lines that its sentence splitter may learn from.
_LEARN_FROM = 100_000


@register_source("- (standard input)")
def open_standard_input(request: Request) -> Corpus:
    """The lines of standard input, which are kept, because it can be read once only."""
    lines = [line for _, line in read_lines("-")]
    return _open(request, lambda: lines)


def open_files(request: Request) -> Corpus:
    """A text file, or all those below a directory; `source` is the path. Each iteration reads the files again."""
    files = text_files(Path(request.source))

    def lines() -> Iterator[str]:
        for file in files:
            yield from (line for _, line in read_lines(file))

    return _open(request, lines, tuple(files))


def _open(request: Request, lines: Callable[[], Iterable[str]], files: tuple[Path, ...] = ()) -> Corpus:
    segment = Segmenter(request.segmentation or "lines", islice(lines(), _LEARN_FROM))
    return Corpus(request.source, lambda: (Sentence(words) for line in lines() for words in segment(line)), files=files)
