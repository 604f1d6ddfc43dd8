"""Several small models trained at once, against one after the other: whole updates, by the number of seeds.

Example:
    python benchmarks/seeds.py --threads 1 --json seeds.json
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from memories import IN_A_ROW, UPDATES
from report import Part, Row, Table, run_benchmark
from timing import clock
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

import stack_lm
from stack_lm.core.config_files import read_config
from stack_lm.kernels.cpu import plan
from stack_lm.training.together import Together, stack_batches

Run = Callable[[], Any]
PRESETS = {
    "suzgun2019/stack_rnn_softmax": 1,
    "suzgun2019/baby_ntm_gumbel": 1,
    "hao2018/linear_stack": 10,
    "hao2018/lstm_stack": 10,
    "hao2018/buffered_linear_stack": 10,
}
SEEDS = (2, 5, 10, 20)
AIMED_SEEDS = 10


def make(preset: str, seeds: int) -> tuple[list[Any], list[dict[str, Tensor]]]:
    """Models of a preset, and a batch for each: strings of 50 symbols (Suzgun), of 24, or of 12 (Hao)."""
    (length, sizes) = next((length, sizes) for name, _, length, sizes in UPDATES if name == preset)
    fields = read_config(preset)["model"] | sizes
    (architecture,) = fields["architectures"]
    model_class = getattr(stack_lm, architecture)
    models = [model_class(model_class.config_class(**fields)).train() for _ in range(seeds)]
    batches = []
    for _ in range(seeds):
        ids = torch.randint(sizes["vocab_size"], (PRESETS[preset], length))
        k_hot = architecture == "StackRNNForKHotPrediction"
        labels = (torch.rand(*ids.shape, sizes["num_labels"]) > 0.5).float() if k_hot else ids
        batches.append({"input_ids": ids, "labels": labels})
    return models, batches


def alone(preset: str) -> Run:
    """Updates of one model: forward, loss, backward and fused Adam."""
    (model,), (batch,) = make(preset, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)

    def run() -> None:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

    return run


def together(preset: str, seeds: int) -> Run:
    """Updates of several models at once: forward, loss, backward and fused Adam."""
    models, batches = make(preset, seeds)
    several = Together(models)
    optimizer = torch.optim.Adam(several.parameters(), lr=0.01, fused=True)

    def run() -> None:
        optimizer.zero_grad()
        several.losses(stack_batches(batches)).sum().backward()
        optimizer.step()

    return run


def in_torch(preset: str, seeds: int) -> Run | None:
    """Updates of several models by vmap over the reference scan; None if vmap does not support the memory."""
    models, batches = make(preset, seeds)
    if preset.startswith("suzgun2019"):  # the mixing of cells has a gradient by hand
        return None
    models[0].set_scan_backend("reference")
    weights = {name: part.detach().requires_grad_() for name, part in stack_module_state(models)[0].items()}
    optimizer = torch.optim.Adam(list(weights.values()), lr=0.01, fused=True)
    losses = vmap(lambda own, batch: functional_call(models[0], own, kwargs=batch).loss, randomness="different")

    def run() -> None:
        optimizer.zero_grad()
        losses(weights, stack_batches(batches)).sum().backward()
        optimizer.step()

    return run


class Stopwatch:
    """A wrapper of the compiled functions that measures their share of an update."""

    def __init__(self, compiled: Any) -> None:
        self._compiled, self.seconds = compiled, 0.0

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self._compiled, name)

        def timed(*arguments: Any) -> None:
            start = time.process_time()
            function(*arguments)
            self.seconds += time.process_time() - start

        return timed


def measure(args: argparse.Namespace, tell: Callable[[str], None]) -> list[Row]:
    """Measure one row for each preset and number of seeds, with minimum process times."""
    rounds = 1 if args.quick else 15
    rows: list[Row] = []
    for preset, batch in PRESETS.items():
        tell(preset)
        runs: dict[Any, Run] = {1: alone(preset)} | {seeds: together(preset, seeds) for seeds in SEEDS}
        reference = in_torch(preset, AIMED_SEEDS)
        if reference is not None:
            runs["reference"] = reference
        least, compiled = least_times(runs, rounds)
        for seeds in (1, *SEEDS):
            rows.append(
                {
                    "preset": preset,
                    "batch": batch,
                    "seeds": seeds,
                    "us": least[seeds] * 1e6,
                    "us_a_seed": least[seeds] / seeds * 1e6,
                    "times_as_fast": least[1] * seeds / least[seeds],
                    "compiled": compiled[seeds] / least[seeds],
                    "vmap_of_the_reference,_us": 1e6 * least["reference"]
                    if seeds == AIMED_SEEDS and "reference" in least
                    else None,
                }
            )
    return rows


def least_times(runs: dict[Any, Run], rounds: int) -> tuple[dict[Any, float], dict[Any, float]]:
    """Minimum process time of each, in turn, several in a row; and of the compiled code within it."""
    now = clock(torch.device("cpu"))
    least = dict.fromkeys(runs, math.inf)
    compiled = dict.fromkeys(runs, math.inf)
    original = plan.compiled
    watch: Any = Stopwatch(original)
    try:
        for i in range(rounds + 1):
            for name, run in runs.items():
                for _ in range(IN_A_ROW):
                    plan.compiled = original
                    start = now()
                    run()
                    taken = now() - start
                    plan.compiled, watch.seconds = watch, 0.0
                    run()
                    if i:  # the first compiles
                        least[name] = min(least[name], taken)
                        compiled[name] = min(compiled[name], watch.seconds)
    finally:
        plan.compiled = original
    return least, compiled


PARTS = [
    Part(
        "updates",
        "Updates of several models at once",
        "Forward, loss, backward and fused Adam. times as fast: as that many updates of one, on the same core. "
        "compiled: the share of compiled code.",
        measure,
    )
]


def summarize(tables: list[Table], args: argparse.Namespace) -> Table | None:
    """Compare several seeds at once with one process per seed, on as many cores."""
    if args.quick:
        return None
    rows = [
        {
            "what": f"{row['preset']}, {row['seeds']} seeds",
            "measured": row["times_as_fast"],
            "target": "> 1",
            "met": "yes" if row["times_as_fast"] > 1 else "no",
        }
        for table in tables
        for row in table["rows"]
        if row["seeds"] == AIMED_SEEDS
    ]
    return {"name": "targets", "title": "Seeds at once, against a process for each", "caption": "", "rows": rows}


main = partial(run_benchmark, "seeds", PARTS, __doc__, summarize=summarize)


if __name__ == "__main__":
    sys.exit(main())
