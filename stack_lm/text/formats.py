"""The formats of files with texts: the format of each file, and its records, column by column."""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import InputError, OnError
from ..core.messages import explaining, shortened
from .brackets import looks_like_trees, without_remarks, words_of_trees
from .conllu import TaggedWords, sentences_of_conllu
from .files import LONGEST_LINE, UNPACKERS, check_file, numbered_lines, open_file
from .plain import json_object, json_record, json_value, read_text

TEXT = "text"
TEXT_COLUMNS = (TEXT, "sentence")  # the names that are taken if no column is requested
_ROWS = 1024  # of a Parquet file, read at a time
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon"}

Row = tuple[int, dict[str, Any] | str]
"""A record's number from 1, and its columns; or, in a format without columns, its line or its words, or ""."""


class Lines(NamedTuple):
    """The lines of a file.

    Attributes:
        name: the name of the file, for messages.
        numbered: each line with its number from 1.
        first: the first line that is not empty.
        on_error: called with the error of a record, which is then left out.
    """

    name: str
    numbered: Iterable[tuple[int, str]]
    first: str
    on_error: OnError


class Format(NamedTuple):
    """A format of files: the endings of their names, the unit of their records for messages, and their reader.

    The reader reads lines or whole files. Plain text, trees and CoNLL-U have no column to choose; the latter two have
    words, which single spaces separate.
    """

    endings: tuple[str, ...]
    unit: str
    read_lines: Callable[[Lines], Iterator[Row]] | None = None
    read_file: Callable[[str | Path, OnError], Iterator[Row]] | None = None
    has_columns: bool = True
    has_words: bool = False


def format_of(path: str | Path) -> str | None:
    """The name of a file's format by its ending, before one such as .gz; None for any other ending."""
    name = Path(path).name.lower()
    for packed in UNPACKERS:
        name = name.removesuffix(packed)
    return next((key for key, known in FORMATS.items() if name.endswith(known.endings)), None)


def is_table(path: str | Path) -> bool:
    """True if a file has columns, by its ending."""
    name = format_of(path)
    return name is not None and FORMATS[name].has_columns


def cell_value(text: str) -> str | int | None:
    """The value of a table's cell, which does not record its type: a whole number, a text, or None if it is empty."""
    return int(text) if text.isdecimal() else text or None


def read_rows(
    path: str | Path, column: str | None, on_error: OnError, format_name: str | None
) -> tuple[str, Iterator[Row]]:
    """The unit of a file's records, and the records.

    Args:
        path: the path of a file; "-" is standard input, whose format its first line shows.
        column: the requested column.
        on_error: called with the error of a record, which is then left out.
        format_name: the format, in place of that of the ending.

    Raises:
        InputError: while it is read, for any error in the file.
    """
    known = None if format_name is None else FORMATS[format_name]
    if known is None and str(path) != "-":
        known = FORMATS[format_of(path) or TEXT]
    if known is not None and known.read_file is not None:
        return known.unit, known.read_file(path, on_error)
    lines = _open_lines(path, on_error)
    known = known or FORMATS[_format_by_content(lines.first, column)]
    if known in (FORMATS[TEXT], FORMATS["csv"]) and json_object(lines.first):
        raise InputError(f"{lines.name} holds JSON objects; rename it to end in .jsonl")
    if format_name is None and known is FORMATS[TEXT] and looks_like_trees(lines.first):
        warnings.warn(
            f"{lines.name} looks like bracketed trees, whose brackets are read as words; in a file that ends in .mrg "
            "the words of the trees are read alone",
            stacklevel=2,
        )
    assert known.read_lines is not None
    return known.unit, known.read_lines(lines)


def _format_by_content(first: str, column: str | None) -> str:
    if json_object(first):
        return "jsonl"
    cells = {name.strip(' "') for delimiter in _DELIMITERS for name in first.split(delimiter)}
    return "csv" if column is not None and (column != TEXT or column in cells) else TEXT


def _open_lines(path: str | Path, on_error: OnError) -> Lines:
    numbered = numbered_lines(path, on_error)
    begun: list[tuple[int, str]] = []
    for number, line in numbered:
        begun.append((number, line))
        if line.strip():
            return Lines(check_file(path), chain(begun, numbered), line, on_error)
    raise InputError(f"{check_file(path)} is empty")


def _read_conllu(lines: Lines) -> Iterator[Row]:
    for sentence in sentences_of_conllu(lines.numbered, lines.name, lines.on_error):
        yield sentence.number, " ".join(sentence.words)


def read_tagged_conllu(path: str | Path, on_error: OnError) -> Iterator[TaggedWords]:
    """The words of each sentence of a CoNLL-U file, and their universal tags; None for a sentence that lacks one.

    Args:
        path: the path of the file, which may be compressed.
        on_error: called with the error of a sentence, which is then left out.

    Raises:
        InputError: if the file cannot be read.
    """
    lines = _open_lines(path, on_error)
    return sentences_of_conllu(lines.numbered, lines.name, lines.on_error)


def _read_trees(path: str | Path, on_error: OnError) -> Iterator[Row]:
    text = without_remarks(read_text(path))
    for number, words in words_of_trees(text, check_file(path), on_error):
        yield number, " ".join(words)


def _read_jsonl(lines: Lines) -> Iterator[Row]:
    for number, line in lines.numbered:
        if not line.strip():
            yield number, ""
            continue
        try:
            record = json_record(line, f"{lines.name}, line {number}")
        except InputError as error:
            lines.on_error(error)
        else:
            yield number, record


def _read_json(path: str | Path, on_error: OnError) -> Iterator[Row]:
    text, name = read_text(path), check_file(path)
    if json_object(text.lstrip().partition("\n")[0]) and "\n" in text.strip():
        raise InputError(f"{name} has a JSON object on each line; rename it to end in .jsonl")
    records = json_value(text, name)
    if not isinstance(records, list):
        raise InputError(f"{name}: a JSON list of objects is needed; got {shortened(text, 60)!r}")
    for number, record in enumerate(records, start=1):
        if isinstance(record, dict):
            yield number, record
        else:
            on_error(InputError(f"{name}, item {number}: a JSON object is needed; got {shortened(record, 60)!r}"))


def _read_csv(lines: Lines) -> Iterator[Row]:
    return _read_table(lines, next((character for character in _DELIMITERS if character in lines.first), ","))


def _read_tsv(lines: Lines) -> Iterator[Row]:
    """Many programs write tabs without quotation marks around fields: one in a line with all fields is text, unless it
    opens the last of them and the next line is no row.
    """
    n_tabs = lines.first.count("\t")

    def numbered() -> Iterator[tuple[int, str]]:
        is_open = False  # a field on several lines
        for (number, line), (_, after) in pairwise(chain(lines.numbered, [(0, "")])):
            *fields, last = line.split("\t")
            if not is_open and len(fields) == n_tabs:
                is_open = bool(after and after.count("\t") != n_tabs and last[:1] == '"' and last.count('"') % 2)
                yield number, "\t".join([*map(_quoted, fields), last if is_open else _quoted(last)])
            else:
                is_open ^= line.count('"') % 2 == 1
                yield number, line

    return _read_table(lines._replace(numbered=numbered()), "\t")


def _quoted(field: str) -> str:
    """A field in quotation marks, if it has one but is not in them already."""
    if '"' not in field or _QUOTED.fullmatch(field):
        return field
    return '"' + field.replace('"', '""') + '"'


def _read_table(lines: Lines, delimiter: str) -> Iterator[Row]:
    """The rows below the header. A row may be on several lines: a field in quotation marks can have line breaks."""
    end = 0  # the last line of the row that was read last

    def text() -> Iterator[str]:
        nonlocal end
        for number_of_line, line in lines.numbered:
            end = number_of_line
            yield line + "\n"

    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    rows = csv.reader(text(), delimiter=delimiter, strict=True)
    number = start = 0
    try:
        header = [column.strip() for column in next(filter(None, rows))]
        _check_columns(header, lines.name)
        start = end + 1
        for number, row in enumerate(rows, start=1):
            if not row:
                yield number, ""
            elif len(row) == len(header):
                yield number, dict(zip(header, row, strict=True))
            else:
                where = f"{lines.name}, row {number} (line {start})"
                hint = f"; a text with a {_DELIMITERS[delimiter]} must be in quotation marks"
                message = f"{where}: {len(row)} columns, but the header has {len(header)}"
                lines.on_error(InputError(message + hint if len(row) > len(header) else message))
            start = end + 1
    except csv.Error as error:
        where = f"row {number + 1} (line {start})" if start else "the header"
        hint = "a quotation mark opens a field that none closes, or is not doubled inside one"
        raise InputError(f"{lines.name}, {where}: {hint} ({error})") from error
    if not number:
        raise InputError(f"{lines.name} has a header and no rows")


def cells_of(text: str, delimiter: str) -> list[list[str]]:
    """The cells of a table of symbols, without the white space around them; empty lines are left out."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    return [[cell.strip() for cell in row] for row in csv.reader(text.split("\n"), delimiter=delimiter) if row]


def _check_columns(names: Sequence[str], source: str) -> None:
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    if twice is not None:
        raise InputError(f"{source} has two columns named {twice!r}")


def _read_parquet(path: str | Path, on_error: OnError) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    name = check_file(path)
    whole: Any = name
    if Path(name).suffix.lower() in UNPACKERS:
        with open_file(path) as (_, stream):
            whole = pyarrow.BufferReader(stream.read())
    unreadable = explaining(
        f"{name} is not a readable Parquet file", OSError, pyarrow.ArrowException, UnicodeDecodeError
    )
    with unreadable, pyarrow.parquet.ParquetFile(whole) as file:
        _check_columns(file.schema_arrow.names, name)
        if not file.metadata.num_rows:
            raise InputError(f"{name} has no rows")
        rows = chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(_ROWS))
        yield from enumerate(rows, start=1)


FORMATS: dict[str, Format] = {
    TEXT: Format((".txt",), "line", lambda lines: iter(lines.numbered), has_columns=False),
    "jsonl": Format((".jsonl", ".ndjson"), "line", _read_jsonl),
    "json": Format((".json",), "item", read_file=_read_json),
    "csv": Format((".csv",), "row", _read_csv),
    "tsv": Format((".tsv",), "row", _read_tsv),
    "parquet": Format((".parquet",), "row", read_file=_read_parquet),
    "trees": Format((".mrg", ".tree", ".ptb"), "tree", read_file=_read_trees, has_columns=False, has_words=True),
    "conllu": Format((".conllu",), "sentence", _read_conllu, has_columns=False, has_words=True),
}
"""All formats by name."""
