"""Text files of all formats, directories of them, and standard input.

In plain text an empty line, and the end of a file, end a document; elsewhere each record is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from ..corpora import Corpus, DocumentStream, Request, Sentence, register_source
from ..formats import FORMATS, TEXT, format_of
from ..plain import Segmenter
from ..records import Record, find_files, read_records

# The number of a corpus's records from which its sentence splitter may learn.
_LEARN_FROM = 100_000
# In a stream a document ends here, so that a file without empty lines need not fit into memory.
_MOST_LINES = 1_000

Records = Callable[[], Iterator[Record]]


@register_source("- (standard input)")
def open_standard_input(request: Request) -> Corpus:
    """The records of standard input, which are kept, because it can be read only once."""
    records = list(read_records("-", column=request.column, on_error=request.on_error))
    return _open(request, [lambda: iter(records)])


@register_source("linzen:FILE.tsv")
def open_linzen(request: Request) -> Corpus:
    """The sentences of Linzen et al. (2016): a column of their table, `agr_50_mostcommon_10K.tsv`."""
    options: Any = {"column": "sentence", "format_name": "tsv", "on_error": request.on_error}
    return Corpus(request.source, _open(request, [lambda: read_records(request.argument, **options)]).sentences)


def open_files(request: Request) -> Corpus:
    """A file, all those below a directory, or those of a pattern. Each iteration reads the files again."""
    if any((Path(request.source) / name).is_file() for name in ("state.json", "dataset_dict.json")):
        raise InputError(f"{request.source} is a dataset that `save_to_disk` wrote: name it as hub:{request.source}")
    files = find_files(request.source)

    def read(file: Path) -> Records:
        return lambda: read_records(file, column=request.column, on_error=request.on_error)

    return _open(request, list(map(read, files)), tuple(files))


def _open(request: Request, files: Sequence[Records], paths: tuple[Path, ...] = ()) -> Corpus:
    texts = (record.text for file in files for record in file())
    mode = request.segmentation or "lines"
    has_words = bool(paths) and FORMATS[format_of(paths[0]) or TEXT].has_words
    segment = Segmenter(mode, islice(texts, _LEARN_FROM), split_words=request.split_words, tokens=has_words)

    def parts(file: Records) -> Iterator[str]:
        """The lines of a file; lines together if one may continue in the next."""
        return _documents(file, _MOST_LINES) if mode in ("raw", "articles") else (record.text for record in file())

    def sentences() -> Iterator[Sentence]:
        return (Sentence(words) for file in files for text in parts(file) for words in segment(text))

    def documents() -> Iterator[Iterator[Sentence]]:
        for text in (text for file in files for text in _documents(file)):
            yield map(Sentence, segment(text))

    stream = DocumentStream(request.source, TextStream(files), "text", segment) if paths else None
    return Corpus(request.source, sentences, stream, paths, documents)


def _documents(file: Records, most_lines: int | None = None) -> Iterator[str]:
    """The documents of a file, with line breaks."""
    document: list[str] = []
    for record in file():
        if record.fields:
            yield record.text
            continue
        if record.tokens == ():  # a tree without words, in the middle of a document
            continue
        if document and (not record.text or len(document) == most_lines):
            yield "\n".join(document)
            document = []
        if record.text:
            document.append(record.text)
    if document:
        yield "\n".join(document)


class TextStream:
    """The documents of text files, with the part of a `datasets.IterableDataset` that `DocumentStream` needs."""

    def __init__(self, files: Sequence[Records]) -> None:
        self._files = files
        self._file, self._document = 0, 0
        self.num_shards = len(files)

    def shard(self, num_shards: int, index: int, contiguous: bool = False) -> TextStream:
        """Every `num_shards`-th file, from that of a number."""
        return TextStream(self._files[index::num_shards])

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Set the position at which the next iteration begins; None is the first document."""
        self._file, self._document = (state["file"], state["document"]) if state else (0, 0)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last document read."""
        return {"file": self._file, "document": self._document}

    def __iter__(self) -> Iterator[dict[str, str]]:
        while self._file < len(self._files):
            for text in islice(_documents(self._files[self._file], _MOST_LINES), self._document, None):
                self._document += 1
                yield {"text": text}
            self._file, self._document = self._file + 1, 0
