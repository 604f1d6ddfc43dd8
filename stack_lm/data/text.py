"""Plain text: reading files, finding sentences and words."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..errors import InputError

# Enough text for Punkt to learn its abbreviations, and still only seconds of work.
TRAINING_CHARACTERS = 1_000_000
STANDARD_INPUT = "standard input"
_UNPACKERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_TEXT_ENDINGS = (".txt", *(f".txt{ending}" for ending in _UNPACKERS))
_FINAL = (".", "!", "?", '"', "'", "\u201d", "\u2019", ")")


def _check_file(path: str | Path) -> str:
    """The file's name for messages."""
    if str(path) == "-":
        return STANDARD_INPUT
    if not Path(path).is_file():
        what = "is a directory, not a file" if Path(path).is_dir() else "does not exist"
        raise InputError(f"{path} {what}")
    return str(path)


@contextmanager
def _open(path: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The file's name for messages, and its bytes, unpacked as its ending says; reading errors become InputErrors."""
    name = _check_file(path)
    if name == STANDARD_INPUT:
        yield name, sys.stdin.buffer
        return
    try:
        with _UNPACKERS.get(Path(path).suffix.lower(), open)(path, "rb") as stream:
            yield name, stream
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read {name}: {reason}") from error


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a UTF-8 file, or of standard input for "-", with their numbers from 1.

    A file that ends in .gz or .xz is unpacked as it is read.

    Raises:
        InputError: if the file is missing, damaged, has no text, or is not UTF-8; the message names the line.
    """
    number = 0
    empty = True
    with _open(path) as (name, stream):
        try:
            for number, raw in enumerate(stream, start=1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if line.strip():
                    empty = False
                    yield number, line
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}: not UTF-8 text ({error.reason})") from error
    if empty:
        raise InputError(f"{name} is empty")


def read_text(path: str | Path) -> str:
    """The text of a whole UTF-8 file, unpacked as in `read_lines`, or of standard input for "-".

    Raises:
        InputError: as `read_lines`.
    """
    with _open(path) as (name, stream):
        raw = stream.read()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}, line {line}: not UTF-8 text ({error.reason})") from error
    if not text.strip():
        raise InputError(f"{name} is empty")
    return text.replace("\r\n", "\n")


def json_record(line: str, where: str) -> dict[str, Any]:
    """The object in a line of JSON; `where` opens the message of errors.

    Raises:
        InputError: if the line is no JSON, or no object.
    """
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg})") from error
    if not isinstance(record, dict):
        raise InputError(f"{where}: a JSON object is needed; got {line.strip()[:60]!r}")
    return record


def read_table(path: str | Path, delimiter: str = "\t") -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table with a header, by column name, with their line numbers.

    Raises:
        InputError: as `read_lines`, and for a row with fewer cells than the header.
    """
    lines = read_lines(path)
    numbers: list[int] = []

    def text() -> Iterator[str]:
        for number, line in lines:
            numbers.append(number)
            yield line

    rows = csv.reader(text(), delimiter=delimiter)
    header = next(rows)
    for row in rows:
        if len(row) < len(header):
            raise InputError(f"{path}, line {numbers[-1]}: {len(row)} columns, but the header has {len(header)}")
        yield numbers[-1], dict(zip(header, row, strict=False))


def text_files(path: Path) -> list[Path]:
    """The file itself, or all .txt, .txt.gz and .txt.xz files below a directory, in order of their names."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.name.endswith(_TEXT_ENDINGS) and file.is_file())
        if not files:
            raise InputError(f"the directory {path} has no {', '.join(_TEXT_ENDINGS)} files")
        return files
    if not path.exists():
        raise InputError(f"{path} does not exist")
    return [path]


class SentenceSplitter:
    """Finds the sentences in running text, with Punkt (Kiss and Strunk 2006) as NLTK has it.

    Punkt learns the abbreviations of a text from the text itself, so nothing needs to be downloaded and the same text
    is split the same way everywhere.

    Args:
        training_text: what to learn from; its first million characters count.
    """

    def __init__(self, training_text: str) -> None:
        from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer

        trainer = PunktTrainer()
        trainer.INCLUDE_ALL_COLLOCS = False
        trainer.train(training_text[:TRAINING_CHARACTERS], finalize=True)
        self._punkt = PunktSentenceTokenizer(trainer.get_params())

    def __call__(self, paragraph: str) -> list[str]:
        """The sentences of one paragraph."""
        return self._punkt.tokenize(paragraph)


class Segmenter:
    """From documents to sentences of words.

    Args:
        mode: how the text comes.
            "lines": one sentence a line, words separated by spaces.
            "paragraphs": words separated by spaces, but sentences run on (wikitext).
            "raw": ordinary text (Wikipedia). Lines without final punctuation are headings and list entries, and are
            left out.
        documents: some documents for the sentence splitter to learn from.
    """

    MODES = ("lines", "paragraphs", "raw")

    def __init__(self, mode: str, documents: Iterable[str] = ()) -> None:
        if mode not in self.MODES:
            raise InputError(f"segmentation must be one of {', '.join(self.MODES)}; got {mode!r}")
        self.mode = mode
        if mode == "lines":
            return
        from nltk.tokenize import NLTKWordTokenizer

        sample: list[str] = []
        size = 0
        for document in documents:
            sample.append(document)
            size += len(document)
            if size >= TRAINING_CHARACTERS:
                break
        self._split = SentenceSplitter("\n".join(sample))
        self._words = NLTKWordTokenizer()

    def __call__(self, document: str) -> Iterator[list[str]]:
        """The sentences of one document."""
        for line in document.split("\n"):
            line = line.strip()
            if not line:
                continue
            if self.mode == "lines":
                yield line.split()
            elif self.mode == "paragraphs":
                if not (line.startswith("= ") and line.endswith(" =")):  # a heading of wikitext
                    yield from (sentence.split() for sentence in self._split(line))
            elif line.endswith(_FINAL):
                yield from (self._words.tokenize(sentence) for sentence in self._split(line))
