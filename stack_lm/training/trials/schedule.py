"""The distribution of trials: groups of one row train together; a table's trials are dealt to shards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .config import Row, TaskConfig

# To keep the seeds of a row together, a shard may exceed the mean number of trials by this factor.
_UNEVEN = 1.25


@dataclass(frozen=True)
class PlannedTrial:
    """A trial of a table."""

    number: int  # of the row, from 0
    row: Row
    config: TaskConfig

    @property
    def key(self) -> tuple[str, int]:
        """The key that identifies the trial in a directory of results."""
        return self.row.name, self.config.seed


def deal(trials: Sequence[PlannedTrial], shards: int) -> list[list[PlannedTrial]]:
    """The trials of each shard, identical on every machine.

    Rows are dealt in turn, grouped by preset, so that slow networks are spread evenly over the shards. Seeds of a row
    are split only if shards would otherwise be uneven.

    Args:
        trials: the trials, by row and seed.
        shards: their number.
    """
    presets = list(dict.fromkeys(trial.row.preset for trial in trials))
    rows = [list(row_trials) for _, row_trials in itertools.groupby(trials, key=lambda trial: trial.number)]
    rows.sort(key=lambda row_trials: presets.index(row_trials[0].row.preset))
    for pieces in itertools.count(1):
        dealt: list[list[PlannedTrial]] = [[] for _ in range(shards)]
        for i, unit in enumerate(unit for row_trials in rows for unit in _split(row_trials, pieces)):
            dealt[i % shards] += unit
        if pieces >= max(map(len, rows)) or max(map(len, dealt)) <= _UNEVEN * len(trials) / shards:
            break
    return [sorted(own, key=lambda trial: (trial.number, trial.config.seed)) for own in dealt]


def _split(trials: Sequence[PlannedTrial], pieces: int) -> Iterator[Sequence[PlannedTrial]]:
    """Split trials into pieces of about equal size; fewer pieces if there are fewer trials."""
    pieces = min(pieces, len(trials))
    for k in range(pieces):
        yield trials[k * len(trials) // pieces : (k + 1) * len(trials) // pieces]


def grouped(trials: Sequence[PlannedTrial], size: Callable[[int], int]) -> list[list[PlannedTrial]]:
    """Group trials to train at once.

    Args:
        trials: the trials, by row.
        size: maximum group size, by row number.
    """
    groups = []
    for number, row_trials in itertools.groupby(trials, key=lambda trial: trial.number):
        waiting, most = list(row_trials), size(number)
        groups += [waiting[start : start + most] for start in range(0, len(waiting), most)]
    return groups


def describe_group(trials: Sequence[PlannedTrial]) -> str:
    """Describe trials of a row in a few words."""
    seeds = [trial.config.seed for trial in trials]
    if seeds == [*range(seeds[0], seeds[0] + len(seeds))] and len(seeds) > 1:
        seeds_text = f"{seeds[0]} to {seeds[-1]}"
    else:
        seeds_text = ", ".join(map(str, seeds))
    return f"{trials[0].row.name}, seed{'s' * (len(seeds) > 1)} {seeds_text}"
