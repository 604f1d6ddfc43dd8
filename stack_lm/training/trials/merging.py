"""Runs of one table, such as of some of its rows on different machines, and their merged results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ...core.console import print_note
from ...core.errors import InputError
from ..base_config import first_difference
from .config import Table
from .results import TABLE_FILE, Record, ResultsDirectory, Trials, differ_by_rounding, same_outcome


def has_trials(directory: str | Path) -> bool:
    """True if a directory has a table of trials."""
    return (Path(directory) / TABLE_FILE).is_file()


def _described(table: Table) -> dict[str, Any]:
    values = dataclasses.asdict(table)
    rows = {row.name: dataclasses.asdict(row) for row in table.rows}
    del values["output_dir"]
    return values | {"rows": rows}


def _check_config(first: tuple[Path, Record], path: Path, record: Record) -> None:
    before, now = ({**config, "seed": None} for config in (first[1]["config"], record["config"]))
    difference = first_difference(before, now)
    if difference is not None:
        key, one, other = difference
        raise InputError(
            f"{first[0]} and {path} have trials of {record['row']!r} in which {key} is {one!r} and {other!r}"
        )


def read_trials(*directories: str | Path) -> Trials:
    """Read the trials of runs of one table from their directories.

    Args:
        directories: the directories of the runs.

    Raises:
        InputError: if there are none, they are of different tables or configurations, or they disagree about a trial.
            A trial that was run twice, at once with other trials and so with other rounding, counts once, with a note.
    """
    parts = [ResultsDirectory(directory) for directory in directories]
    tables = [part.table() for part in parts]
    if len(parts) == 1:
        return parts[0]
    origins: dict[tuple[str, int], tuple[Path, Record]] = {}
    rows: dict[str, tuple[Path, Record]] = {}
    for part, table in zip(parts, tables, strict=True):
        difference = first_difference(_described(tables[0]), _described(table))
        if difference is not None:
            key, before, now = difference
            raise InputError(
                f"{parts[0].path} and {part.path} are of different tables: {key} is {before!r} and {now!r}"
            )
        for record in part.records:
            _check_config(rows.setdefault(record["row"], (part.path, record)), part.path, record)
            origin, first = origins.setdefault((record["row"], record["seed"]), (part.path, record))
            if not same_outcome(first, record):
                trial = f"seed {record['seed']} of {record['row']!r}"
                if not differ_by_rounding(first, record):
                    raise InputError(
                        f"{origin} and {part.path} have different results of one trial, {trial}; remove it from one of "
                        "them"
                    )
                print_note(f"{origin} and {part.path} both ran {trial}, with other rounding; {origin}'s counts")
    return Trials(tables[0], [record for _, record in origins.values()])
