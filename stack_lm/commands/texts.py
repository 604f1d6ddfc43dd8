"""Read texts from files for commands, and report those without a result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..console import Problems, print_note
from ..data.records import Record, read_records
from ..data.text import has_several_sentences
from ..errors import InputError

_LISTED = 10  # numbers of records in a note


def add_column(parser: argparse.ArgumentParser) -> None:
    """Add the option for the text column of a table."""
    parser.add_argument(
        "--column",
        metavar="NAME",
        help="column with the text, in tables and JSON (default: text, or sentence, or the only column of text)",
    )


def add_keep_going(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--keep-going`, which leaves out unreadable parts of the input; the help calls them `what`."""
    parser.add_argument(
        "--keep-going", action="store_true", help=f"leave out {what} that cannot be read, and fail at the end"
    )


def read_texts(source: str, column: str | None, problems: Problems) -> list[Record | None]:
    """Read all records of a file in order, including empty ones; None for one that could not be read.

    Raises:
        InputError: as `read_records`, except for the records that `problems` leaves out.
    """
    records: list[Record | None] = []

    def leave_out(error: InputError) -> None:
        problems.on_error(error)
        records.append(None)

    for record in read_records(source, column=column, on_error=leave_out):
        records.append(record)
    return records


def note_without_result(
    records: Sequence[Record | None], unknown: Sequence[int], knows: str = "the model knows"
) -> None:
    """Print one note on the records that are empty, and those without a word that the model knows.

    Args:
        records: all records of a source.
        unknown: the indices of those without a known word.
        knows: the subject and verb of the note's clause, such as "the model knows".
    """
    there = [record for record in records if record is not None]
    several = len({record.source for record in there}) > 1
    of_unknown = [record for place in unknown if (record := records[place]) is not None]
    parts = [
        _these([record for record in there if not record.text], "is empty", "are empty", several),
        _these(of_unknown, f"has no word that {knows}", f"have no word that {knows}", several),
    ]
    if any(parts):
        print_note("; ".join(filter(None, parts)))


def note_several_sentences(records: Sequence[Record | None]) -> None:
    """Print one note on the records that seem to have several sentences, which a model would read as one."""
    there = [record for record in records if record is not None]
    found = [record for record in there if has_several_sentences(record.text)]
    if found:
        sources = len({record.source for record in there}) > 1
        rows = _these(found, "seems to have several sentences", "seem to have several sentences", sources)
        print_note(f"{rows}; a model reads a row as one sentence")


def _these(records: Sequence[Record], one: str, many: str, several: bool) -> str:
    """Name the first records with their number and a verb for one or many; "" for none."""
    if not records:
        return ""
    first = records[0]
    if len(records) == 1:
        place = first.where if several else f"{first.unit} {first.number}"
        return f"{place} {one}"
    names = ", ".join(record.where if several else str(record.number) for record in records[:_LISTED])
    more = ", ..." if len(records) > _LISTED else ""
    return f"{len(records):,} {first.unit}s {many} ({names}{more})"
