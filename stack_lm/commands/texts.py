"""The texts that commands read from files, and what they say of those without a result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..console import Problems, print_note
from ..data.records import Record, read_records
from ..errors import InputError

_LISTED = 10  # numbers of records in a note


def add_column(parser: argparse.ArgumentParser) -> None:
    """The column of a table that has the texts."""
    parser.add_argument(
        "--column",
        metavar="NAME",
        help="of a table or JSON, the column with the text; by default text, or sentence, or the only one of text",
    )


def add_keep_going(parser: argparse.ArgumentParser, what: str) -> None:
    """Whether unreadable parts of the input, which the help calls `what`, stop the command."""
    parser.add_argument(
        "--keep-going", action="store_true", help=f"leave out {what} that cannot be read, and fail at the end"
    )


def read_texts(source: str, column: str | None, problems: Problems) -> list[Record | None]:
    """All records of a file, empty ones too, in their places; None in the place of one that could not be read.

    Raises:
        InputError: as `read_records`, but for the records that `problems` leaves out.
    """
    records: list[Record | None] = []
    skip = problems.on_error

    def leave_out(error: InputError) -> None:
        if skip is not None:
            skip(error)
        records.append(None)

    for record in read_records(source, column=column, on_error=None if skip is None else leave_out):
        records.append(record)
    return records


def note_without_result(
    records: Sequence[Record | None], unknown: Sequence[int], knows: str = "the model knows"
) -> None:
    """Say in one note which records are empty, and which have no word that the model knows.

    Args:
        records: all of a source.
        unknown: the places of those without a known word.
        knows: who would have to know one.
    """
    there = [record for record in records if record is not None]
    empty = [record for record in there if not record.text]
    of_unknown = [record for place in unknown if (record := records[place]) is not None]
    several = len({record.source for record in there}) > 1
    parts = []
    for found, one, many in (
        (empty, "is empty", "are empty"),
        (of_unknown, *(f"{has} no word that {knows}" for has in ("has", "have"))),
    ):
        if found:
            names = ", ".join(record.where if several else str(record.number) for record in found[:_LISTED])
            more = ", ..." if len(found) > _LISTED else ""
            unit = found[0].unit if len(found) == 1 else f"{found[0].unit}s"
            parts.append(f"{len(found):,} {unit} {one if len(found) == 1 else many} ({names}{more})")
    if parts:
        print_note("; ".join(parts))
