"""Shards: parts of a table's trials that run separately, such as on different machines; and their merged results.

output_dir/shards/I-of-N  the directory of shard I, as that of a whole run
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from ..base_config import first_difference
from .config import Table
from .results import TABLE_FILE, Record, ResultsDirectory, Trials, same_outcome

SHARDS = "shards"


@dataclasses.dataclass(frozen=True)
class Shard:
    """A part of the trials.

    Attributes:
        number: its number, from 1.
        of: total number of parts.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse a shard such as "1/4".

        Raises:
            InputError: if it is not a shard.
        """
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise InputError(f"a shard is its number, from 1, and how many there are, as 1/4; got {text!r}")
        return cls(int(match[1]), int(match[2]))

    def directory(self, output_dir: str) -> Path:
        """The directory of the shard's results.

        Raises:
            InputError: if there are results of a whole run, or of another number of shards.
        """
        if (Path(output_dir) / TABLE_FILE).is_file():
            raise InputError(f"{output_dir} has the trials of a run without shards; name another output_dir")
        others = {of for _, of in _shards(output_dir)} - {self.of}
        if others:
            raise InputError(
                f"{output_dir} has shards of {min(others)}, not of {self.of}; give --shard I/{min(others)}, or name "
                "another output_dir"
            )
        return Path(output_dir) / SHARDS / f"{self.number}-of-{self.of}"


def has_shards(directory: str | Path) -> bool:
    """True if shards have been run in a directory."""
    return bool(_shards(directory))


def has_trials(directory: str | Path) -> bool:
    """True if a directory has a table of trials, or shards."""
    return (Path(directory) / TABLE_FILE).is_file() or has_shards(directory)


def _shards(directory: str | Path) -> list[tuple[Path, int]]:
    """The directories of shards, in order, each with its total number of shards."""
    shards = []
    for path in (Path(directory) / SHARDS).glob("*-of-*"):
        name = re.fullmatch(r"(\d+)-of-(\d+)", path.name)
        if name is not None and (path / TABLE_FILE).is_file():
            shards.append((int(name[1]), path, int(name[2])))
    return [(path, of) for _, path, of in sorted(shards)]


def merge_trials(parts: Sequence[ResultsDirectory]) -> Trials:
    """The trials of several directories of one table.

    Raises:
        InputError: if they are of different tables or configurations, or disagree about a trial.
    """
    table = parts[0].table()
    origins: dict[tuple[str, int], tuple[Path, Record]] = {}
    rows: dict[str, tuple[Path, Record]] = {}
    for part in parts:
        difference = first_difference(_described(table), _described(part.table()))
        if difference is not None:
            key, before, now = difference
            raise InputError(
                f"{parts[0].path} and {part.path} are of different tables: {key} is {before!r} and {now!r}"
            )
        for record in part.records:
            _check_config(rows.setdefault(record["row"], (part.path, record)), part.path, record)
            origin, first = origins.setdefault((record["row"], record["seed"]), (part.path, record))
            if not same_outcome(first, record):
                raise InputError(
                    f"{origin} and {part.path} have different results of one trial, seed {record['seed']} of "
                    f"{record['row']!r}; remove it from one of them"
                )
    return Trials(table, [record for _, record in origins.values()])


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
    """Read the trials of runs from their directories, including shards.

    Args:
        directories: the directories of the runs.

    Raises:
        InputError: if there are none, or they are incompatible.
    """
    parts = []
    for directory in directories:
        path, shards = Path(directory), _shards(directory)
        numbers = sorted({of for _, of in shards})
        if len(numbers) > 1:
            raise InputError(
                f"{path} has shards of {' and of '.join(map(str, numbers))}; move those of one number elsewhere"
            )
        if (path / TABLE_FILE).is_file() or not shards:
            parts.append(ResultsDirectory(path))
        parts += [ResultsDirectory(shard) for shard, _ in shards]
    for part in parts:
        part.table()
    return parts[0] if len(parts) == 1 else merge_trials(parts)
