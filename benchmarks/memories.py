"""The cost of a memory: forward and backward time a token, against the plain controller and torch's RNNCell.

Everything is timed in one process on one thread, each kind in turn in every round; the numbers to read are the ratios
of medians. On the CPU the clock is the process's own, so that what else the machine does counts less.

Example:
    python benchmarks/memories.py --rounds 30
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from stack_lm import StackRNNCell, StackRNNConfig
from stack_lm.console import (
    positive_int,
    print_json,
    print_table,
    progress,
    quiet_libraries,
    run_command,
    script_parser,
)
from stack_lm.errors import InputError
from stack_lm.memory import ChoiceActions, Memory, make_memory

# The sizes of Merrill et al. (2019): embedding 50, LSTM of 100, elements of 16, batches of 16; sentences of 30 words.
SENTENCES = {"batch": 16, "length": 30, "embedding": 50, "hidden": 100, "element": 16}
# The largest of Suzgun et al. (2019): 12 symbols, 12 hidden units, elements of 5, 104 cells; 32 strings, 50 steps.
STRINGS = {"batch": 32, "length": 50, "symbols": 12, "hidden": 12, "element": 5, "cells": 104}
MEMORIES = {
    "plain LSTM, step by step": {"memory": "none"},
    "stack": {"memory": "stack"},
    "queue": {"memory": "queue"},
    "deque": {"memory": "deque"},
    "superposition": {"memory": "superposition"},
    "superposition, at most 104": {"memory": "superposition", "memory_depth": 104},
    "multipop superposition": {"memory": "multipop_superposition"},
    "Baby-NTM, 104 cells": {"memory": "baby_ntm"},
}
Run = Callable[[], None]


def sentence_runs(device: torch.device) -> dict[str, Run]:
    """Forward and backward of a batch of sentences, by memory; and of torch's fused LSTM."""
    sizes = SENTENCES
    inputs = torch.randn(sizes["batch"], sizes["length"], sizes["embedding"], device=device, requires_grad=True)

    def run_of(cell: StackRNNCell, *, steps: bool) -> Run:
        def run() -> None:
            # Asking for the layers' outputs is asking for steps.
            cell.scan(inputs, output_layers=steps).outputs.sum().backward()

        return run

    runs: dict[str, Run] = {}
    for name, fields in MEMORIES.items():
        config = StackRNNConfig(
            embedding_size=sizes["embedding"],
            hidden_size=sizes["hidden"],
            memory_size=sizes["element"],
            **fields,  # type: ignore[arg-type]
        )
        cell = StackRNNCell(config).to(device)
        if config.memory == "none":
            cell.scan_backend = "reference"  # step by step, or torch's kernel
        runs[name] = run_of(cell, steps=config.memory == "none")
        if config.memory == "none":
            runs["plain LSTM, torch's kernel"] = run_of(cell, steps=False)
    return runs


def string_runs(device: torch.device) -> dict[str, Run]:
    """Forward and backward of torch's RNNCell, of full memories alone, and of whole cells with them."""
    sizes = STRINGS
    batch, length = sizes["batch"], sizes["length"]
    inputs = torch.randn(batch, length, sizes["symbols"], device=device)
    rnn = nn.RNNCell(sizes["symbols"], sizes["hidden"], device=device)

    def run_rnn() -> None:
        hidden = torch.zeros(batch, sizes["hidden"], device=device)
        outputs = []
        for t in range(length):
            hidden = rnn(inputs[:, t], hidden)
            outputs.append(hidden)
        torch.stack(outputs, dim=1).sum().backward()

    def full(memory: Memory) -> Any:
        state = memory.initial_state(batch, device=device)
        shape = list(state.cells.shape)
        shape[-2] = sizes["cells"]
        return state._replace(cells=torch.rand(shape, device=device))

    def run_memory(memory: Memory, state: Any) -> Run:
        fields = {field.name: field for field in memory.actions}
        values = torch.rand(fields["push_value"].shape(batch), device=device, requires_grad=True)
        choice = torch.rand(fields["operation"].shape(batch), device=device).softmax(-1).requires_grad_()

        def run() -> None:
            now, readings = state, []
            for _ in range(length):
                now, reading = memory.update(now, ChoiceActions(values, choice))
                readings.append(reading)
            torch.stack(readings, dim=1).sum().backward()

        return run

    def run_cell(cell: StackRNNCell, memory_state: Any) -> Run:
        state = cell.initial_state(batch)._replace(memory=memory_state)

        def run() -> None:
            cell.scan(inputs, state).outputs.sum().backward()

        return run

    runs: dict[str, Run] = {"RNNCell": run_rnn}
    for name, fields in (
        ("superposition", {"memory": "superposition", "memory_overflow": "truncate"}),
        ("Baby-NTM", {"memory": "baby_ntm"}),
    ):
        config = StackRNNConfig(
            embedding_size=sizes["symbols"],
            hidden_size=sizes["hidden"],
            controller="rnn",
            reading_entry="hidden_state",
            memory_size=sizes["element"],
            memory_depth=sizes["cells"],
            **fields,  # type: ignore[arg-type]
        )
        memory = make_memory(config)
        runs[f"{name}, the memory's step"] = run_memory(memory, full(memory))
        runs[f"{name}, the whole cell's step"] = run_cell(StackRNNCell(config).to(device), full(memory))
    return runs


def measure(
    runs: dict[str, Run], rounds: int, device: torch.device, advance: Callable[[int], None]
) -> dict[str, float]:
    """Median seconds of each, run in turn; the first round, which warms up, does not count."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            start = _now(device)
            run()
            if i:
                times[name].append(_now(device) - start)
        advance(1)
    return {name: statistics.median(values) for name, values in times.items()}


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def report(medians: dict[str, float], base: str, steps: int) -> list[dict[str, Any]]:
    """Microseconds for a step of the batch, and the ratio to the base."""
    return [
        {"kind": name, "microseconds": 1e6 * seconds / steps, "ratio": seconds / medians[base]}
        for name, seconds in medians.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__)
    parser.add_argument("--rounds", type=positive_int, default=30, help="how often each is timed (30)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where (cpu)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    def run() -> None:
        quiet_libraries()
        torch.manual_seed(0)
        torch.set_num_threads(1)
        device = torch.device(options.device)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda: this machine has no GPU that torch can use")
        results = {}
        with progress("rounds", 2 * (options.rounds + 1)) as advance:
            for title, runs, base, length in (
                ("sentences", sentence_runs(device), "plain LSTM, torch's kernel", SENTENCES["length"]),
                ("strings", string_runs(device), "RNNCell", STRINGS["length"]),
            ):
                results[title] = report(measure(runs, options.rounds, device, advance), base, length)
        if options.json:
            print_json(
                {"torch": torch.__version__, "device": options.device, "rounds": options.rounds}
                | {"sentences": {"sizes": SENTENCES, "results": results["sentences"]}}
                | {"strings": {"sizes": STRINGS, "results": results["strings"]}}
            )
            return
        for title, sizes in (("sentences", SENTENCES), ("strings", STRINGS)):
            rows = [(r["kind"], f"{r['microseconds']:.0f}", f"{r['ratio']:.2f}") for r in results[title]]
            caption = ", ".join(f"{name} {size}" for name, size in sizes.items())
            print_table(f"forward and backward, {title}", ("", "us for a step of the batch", "ratio"), rows, caption)

    return run_command("memories", run)


if __name__ == "__main__":
    sys.exit(main())
