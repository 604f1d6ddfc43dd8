"""Trials of formal tasks, several seeds at once: an update, an epoch, and what an hour of a core holds.

Example:
    python benchmarks/trials.py --threads 1 --json trials.json
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from report import Part, Row, run_benchmark
from timing import clock

from stack_lm.training.trials.learning import train
from stack_lm.training.trials.run import load_table
from stack_lm.training.trials.scores import score
from stack_lm.training.trials.trial import Trial
from stack_lm.training.trials.workers import keep_freed_memory

# By the name of the table: presets, and a task for all of them.
TASKS = {
    "flare": (["flare/lstm", "flare/superposition"], "flare/dyck_2_3"),
    "deletang2023": (
        ["deletang2023/lstm", "deletang2023/stack_rnn", "deletang2023/stack"],
        "deletang2023/reverse_string",
    ),
    "nondeterministic": (["deletang2023/rns"], "deletang2023/reverse_string"),
}
SEEDS = (1, 5)
# In a measured epoch; and epochs, of which the first compiles.
_UPDATES, _EPOCHS = 16, 2


def measure(name: str, args: argparse.Namespace, tell: Callable[[str], None]) -> list[Row]:
    """Measure one row for each preset and number of seeds, with minimum process times."""
    keep_freed_memory()
    now, rows = clock(args.device), []
    updates = 2 if args.quick else _UPDATES
    presets, task = TASKS[name]
    for preset in presets:
        table = load_table(preset, task)
        config = table.config(table.rows[0])
        number = Trial(config).encoding.task.planned("train").number
        splits = {"train": {"number": updates * config.training.batch_size}, "test": {"number": 1, "longest": 41}}
        loop = dataclasses.replace(config.training, epochs=_EPOCHS, patience=None, solved_patience=None, validate=False)
        short = dataclasses.replace(config, options={"splits": splits}, training=loop)
        for seeds in SEEDS:
            tell(f"{preset}, {seeds} seeds")
            trials = [Trial(dataclasses.replace(short, seed=seed)) for seed in range(seeds)]
            times: list[float] = []
            train(trials, lambda *_, times=times: times.append(now()))
            update = min(end - start for start, end in pairwise(times)) / updates / seeds
            rows.append(
                {
                    "preset": preset,
                    "seeds": seeds,
                    "update, ms a seed": update * 1e3,
                    "updates an hour of a seed": 3600 / update / seeds,
                    "validation, s a seed": _validation(trials[0], now),
                    "epoch, s a seed": update * (number // config.training.batch_size),
                }
            )
    return rows


def _validation(trial: Trial, now: Callable[[], float]) -> float:
    """The seconds needed to score the validation strings."""
    examples = trial.encoding.encode(trial.encoding.task.split("validation", 0))
    taken = []
    for _ in range(2):
        start = now()
        score(trial.model, trial.encoding, examples)
        taken.append(now() - start)
    return min(taken)


PARTS = [
    Part(
        name,
        f"Trials of {task}",
        "Updates include the drawing of new strings. An epoch is of the preset's size, without its validation.",
        partial(measure, name),
    )
    for name, (_, task) in TASKS.items()
]

main = partial(run_benchmark, "trials", PARTS, __doc__)


if __name__ == "__main__":
    sys.exit(main())
