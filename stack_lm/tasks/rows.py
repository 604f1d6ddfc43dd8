"""The rows of the files of a task, and their splits."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..core.errors import InputError, fail
from ..core.messages import counted, shortened
from ..text.files import check_file
from ..text.formats import FORMATS, is_table, read_rows

OwnKind = Literal["tagging", "transduction", "next_symbols", "classification", "language"]
_PAIR = ("input", "output")
_COLUMNS: dict[OwnKind, tuple[str, ...]] = {
    "tagging": _PAIR,
    "transduction": _PAIR,
    "next_symbols": _PAIR,
    "classification": ("string", "label"),
    "language": ("text",),
}
_SPLITS = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
# MLRegTest (van der Poel et al. 2024) has a file for each of these, and in each line a string, a tab and a label.
_PARTS = {"Dev": "validation", **{f"Test{part}": f"test_{part.lower()}" for part in ("SR", "SA", "LR", "LA")}}
_MEMBERSHIP = ("TRUE", "FALSE")
_SPACE = "\u2423"  # the blank among single characters
_LONGEST = 100_000  # maximum number of symbols of a string: all strings of a split are padded to the longest
TABLES = tuple(ending for known in FORMATS.values() if known.has_columns for ending in known.endings)


class TaskRow(NamedTuple):
    """A row of a file: its place, for messages; its symbols; the symbols of its target, if it has one."""

    where: str
    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """The rules for reading the rows of files."""

    kind: OwnKind | None
    symbols: Literal["words", "characters"]
    columns: tuple[str, ...] | None = None

    def rows(self, file: Path) -> tuple[tuple[str, ...], list[TaskRow]]:
        """The columns to read, by the names that tasks give them, and the non-empty rows.

        Raises:
            InputError: for a file that cannot be read, a missing column, or a value of the wrong kind.
        """
        roles: tuple[str, ...] = ()
        records = []
        unit, rows = read_rows(file, None, fail, None)
        for number, fields in rows:
            where = f"{file}, {unit} {number}"
            if not isinstance(fields, dict):
                string, _, label = (fields if isinstance(fields, str) else " ".join(fields)).partition("\t")
                if label in _MEMBERSHIP and self.kind in (None, "classification"):
                    roles = _COLUMNS["classification"]
                    records.append(TaskRow(where, tuple(string), (label,)))
                elif fields:
                    raise InputError(f"{file} is plain text; a task is a table: {', '.join(TABLES)}")
                continue
            roles = roles or self._roles(fields, file)
            names = zip(self.columns or roles, roles, strict=True)
            values = [self._value(fields, column, role, where) for column, role in names]
            records.append(TaskRow(where, values[0], values[1] if len(values) > 1 else ()))
        if not records:
            raise InputError(f"{file} has no rows")
        return roles, records

    def _roles(self, fields: Mapping[str, Any], file: Path) -> tuple[str, ...]:
        """The columns of a task of the kind, or of any kind if none is named."""
        allowed = list(dict.fromkeys(_COLUMNS.values() if self.kind is None else [_COLUMNS[self.kind]]))
        if self.columns is None:
            fitting = [columns for columns in allowed if all(column in fields for column in columns)]
        else:  # of two that are named, the second may have labels: that needs a kind
            fitting = [columns for columns in allowed if len(columns) == len(self.columns)]
            fitting = fitting[:1] if all(column in fields for column in self.columns) else []
        if len(fitting) > 1:
            kinds = ", ".join(kind for kind, columns in _COLUMNS.items() if columns in fitting)
            columns = " and ".join(map(",".join, fitting))
            raise InputError(f"{file} has the columns {columns}, of several kinds of task; set kind to one of {kinds}")
        if fitting:
            return fitting[0]
        needed = " or ".join(",".join(columns) for columns in allowed)
        kind = "a task" if self.kind is None else f"kind={self.kind}"
        given = "with columns=A,B they have other names"
        if self.columns is not None:
            given = f"columns={','.join(self.columns)} does not name them"
        raise InputError(f"{file} has the columns {shortened(', '.join(fields), 200)}; {kind} needs {needed}; {given}")

    def _value(self, fields: Mapping[str, Any], column: str, role: str, where: str) -> tuple[str, ...]:
        """The symbols in a column of a row; a label is one symbol."""
        value = fields.get(column)
        if value is None:
            raise InputError(f"{where} has no {column}")
        allowed: tuple[type, ...] = (str, int) if role == "label" else (str, list)
        if type(value) not in allowed:
            expected = "a string or an integer" if role == "label" else "a string, or a list of symbols"
            raise InputError(f"{where}: {column} must be {expected}; got {value!r:.60}")
        if role == "label":
            if not str(value).strip():
                raise InputError(f"{where}: the label is empty")
            return (str(value).strip(),)
        return self._symbols(value, f"{where}: {column}")

    def _symbols(self, value: str | list[Any], where: str) -> tuple[str, ...]:
        """The symbols of a string, or of a list of them."""
        if isinstance(value, list):
            for symbol in value:
                if not isinstance(symbol, str) or symbol.split() != [symbol]:
                    raise InputError(f"{where}: a symbol is a string without blanks; got {symbol!r:.60}")
            symbols = tuple(value)
        elif self.symbols == "characters":
            symbols = tuple(_SPACE if character.isspace() else character for character in value.strip())
        else:
            symbols = tuple(value.split())
        if len(symbols) > _LONGEST:
            raise InputError(f"{where} has {len(symbols):,} symbols; the limit is {_LONGEST:,}")
        return symbols


class Content(NamedTuple):
    """The content of a task's files."""

    kind: OwnKind
    parts: dict[str, list[TaskRow]]
    digest: str


def find_files(path: Path) -> dict[str, Path]:
    """The files of a task by split; a single file is for training, with those beside it if it is of MLRegTest."""
    if not path.is_dir():
        parts = {split: Path(str(path).replace("_Train.txt", f"_{part}.txt")) for part, split in _PARTS.items()}
        beside = {split: file for split, file in parts.items() if file != path and file.is_file()}
        return {"train": Path(check_file(path)), **beside}
    by_split: dict[str, Path] = {}
    for name, stems in _SPLITS.items():
        files = [
            file for file in sorted(path.iterdir()) if file.name.lower().partition(".")[0] in stems and is_table(file)
        ]
        if len(files) > 1:
            raise InputError(f"{path} has several {name} files: {', '.join(file.name for file in files)}")
        if files:
            by_split[name] = Path(check_file(files[0]))
    if "train" not in by_split:
        listed = ", ".join(sorted(file.name for file in path.iterdir())[:5]) or "nothing"
        raise InputError(f"{path} has no file train with one of the endings {', '.join(TABLES)}; it has {listed}")
    return by_split


def unread_tables(path: Path, files: Mapping[str, Path]) -> list[str]:
    """The names of tables in a task's folder that are not the file of a split."""
    if not path.is_dir():
        return []
    return sorted(file.name for file in path.iterdir() if is_table(file) and file not in files.values())


def stamps(files: Iterable[Path]) -> tuple[tuple[int, int], ...]:
    """Return each file's modification time and size."""
    return tuple((status.st_mtime_ns, status.st_size) for status in (file.stat() for file in files))


@lru_cache(maxsize=4)
def read(files: tuple[tuple[str, Path], ...], stamps: tuple[tuple[int, int], ...], reading: Reading) -> Content:
    """Read the files of a task: once for the trials of a process, unless they change."""
    columns: tuple[str, ...] = ()
    parts, digest = {}, hashlib.sha256()
    for name, file in files:
        file_columns, parts[name] = reading.rows(file)
        columns = columns or file_columns
        if file_columns != columns:
            before = f"{files[0][1]} has {','.join(columns)}"
            raise InputError(f"{file} has the columns {','.join(file_columns)}, and {before}")
        with open(file, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    tests = [row for name in parts if name.startswith("test_") for row in parts[name]]
    if tests:
        parts["test"] = tests
    kind = next(name for name, file_columns in _COLUMNS.items() if file_columns == columns)
    if reading.kind is not None:
        kind = reading.kind
    elif kind == "tagging":
        rows = [row for part in parts.values() for row in part]
        kind = "tagging" if all(len(row.source) == len(row.target) for row in rows) else "transduction"
    return Content(kind, parts, digest.hexdigest()[:16])


def held_out(
    content: Content, shares: Mapping[str, float], seed: int, *, replace: bool, test_from: int | None = None
) -> dict[str, list[TaskRow]]:
    """The rows of all splits: splits without a file are held out of the training rows.

    Labels keep their shares in each part. A row with a label or a symbol that no earlier row in the order of the draw
    has stays in training.

    Args:
        content: the content of the files.
        shares: the shares of the splits to hold out.
        seed: the seed of the draw.
        replace: whether symbols that are only read may be missing in training.
        test_from: test on all strings of at least this length, in place of a share.

    Raises:
        InputError: for impossible shares, or too few rows.
    """
    shares_left = {name: share for name, share in shares.items() if name not in content.parts}
    if sum(shares_left.values()) >= 1:
        raise InputError(f"validation and test must leave strings to train on; got {shares_left}")
    rows = content.parts["train"]
    where = rows[0].where.rpartition(", ")[0]
    long: list[TaskRow] = []
    if test_from is not None:
        if "test" in content.parts:
            raise InputError(f"test_from={test_from} is for a file without a test file beside it")
        long = [row for row in rows if len(row.source) >= test_from]
        rows = [row for row in rows if len(row.source) < test_from]
        if not (long and rows):
            which = "shorter" if long else "as long"
            raise InputError(f"test_from={test_from} needs shorter and longer strings; {where} has none {which}")
        del shares_left["test"]
    order = list(range(len(rows)))
    random.Random(f"{seed}/held out").shuffle(order)
    free = _without_the_first_of_each_symbol(rows, order, replace and content.kind != "language") if shares_left else []
    if content.kind == "classification":
        free.sort(key=lambda i: rows[i].target)  # of each label in the order of the draw
    numbers = {name: max(1, round(share * len(rows))) if share else 0 for name, share in shares_left.items()}
    wanted = " and ".join(f"{number:,} {name}" for name, number in numbers.items() if number)
    if sum(numbers.values()) >= len(rows):
        available = f"{counted(len(rows), 'row')}{unseparated(rows)}"
        raise InputError(f"{where} has {available}; too few to hold out {wanted} strings and leave one to train on")
    if sum(numbers.values()) > len(free):
        allowed = "" if replace or content.kind == "language" else " (unknown=replace allows others)"
        hint = f"have no symbol that training would then lack{unseparated(rows) or allowed}"
        raise InputError(f"{where}: of {wanted} strings to hold out, only {len(free):,} of {len(rows):,} {hint}")
    place: dict[int, str] = {}
    for name, number in numbers.items():
        place |= dict.fromkeys(_spread([i for i in free if i not in place], number), name)
    parts: dict[str, list[TaskRow]] = {name: [] for name in ("train", "validation", "test")}
    for i, row in enumerate(rows):
        parts[place.get(i, "train")].append(row)
    parts |= {name: part for name, part in content.parts.items() if name != "train"} | ({"test": long} if long else {})
    return {name: part for name, part in parts.items() if part}


def unseparated(rows: Sequence[TaskRow]) -> str:
    """A hint, for the end of a message, if each string has one symbol only, of several characters; else nothing."""
    longer = any(len(symbol) > 1 for row in rows for symbol in row.source)
    if longer and all(len(row.source) <= 1 for row in rows):
        return "; each string is one symbol: symbols=characters makes one of each character"
    return ""


def _without_the_first_of_each_symbol(rows: Sequence[TaskRow], order: Sequence[int], replace: bool) -> list[int]:
    free: list[int] = []
    seen: set[tuple[str, str]] = set()
    for i in order:
        symbols = {("output", symbol) for symbol in rows[i].target}
        if not replace:
            symbols |= {("input", symbol) for symbol in rows[i].source}
        if symbols <= seen:
            free.append(i)
        seen |= symbols
    return free


def _spread(items: Sequence[int], number: int) -> list[int]:
    """That many of the items, evenly spaced from the first to the last."""
    number = min(number, len(items))
    return [items[k * len(items) // number] for k in range(number)]
