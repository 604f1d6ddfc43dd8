"""Files of text as bytes and as lines: decompressed while they are read, checked, and decoded."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..errors import InputError, OnError, fail
from ..messages import similar_path

STANDARD_INPUT = "standard input"
# The longest line, in bytes: a longer one is not a sentence or a record, but a file without line breaks.
LONGEST_LINE = 2**24
_BLOCK = 2**20  # bytes read and decoded at a time
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


UNPACKERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}
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
    if not Path(path).is_file():
        raise InputError(f"{path} {_why_no_file(Path(path))}")
    return str(path)


def _why_no_file(path: Path) -> str:
    if path.is_dir():
        return "is a directory, not a file"
    if path.exists():
        return "is not a regular file; name - to read standard input"
    if path.is_symlink():
        return "is a symbolic link that leads nowhere"
    return "does not exist" + similar_path(path)


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


def line_blocks(name: str, stream: Any, on_error: OnError = fail) -> Iterator[tuple[int, list[str]]]:
    """The lines of a UTF-8 text without their ends, many at a time, with the number of the first of them.

    Lines end in LF or CRLF; CR alone ends those of a text without any LF. A mark at the beginning (BOM) is left out.

    Args:
        name: the name of the text, for messages.
        stream: its bytes.
        on_error: called with the error of a line that is not text, which is then left out.

    Raises:
        InputError: for a line of over 16 MiB, and for a file of another kind.
    """
    number = 1
    waiting: list[bytes] = []  # pieces of a line that has not ended yet
    while raw := stream.read1(_BLOCK):
        end = raw.rfind(b"\n")
        waiting.append(raw if end < 0 else raw[:end])
        block = waiting
        if end < 0:
            check_length(sum(map(len, waiting)), name, number)
            continue
        waiting = [raw[end + 1 :]] if end + 1 < len(raw) else []
        yield from _decode_lines(b"".join(block), name, number, on_error)
        number += sum(piece.count(b"\n") for piece in block) + 1
    if waiting:
        last = b"".join(waiting)
        if number == 1:
            last = last.replace(b"\r", b"\n")
        yield from _decode_lines(last.removesuffix(b"\n"), name, number, on_error)


def _kind(beginning: bytes) -> str | None:
    """The kind of a file that is not text."""
    return next((kind for mark, kind in _KINDS.items() if beginning.startswith(mark)), None)


def _decode_lines(block: bytes, name: str, number: int, on_error: OnError) -> Iterator[tuple[int, list[str]]]:
    """The lines of some bytes, together if all are text, otherwise one by one."""
    try:
        if len(block) > LONGEST_LINE:
            lengths = list(map(len, block.split(b"\n")))
            check_length(max(lengths), name, number + lengths.index(max(lengths)))
        text = decode(block, name, number)
    except InputError as error:
        if on_error is fail or (number == 1 and _kind(block)):
            raise
        if b"\n" not in block:
            on_error(error)
            return
        for i, line in enumerate(block.split(b"\n")):
            yield from _decode_lines(line, name, number + i, on_error)
        return
    lines = text.split("\n")
    yield number, [line.rstrip("\r") for line in lines] if "\r" in text else lines


def check_length(length: int, name: str, number: int) -> None:
    """Reject a line that is too long for text.

    Raises:
        InputError: that names it.
    """
    if length > LONGEST_LINE:
        raise InputError(f"{name}, line {number}: longer than {LONGEST_LINE:,} bytes; are there no lines?")


def decode(raw: bytes, name: str, first_line: int = 1) -> str:
    """UTF-8 text, without the byte order mark that some programs put at a file's beginning.

    Raises:
        InputError: for other bytes, and for a zero byte; the message names the line, or the kind of the file.
    """
    place, reason = raw.find(b"\0"), "a NUL character"
    try:
        text = raw.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        place, reason = error.start, error.reason
    if place < 0:
        return text
    kind = _kind(raw) if first_line == 1 else None
    if kind is not None:
        raise InputError(f"{name} is not UTF-8 text: {kind}")
    hint = "" if raw[place] == 0 else "; if it is Latin-1, convert it: iconv -f latin1 -t utf8"
    raise InputError(f"{name}, line {first_line + raw.count(bytes([10]), 0, place)}: not UTF-8 text ({reason}){hint}")
