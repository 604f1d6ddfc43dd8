"""Planned trials, and groups of them that train together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .config import Row, TaskConfig


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
