"""Files of text as bytes and as lines: decompressed while they are read, checked, and decoded."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..core.errors import InputError, OnError, fail
from ..core.messages import similar_path

STANDARD_INPUT = "standard input"
# The longest line, in characters: a longer one is not a sentence or a record, but a file without line breaks.
LONGEST_LINE = 2**24
_MARK = "\ufeff"  # the byte order mark, which files that were joined have in their middle
_SURROGATE = re.compile("[\ud800-\udfff]")
# The first bytes of other kinds of files, and advice for each.
_KINDS = {
    b"\xff\xfe": "it looks like UTF-16; save it as UTF-8",
    b"\xfe\xff": "it looks like UTF-16; save it as UTF-8",
    b"PAR1": "it is a Parquet file; rename it to .parquet",
    b"\x1f\x8b": "it is compressed by gzip; rename it to .gz",
    b"BZh": "it is compressed by bzip2; rename it to .bz2",
    b"\xfd7zXZ\0": "it is compressed by xz; rename it to .xz",
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd; rename it to .zst",
    b"PK\x03\x04": "it is a ZIP archive, such as a spreadsheet; save it as .csv",
    b"%PDF-": "it is a PDF",
    b"SQLite format 3\0": "it is an SQLite database",
}


def _open_zst(path: str | Path, mode: str) -> Any:
    import pyarrow

    return pyarrow.input_stream(str(path), compression="zstd")


UNPACKERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _open_zst}
"""Functions that open packed files, by their last ending."""


def check_file(path: str | Path) -> str:
    """The name of a file that can be read, for messages; "-" is standard input.

    Raises:
        InputError: if it is missing, or not a regular file.
    """
    if str(path) == "-":
        return STANDARD_INPUT
    if not str(path):
        raise InputError("the name of a file is empty")
    if Path(path).is_dir():
        raise InputError(f"{path} is a directory, not a file")
    if not Path(path).is_file():
        other = "is not a regular file; name - to read standard input"
        raise InputError(f"{path} {other if Path(path).exists() else 'does not exist' + similar_path(path)}")
    return str(path)


@contextmanager
def open_file(path: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The file's name for messages, and its bytes, decompressed according to its ending; "-" is standard input.

    Raises:
        InputError: if it is missing, not a regular file, or damaged; also for such an error while it is read.
    """
    name = check_file(path)
    if name == STANDARD_INPUT:
        yield name, sys.stdin.buffer
        return
    try:
        with UNPACKERS.get(Path(path).suffix.lower(), open)(path, "rb") as stream:
            yield name, stream
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read {name}: {reason}") from error


def numbered_lines(path: str | Path, on_error: OnError = fail) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 text without their ends (LF, CRLF or CR), each with its number from 1.

    Byte order marks are removed; inside a line, one is a space, because another file begins there.

    Args:
        path: the path of a file, unpacked as in `open_file`.
        on_error: called with the error of a line that is not text, which is then left out.

    Raises:
        InputError: as `open_file`; for a line of over 16 Mi characters, and for a file of another kind.
    """
    with open_file(path) as (name, stream):
        # What is not UTF-8 becomes surrogates, so that one broken line does not hide the others.
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape")
        kind = None
        try:
            for number, line in enumerate(iter(lambda: text.readline(LONGEST_LINE + 1), ""), 1):
                if number == 1:
                    kind = _kind(line.encode("utf-8", "surrogateescape"))
                if len(line) > LONGEST_LINE:
                    raise InputError(f"{name}, line {number}: longer than {LONGEST_LINE:,} characters")
                if "\0" in line or not (line.isascii() or _SURROGATE.search(line) is None):
                    error = _no_text(line.encode("utf-8", "surrogateescape"), name, number, kind)
                    (fail if kind else on_error)(error)
                else:
                    if _MARK in line:
                        line = line.lstrip(_MARK).replace(_MARK, " ")
                    yield number, line.removesuffix("\n")
        finally:
            text.detach()  # or standard input would be closed


def decode(raw: bytes, name: str) -> str:
    """UTF-8 text, without the byte order marks that some programs put at a file's beginning.

    Raises:
        InputError: for other bytes, and for a zero byte; the message names the line, or the kind of the file.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise _no_text(raw, name, 1, _kind(raw))
    return text.replace(_MARK, "")


def _kind(beginning: bytes) -> str | None:
    """The kind of a file that is not text."""
    return next((kind for mark, kind in _KINDS.items() if beginning.startswith(mark)), None)


def _no_text(raw: bytes, name: str, first_line: int, kind: str | None) -> InputError:
    """The error for bytes that are not UTF-8, or have a zero byte."""
    if kind is not None:
        return InputError(f"{name} is not UTF-8 text: {kind}")
    place, reason, hint = raw.find(b"\0"), "a NUL character", ""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        place, reason = error.start, error.reason
        hint = "; if it is Latin-1, convert it: iconv -f latin1 -t utf8"
    line = first_line + raw.count(b"\n", 0, place)
    return InputError(f"{name}, line {line}: not UTF-8 text ({reason}){hint}")
