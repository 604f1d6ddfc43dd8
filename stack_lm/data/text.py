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
# Of a line, in bytes: a longer one is no sentence and no record, but a file without lines.
_LONGEST_LINE = 2**24
_LARGEST_TEXT = 2**30  # bytes of a file that is read as a whole
_FINAL = (".", "!", "?", '"', "'", "\u201d", "\u2019", ")")


def check_file(path: str | Path) -> str:
    """The name of a file that can be read, for messages; "-" is standard input.

    Raises:
        InputError: if it is missing, or no regular file.
    """
    if str(path) == "-":
        return STANDARD_INPUT
    if not Path(path).is_file():
        raise InputError(f"{path} {_why_no_file(Path(path))}")
    return str(path)


def _why_no_file(path: Path) -> str:
    if path.is_dir():
        return "is a directory, not a file"
    if path.is_symlink():
        return "is a symbolic link that leads nowhere"
    if path.exists():
        return "is no regular file; name - to read standard input"
    return "does not exist"


@contextmanager
def _open(path: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The file's name for messages, and its bytes, unpacked as its ending says; reading errors become InputErrors."""
    name = check_file(path)
    if name == STANDARD_INPUT:
        yield name, sys.stdin.buffer
        return
    try:
        with _UNPACKERS.get(Path(path).suffix.lower(), open)(path, "rb") as stream:
            yield name, stream
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read {name}: {reason}") from error


def read_lines(path: str | Path, *, keep_empty: bool = False) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a UTF-8 file, or of standard input for "-", with their numbers from 1.

    A file that ends in .gz or .xz is unpacked as it is read.

    Args:
        path: of the file.
        keep_empty: also yield the empty lines, as "".

    Raises:
        InputError: if the file is missing, damaged, has no text, or is not UTF-8; the message names the line.
    """
    empty = True
    with _open(path) as (name, stream):
        for number, raw in enumerate(iter(lambda: stream.readline(_LONGEST_LINE + 1), b""), start=1):
            _check_length(len(raw), name, number)
            line = _decode(raw, name, number).rstrip("\r\n")
            if line.strip():
                empty = False
                yield number, line
            elif keep_empty:
                yield number, ""
    if empty:
        raise InputError(f"{name} is empty")


def _check_length(length: int, name: str, number: int) -> None:
    if length > _LONGEST_LINE:
        raise InputError(f"{name}, line {number}: longer than {_LONGEST_LINE:,} bytes; are there no lines?")


def _decode(raw: bytes, name: str, first_line: int = 1) -> str:
    """UTF-8 text, without the mark that some programs put at a file's beginning.

    Raises:
        InputError: for other bytes, and for a zero byte; the message names the line.
    """
    place, reason = raw.find(b"\0"), "a NUL character"
    try:
        text = raw.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        place, reason = error.start, error.reason
    if place < 0:
        return text
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        reason = "it looks like UTF-16"
    raise InputError(f"{name}, line {first_line + raw.count(bytes([10]), 0, place)}: not UTF-8 text ({reason})")


def read_text(path: str | Path) -> str:
    """The text of a whole UTF-8 file, unpacked as in `read_lines`, or of standard input for "-".

    Raises:
        InputError: as `read_lines`.
    """
    with _open(path) as (name, stream):
        raw = stream.read(_LARGEST_TEXT + 1)
    if len(raw) > _LARGEST_TEXT:
        raise InputError(f"{name} has more than {_LARGEST_TEXT:,} bytes; it is read as a whole, so split it")
    if len(raw) > _LONGEST_LINE:
        lengths = list(map(len, raw.split(b"\n")))
        _check_length(max(lengths), name, 1 + lengths.index(max(lengths)))
    text = _decode(raw, name)
    if not text.strip():
        raise InputError(f"{name} is empty")
    return text.replace("\r\n", "\n")


def json_object(text: str) -> dict[str, Any] | None:
    """A JSON object; None for a text that is none, such as one that was cut off or damaged."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_record(line: str, where: str) -> dict[str, Any]:
    """The object in a line of JSON; `where` opens the message of errors.

    Raises:
        InputError: if the line is no JSON, or no object, or has a character that no text can have.
    """
    try:
        record = json.loads(line)
        if "\\u" in line:  # by their numbers, JSON can have characters that no text has
            dumped = json.dumps(record, ensure_ascii=False)
            dumped.encode()  # half a character cannot be
            if "\\u0000" in dumped.replace("\\\\", ""):
                raise ValueError("NUL is no character of texts")
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg})") from error
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {error.object[error.start]!r} is no character of texts") from error
    except ValueError as error:  # a number with thousands of digits
        raise InputError(f"{where}: {str(error).partition(';')[0]}") from error
    except RecursionError as error:
        raise InputError(f"{where}: nested too deep") from error
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
    try:
        header = next(rows)
        for row in rows:
            if len(row) < len(header):
                raise InputError(f"{path}, line {numbers[-1]}: {len(row)} columns, but the header has {len(header)}")
            yield numbers[-1], dict(zip(header, row, strict=False))
    except csv.Error as error:
        raise InputError(f"{path}, line {numbers[-1]}: {error}") from error


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
