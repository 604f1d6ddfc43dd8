"""The cost of a memory: scans and layers against nn.LSTM, and training updates, compiled and in the reference scan.

Everything is timed in one process on one thread, each kind in turn in every round, five times in a row; the numbers are
minima, and those to read are their ratios. On the CPU the clock is the process's own, so that what else the machine
does counts less.

Example:
    python benchmarks/memories.py --rounds 30
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import stack_lm
from stack_lm import MemoryLayer, StackRNN, StackRNNCell, StackRNNConfig, set_scan_backend
from stack_lm.core.config_files import read_config
from stack_lm.core.console import positive_int, print_json, print_table, progress, run_command, script_parser
from stack_lm.core.errors import InputError
from stack_lm.memory import make_memory

# The sizes of Merrill et al. (2019): embedding 50, LSTM of 100, elements of 16, batches of 16; sentences of 30 words.
SENTENCES = {"batch": 16, "length": 30, "embedding": 50, "hidden": 100, "element": 16}
# The largest of Suzgun et al. (2019): 12 symbols, 12 hidden units, elements of 5, 104 cells; 32 strings, 50 steps.
STRINGS = {"batch": 32, "length": 50, "symbols": 12, "hidden": 12, "element": 5, "cells": 104}
# A layer between two others of its size, as in a transformer.
LAYERS = {"batch": 32, "length": 64, "hidden": 100, "element": 16}
MEMORIES: dict[str, dict[str, Any]] = {
    "stack": {"memory": "stack"},
    "queue": {"memory": "queue"},
    "deque": {"memory": "deque"},
    "superposition": {"memory": "superposition"},
    "superposition, at most 104": {"memory": "superposition", "memory_depth": 104},
    "multipop superposition": {"memory": "multipop_superposition"},
    "Baby-NTM, 104 cells": {"memory": "baby_ntm"},
}
# Presets, with the batch sizes, the length of the strings, and the sizes that their data decide.
UPDATES: tuple[tuple[str, tuple[int, ...], int, dict[str, int]], ...] = (
    ("suzgun2019/stack_rnn_softmax", (1, 32), 50, {"vocab_size": 6, "num_labels": 6}),
    ("suzgun2019/stack_rnn_joulin_mikolov", (1, 32), 50, {"vocab_size": 6, "num_labels": 6}),
    ("suzgun2019/stack_lstm_temperature", (1, 32), 50, {"vocab_size": 6, "num_labels": 6}),
    ("suzgun2019/baby_ntm_gumbel", (1, 32), 50, {"vocab_size": 6, "num_labels": 6}),
    ("suzgun2019/stack_rnn_softmax_d6", (1, 32), 50, {"vocab_size": 12, "num_labels": 12}),
    ("suzgun2019/baby_ntm_softmax_d6", (1, 32), 50, {"vocab_size": 12, "num_labels": 12}),
    ("hao2018/linear_stack", (10,), 24, {"vocab_size": 5, "num_labels": 5}),
    ("hao2018/lstm_stack", (10,), 24, {"vocab_size": 5, "num_labels": 5}),
    ("hao2018/buffered_linear_stack", (10,), 12, {"vocab_size": 5, "target_vocab_size": 5}),
)
COMPILED, REFERENCE = "auto", "reference"
IN_A_ROW = 5
Run = Callable[[], None]


def sentence_runs(device: torch.device) -> dict[tuple[str, str], Run]:
    """Forward and backward passes over a batch of sentences, by memory and backend, and with torch's LSTM."""
    sizes = SENTENCES
    inputs = torch.randn(sizes["batch"], sizes["length"], sizes["embedding"], device=device, requires_grad=True)
    lstm = torch.nn.LSTM(sizes["embedding"], sizes["hidden"], batch_first=True, device=device)
    runs: dict[tuple[str, str], Run] = {("nn.LSTM", COMPILED): lambda: lstm(inputs)[0].sum().backward()}
    for name, fields in MEMORIES.items():
        cell = StackRNNCell(
            StackRNNConfig(
                embedding_size=sizes["embedding"], hidden_size=sizes["hidden"], memory_size=sizes["element"], **fields
            )
        ).to(device)
        for backend in (COMPILED, REFERENCE):
            runs[name, backend] = _scan_run(cell, backend, inputs, None)
    return runs


def string_runs(device: torch.device) -> dict[tuple[str, str], Run]:
    """Forward and backward passes of cells with memories that are full from the start, and of torch's RNN."""
    sizes = STRINGS
    inputs = torch.randn(sizes["batch"], sizes["length"], sizes["symbols"], device=device)
    rnn = torch.nn.RNN(sizes["symbols"], sizes["hidden"], batch_first=True, device=device)
    runs: dict[tuple[str, str], Run] = {("nn.RNN", COMPILED): lambda: rnn(inputs)[0].sum().backward()}
    kinds: dict[str, dict[str, Any]] = {
        "superposition": {"memory": "superposition", "memory_overflow": "truncate"},
        "Baby-NTM": {"memory": "baby_ntm"},
    }
    for name, fields in kinds.items():
        config = StackRNNConfig(
            embedding_size=sizes["symbols"],
            hidden_size=sizes["hidden"],
            controller="rnn",
            reading_entry="hidden_state",
            memory_size=sizes["element"],
            memory_depth=sizes["cells"],
            **fields,
        )
        cell, memory = StackRNNCell(config).to(device), make_memory(config).initial_state(sizes["batch"], device=device)
        shape = (*memory.cells.shape[:-2], sizes["cells"], memory.cells.shape[-1])
        state = cell.initial_state(sizes["batch"])
        state = state._replace(memory=memory._replace(cells=torch.rand(shape, device=device)))
        for backend in (COMPILED, REFERENCE):
            runs[name, backend] = _scan_run(cell, backend, inputs, state)
    return runs


def layer_runs(device: torch.device) -> dict[tuple[str, str], Run]:
    """Forward and backward passes of `MemoryLayer` by memory, and of `StackRNN` without one, against torch's LSTM."""
    hidden = LAYERS["hidden"]
    inputs = torch.randn(LAYERS["batch"], LAYERS["length"], hidden, device=device, requires_grad=True)
    lstm = torch.nn.LSTM(hidden, hidden, batch_first=True)
    same = StackRNN(hidden, hidden, memory="none", batch_first=True)
    runs = {
        (name, COMPILED): _layer_run(rnn.to(device), COMPILED, inputs)
        for name, rnn in (("nn.LSTM", lstm), ("StackRNN, no memory", same))
    }
    for name, fields in MEMORIES.items():
        layer = MemoryLayer(hidden, memory_size=LAYERS["element"], **fields).to(device)
        for backend in (COMPILED, REFERENCE):
            runs[name, backend] = _layer_run(layer, backend, inputs)
    return runs


def _layer_run(layer: torch.nn.Module, backend: str, inputs: torch.Tensor) -> Run:
    def run() -> None:
        set_scan_backend(layer, backend)
        layer(inputs)[0].sum().backward()

    return run


def _scan_run(cell: StackRNNCell, backend: str, inputs: torch.Tensor, state: Any) -> Run:
    def run() -> None:
        cell.scan_backend = backend
        cell.scan(inputs, state).outputs.sum().backward()

    return run


def update_runs(device: torch.device) -> dict[tuple[str, str], Run]:
    """Whole training updates of presets: forward, loss, backward and Adam."""
    runs: dict[tuple[str, str], Run] = {}
    for preset, batches, length, sizes in UPDATES:
        fields = read_config(preset)["model"] | sizes
        (architecture,) = fields["architectures"]
        model_class = getattr(stack_lm, architecture)
        model = model_class(model_class.config_class(**fields)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for batch in batches:
            ids = torch.randint(0, sizes["vocab_size"], (batch, length), device=device)
            labels = ids
            if architecture == "StackRNNForKHotPrediction":
                labels = (torch.rand(batch, length, sizes["num_labels"], device=device) > 0.5).float()
            for backend in (COMPILED, REFERENCE):
                runs[f"{preset}, batch {batch}", backend] = _update_run(model, optimizer, ids, labels, backend)
    return runs


def _update_run(model: Any, optimizer: torch.optim.Adam, ids: torch.Tensor, labels: torch.Tensor, backend: str) -> Run:
    def run() -> None:
        model.set_scan_backend(backend)
        optimizer.zero_grad()
        model(ids, labels=labels).loss.backward()
        optimizer.step()

    return run


def measure(
    runs: dict[tuple[str, str], Run], rounds: int, device: torch.device, advance: Callable[[int], None]
) -> dict[tuple[str, str], float]:
    """Minimum seconds of each, run in turn, several times in a row, as in training; compilation is not counted."""
    least = dict.fromkeys(runs, math.inf)
    for _ in range(rounds):
        for name, run in runs.items():
            for _ in range(IN_A_ROW):
                start = _now(device)
                run()
                least[name] = min(least[name], _now(device) - start)
        advance(1)
    return least


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def report(least: dict[tuple[str, str], float], base: str | None, steps: int) -> list[dict[str, Any]]:
    """One record per kind: microseconds for the given number of steps, and the ratios to the reference and a base."""
    records: list[dict[str, Any]] = []
    for name in dict.fromkeys(name for name, _ in least):
        compiled, reference = least[name, COMPILED], least.get((name, REFERENCE))
        record: dict[str, Any] = {"kind": name, "microseconds": 1e6 * compiled / steps}
        if reference is not None:
            record |= {"reference_microseconds": 1e6 * reference / steps, "speedup": reference / compiled}
        if base is not None:
            record["ratio"] = compiled / least[base, COMPILED]
        records.append(record)
    return records


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__)
    parser.add_argument("--rounds", type=positive_int, default=30, help="timings of each (30)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="device to run on (cpu)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    def run() -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        device = torch.device(options.device)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda: this machine has no GPU that torch can use")
        tables = {
            "sentences": (sentence_runs(device), "nn.LSTM", SENTENCES["length"], SENTENCES),
            "strings": (string_runs(device), "nn.RNN", STRINGS["length"], STRINGS),
            "layers": (layer_runs(device), "nn.LSTM", LAYERS["length"], LAYERS),
            "updates": (update_runs(device), None, 1, None),
        }
        results: dict[str, Any] = {}
        with progress("rounds", len(tables) * options.rounds) as advance:
            for title, (runs, base, steps, sizes) in tables.items():
                records = report(measure(runs, options.rounds, device, advance), base, steps)
                results[title] = {"results": records} | ({} if sizes is None else {"sizes": sizes})
        if options.json:
            print_json({"torch": torch.__version__, "device": options.device, "rounds": options.rounds} | results)
            return
        for title, (_, base, _, sizes) in tables.items():
            unit = "us a step of the batch" if base else "us an update"
            columns = ("", unit, "reference", "times as fast", *([f"to {base}"] if base else []))
            rows = [
                tuple(
                    f"{record[key]:.{places}f}" if key in record else ""
                    for key, places in (
                        ("microseconds", 1),
                        ("reference_microseconds", 1),
                        ("speedup", 1),
                        ("ratio", 2),
                    )
                    if key != "ratio" or base
                )
                for record in results[title]["results"]
            ]
            kinds = [record["kind"] for record in results[title]["results"]]
            caption = "" if sizes is None else ", ".join(f"{name} {size}" for name, size in sizes.items())
            lines = [(kind, *row) for kind, row in zip(kinds, rows, strict=True)]
            print_table(f"forward and backward, {title}", columns, lines, caption)

    return run_command("memories", run)


if __name__ == "__main__":
    sys.exit(main())
