"""The distribution of trials: those of a row run together, those of a table are dealt to shards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .config import Row, TaskConfig

# A shard may have so many times the trials of the mean shard if the seeds of a row stay together for it.
_UNEVEN = 1.25


@dataclass(frozen=True)
class Wanted:
    """A trial that a table wants."""

    number: int  # of the row, from 0
    row: Row
    config: TaskConfig

    @property
    def key(self) -> tuple[str, int]:
        """The key that identifies the trial in a directory of results."""
        return self.row.name, self.config.seed


def deal(trials: Sequence[Wanted], shards: int) -> list[list[Wanted]]:
    """The trials of each shard, the same for every machine that asks.

    Rows are dealt in turn, those of a preset after each other, so that each shard has about as many of a slow network
    as the others. Seeds of a row are split up only where shards would be uneven.

    Args:
        trials: by row and seed.
        shards: their number.
    """
    presets = list(dict.fromkeys(trial.row.preset for trial in trials))
    rows = [list(of_row) for _, of_row in itertools.groupby(trials, key=lambda trial: trial.number)]
    rows.sort(key=lambda of_row: presets.index(of_row[0].row.preset))
    for pieces in itertools.count(1):
        dealt: list[list[Wanted]] = [[] for _ in range(shards)]
        for i, unit in enumerate(unit for of_row in rows for unit in _split(of_row, pieces)):
            dealt[i % shards] += unit
        if pieces >= max(map(len, rows)) or max(map(len, dealt)) <= _UNEVEN * len(trials) / shards:
            break
    return [sorted(own, key=lambda trial: (trial.number, trial.config.seed)) for own in dealt]


def _split(trials: Sequence[Wanted], pieces: int) -> Iterator[Sequence[Wanted]]:
    """Trials in pieces of about one size; fewer pieces if there are fewer trials."""
    pieces = min(pieces, len(trials))
    for k in range(pieces):
        yield trials[k * len(trials) // pieces : (k + 1) * len(trials) // pieces]


def grouped(trials: Sequence[Wanted], size: Callable[[int], int]) -> list[list[Wanted]]:
    """Trials to train at once.

    Args:
        trials: by row.
        size: how many of a row, at most, by its number.
    """
    groups = []
    for number, found in itertools.groupby(trials, key=lambda trial: trial.number):
        of_row, most = list(found), size(number)
        groups += [of_row[start : start + most] for start in range(0, len(of_row), most)]
    return groups


def describe_group(trials: Sequence[Wanted]) -> str:
    """Trials of a row in a few words."""
    seeds = [trial.config.seed for trial in trials]
    if seeds == [*range(seeds[0], seeds[0] + len(seeds))] and len(seeds) > 1:
        said = f"{seeds[0]} to {seeds[-1]}"
    else:
        said = ", ".join(map(str, seeds))
    return f"{trials[0].row.name}, seed{'s' * (len(seeds) > 1)} {said}"
