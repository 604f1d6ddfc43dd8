"""Two runs of a table side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.errors import InputError
from .config import Row
from .results import Trials, measure


@dataclass(frozen=True)
class ComparedRow:
    """A row of both runs.

    Attributes:
        row: as in the first run.
        values: the first and second run's value of each measure, fractions as in the results; None without trials.
        seeds: the seeds of the finished trials of each run.
    """

    row: Row
    values: dict[str, tuple[float | None, float | None]]
    seeds: tuple[list[int], list[int]]

    def difference(self, name: str) -> float | None:
        """The second run's value of a measure minus the first's; None if either is missing."""
        first, second = self.values[name]
        return None if first is None or second is None else second - first


@dataclass(frozen=True)
class Comparison:
    """Two runs.

    Attributes:
        rows: common to both.
        only: the names of the rows only in the first run, and only in the second.
    """

    rows: list[ComparedRow]
    only: tuple[list[str], list[str]]


def compare(first: Trials, second: Trials) -> Comparison:
    """Match the rows of two runs by name.

    Raises:
        InputError: if their columns or measures differ, or no row is in both.
    """
    tables = first.table(), second.table()
    for key in ("columns", "measures"):
        one, other = (getattr(table, key) for table in tables)
        if one != other:
            raise InputError(f"the runs are of different tables: their {key} are {_listed(one)} and {_listed(other)}")
    own, others = ({row.name: row for row in table.rows} for table in tables)
    rows = []
    for name, row in own.items():
        if name in others:
            records = first.of_row(row), second.of_row(others[name])
            values = {key: (measure(records[0], key), measure(records[1], key)) for key in tables[0].measures}
            seeds = [record["seed"] for record in records[0]], [record["seed"] for record in records[1]]
            rows.append(ComparedRow(row, values, seeds))
    if not rows:
        raise InputError("the runs are of different tables: no row is in both")
    return Comparison(
        rows, ([name for name in own if name not in others], [name for name in others if name not in own])
    )


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values))
