"""One reader for texts of every format: plain text, JSON, tables and datasets of the hub, as a stream of records."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..core.checks import is_number
from ..core.errors import InputError, OnError, fail
from ..core.messages import check_name, explaining, nearest, shortened
from .files import LONGEST_LINE, UNPACKERS, check_file
from .formats import FORMATS, TEXT, TEXT_COLUMNS, Row, format_of, read_rows

HUB = ("hub", "hf")


class Record(NamedTuple):
    """A text and its source.

    Attributes:
        number: the number of the record in its file from 1: a line of text, or a row of a table below its header.
        text: the text in the requested column; "" for an empty line, and if the column is empty or null.
        fields: all columns as read, None for a missing value; empty for plain text and empty lines.
        source: the name of the file, for messages.
        unit: the unit of `number`: "line", "row", "item" of a JSON list, "tree" or "sentence".
        tokens: the words of a tree or a sentence of CoNLL-U, in which a word may have a no-break space; None for text.
    """

    number: int
    text: str
    fields: dict[str, Any]
    source: str
    unit: str = "line"
    tokens: tuple[str, ...] | None = None

    @property
    def where(self) -> str:
        """The record's place, to open messages: "reviews.csv, row 3"."""
        return f"{self.source}, {self.unit} {self.number}"

    @property
    def words(self) -> tuple[str, ...]:
        """The words as the file has them: of a text, those between white space."""
        return tuple(self.text.split()) if self.tokens is None else self.tokens


def read_records(
    source: str | Path,
    *,
    column: str | None = None,
    split: str = "train",
    keep_empty: bool = True,
    on_error: OnError | None = None,
    format_name: str | None = None,
    not_text: str | None = None,
) -> Iterator[Record]:
    """Read texts, one record at a time, from files of any format; no file is read as a whole but .json.

    Args:
        source: one of
            a path of UTF-8 text (.txt, and any ending not listed here), JSON lines (.jsonl, .ndjson), a JSON list of
            objects (.json), a table with a header (.csv, .tsv), .parquet, bracketed trees (.mrg, .tree, .ptb) or
            CoNLL-U (.conllu), whose words are the texts; each may be compressed (.gz, .bz2, .xz, .zst);
            a directory, for all its files of one of these formats; a pattern such as "texts/*.csv";
            "-", standard input: text, or JSON lines, or with `column` a table;
            "hub:NAME" or "hub:NAME:CONFIG", a dataset of the Hugging Face hub, streamed.
        column: the column with the text; None takes "text", "sentence", or the only column of text. Plain text is the
            one column "text".
        split: the split, for a dataset of the hub.
        keep_empty: also yield empty records.
        on_error: called with the error of a line or row that cannot be read, which is then left out, or, if there are
            several files, of a file; None raises the error.
        format_name: one of `FORMATS`, whatever the files' names end in.
        not_text: a column that is not taken for that of the text if none is named, such as one of labels.

    Raises:
        InputError: in one line that names the file and the line or row: if a file is missing, damaged, in another
            format than its name says, not UTF-8, or without text; or if the column is missing or not text.
    """
    name = str(source)
    on_error = on_error or fail
    scheme, _, dataset_name = name.partition(":")
    if scheme in HUB and not Path(name).exists():
        dataset = open_dataset(dataset_name, split)[0]
        yield from _records(enumerate(dataset, start=1), name, "row", column, keep_empty, on_error, not_text)
        return
    if format_name is not None:
        check_name("format", format_name, FORMATS)
    files = find_files(name)
    for file in files:
        try:
            unit, rows = read_rows(file, column, on_error, format_name)
            yield from _records(rows, check_file(file), unit, column, keep_empty, on_error, not_text)
        except InputError as error:
            if on_error is fail or len(files) == 1:
                raise
            on_error(error)


def find_files(source: str | Path) -> list[Path]:
    """The file itself, all files of a known format below a directory, or those that match a pattern, sorted by name.

    Hidden files are left out. Standard input, "-", is returned unchanged.

    Raises:
        InputError: if there is none, or files of several formats.
    """
    path = Path(source)
    if str(source) == "-" or path.is_file():
        return [path]
    if path.is_dir():
        below = (file for file in path.rglob("*") if not any(p.startswith(".") for p in file.relative_to(path).parts))
        files = sorted(file for file in below if format_of(file) and file.is_file())
        if not files:
            endings = ", ".join(ending for known in FORMATS.values() for ending in known.endings)
            packed = ", ".join(UNPACKERS)
            raise InputError(f"the directory {path} has no files that end in {endings}, also compressed ({packed})")
    elif is_pattern(source):
        files = sorted(Path(match) for match in glob.glob(str(source), recursive=True) if Path(match).is_file())
        if not files:
            raise InputError(f"no file matches {source}")
    else:
        check_file(path)  # raises an error with the reason
        return [path]
    formats = sorted({format_of(file) or TEXT for file in files})
    if len(formats) > 1:
        raise InputError(
            f"{source} has files of several formats ({', '.join(formats)}); name those to read, as in "
            f"'{path / '**' if path.is_dir() else path.parent}/*{FORMATS[formats[0]].endings[0]}'"
        )
    return files


def is_pattern(source: str | Path) -> bool:
    """True if a source is a pattern of names, such as "texts/*.csv", and not a file's own name."""
    return glob.has_magic(str(source)) and not os.path.lexists(source)


def open_dataset(name: str, split: str) -> tuple[Any, dict[str, Any]]:
    """A dataset of the Hugging Face hub, read as it is iterated (a `datasets.IterableDataset`), and its first row.

    Args:
        name: the name of the dataset, or a local directory, perhaps with a colon and a configuration.
        split: the split to read.

    Raises:
        InputError: if there is none, it cannot be reached, or is empty.
    """
    path, _, config = name.partition(":")
    if not path:
        raise InputError("hub: must be followed by the name of a dataset")
    from datasets import load_dataset, load_from_disk

    # The library raises its own errors, those of the network and ValueErrors.
    with explaining(f"cannot open the dataset {path!r} ({split})", Exception):
        if (Path(path) / "state.json").is_file():  # one that `save_to_disk` wrote; it is its own split
            dataset: Any = load_from_disk(path).to_iterable_dataset()
        else:
            dataset = load_dataset(path, config or None, split=split, streaming=True)
        first = next(iter(dataset.take(1)), None)
    if first is None:
        raise InputError(f"the dataset {path!r} ({split}) is empty")
    return dataset, first


def _records(
    rows: Iterable[Row],
    source: str,
    unit: str,
    column: str | None,
    keep_empty: bool,
    on_error: OnError,
    not_text: str | None,
) -> Iterator[Record]:
    """The records of one file."""
    chosen: str | None = None
    has_text = False
    has_words = any(known.has_words and known.unit == unit for known in FORMATS.values())
    for number, row in rows:
        if isinstance(row, str):
            text, fields = row, {}
            if row and chosen is None and column not in (None, TEXT):
                raise InputError(f"{source} is plain text, which has no columns; got the column {column!r}")
        else:
            chosen = chosen or choose_column(row, column, source, not_text)
            try:
                text, fields = _text(row, chosen, f"{source}, {unit} {number}"), row
            except InputError as error:
                on_error(error)
                continue
        if len(text) > LONGEST_LINE:
            on_error(InputError(f"{source}, {unit} {number}: a text of over {LONGEST_LINE:,} characters"))
            continue
        if text.strip():
            has_text = True
        elif keep_empty:
            text = ""
        else:
            continue
        yield Record(number, text, fields, source, unit, tuple(filter(None, text.split(" "))) if has_words else None)
    if not has_text:
        raise InputError(f"{source} has no text" + (f" in the column {chosen!r}" if chosen else ""))


def text_columns(names: Collection[Any], is_text: Callable[[Any], bool]) -> list[Any]:
    """The columns that may have the text, if none is requested: "text", or "sentence", or all others with texts.

    Args:
        names: the names of the columns.
        is_text: True if the column of that name has texts; asked only if no name decides.
    """
    named = [name for name in TEXT_COLUMNS if name in names]
    return named[:1] or [name for name in names if is_text(name)]


def choose_column(fields: Mapping[str, Any], column: str | None, source: str, not_text: str | None = None) -> str:
    """The column with the text, given the first record.

    Args:
        fields: the fields of that record.
        column: the requested column; None takes "text", or "sentence", or the only one whose value is text.
        source: the source of the record, for messages.
        not_text: a column to leave out if none is requested.

    Raises:
        InputError: if there is no such column; the message lists those there are.
    """
    columns = shortened(", ".join(fields), 200)
    if column is not None:
        if column in fields:
            return column
        near = nearest(column, fields)
        hint = f" (did you mean {near!r}?)" if near else ""
        raise InputError(f"{source} has no column {column!r}{hint}; its columns are {columns}")
    if not fields:
        raise InputError(f"{source} has no columns")
    others = {name: value for name, value in fields.items() if name != not_text}
    texts = text_columns(others, lambda name: isinstance(others[name], str) and not is_number(others[name]))
    if len(texts) != 1:
        problem = "several columns of text" if texts else "no column of text"
        names = shortened(", ".join(texts), 200) if texts else columns
        raise InputError(f"{source} has {problem}: name one of {names} by --column (training: data.column)")
    return texts[0]


def _text(fields: Mapping[str, Any], column: str, where: str) -> str:
    if column not in fields:
        raise InputError(f"{where}: no column {column!r}; it has {shortened(', '.join(fields), 200)}")
    text = fields[column]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InputError(f"{where}: the column {column!r} must be text; got {shortened(text, 60)!r}")
    if "\0" in text:
        raise InputError(f"{where}: not UTF-8 text (a NUL character)")
    return text
