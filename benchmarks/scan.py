"""The speed of a stack RNN, against torch's LSTM of the same size and against the reference scan.

Example:
    python benchmarks/scan.py --threads 2 --json scan.json
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from report import Part, Row, Table, run_benchmark, timed
from timing import Timing, in_fresh_process, peak_memory

from models import GENERATION, PUSH_STRENGTHS, VOCABULARY, Size, cell_run, lstm_run, step_runs
from stack_lm import StackRNNCell, StackRNNForCausalLM, explain_backend

Tell = Callable[[str], None]

# The reference keeps [B, T, m] for each of T steps: beyond this many steps it needs too much memory to measure.
REFERENCE_STEPS = 256
LARGE = ((650, 650, 16), (650, 650, 64), (400, 1150, 64))  # embedding, hidden and element size


# The tables


def _sizes(args: argparse.Namespace, *sizes: Size) -> list[Size]:
    """The given sizes that can be measured; for a quick run, a smaller version of the first."""
    if not args.quick:
        longest = REFERENCE_STEPS if _backend(args.device).startswith("reference") else max(s.length for s in sizes)
        return [size for size in sizes if size.length <= longest]
    return [size._replace(batch=2, length=min(size.length, 16), hidden=20) for size in sizes[:1]]


def _pass(size: Size, args: argparse.Namespace, tell: Tell, backward: bool = True) -> Row:
    """Measure one pass against the LSTM and, if possible, the reference."""
    name = "forward + backward" if backward else "forward"
    tell(f"{size.preset}, batch {size.batch}, T {size.length}, H {size.hidden}, {name}")
    runs = {"lstm": lstm_run(size, args.device, backward), "scan": cell_run(size, args.device, backward)}
    if size.length <= REFERENCE_STEPS:
        runs["reference"] = cell_run(size, args.device, backward, "reference")
    times = timed(runs, args, 3)
    row = {"preset": size.preset, "batch": size.batch, "T": size.length, "E": size.embedding, "H": size.hidden}
    return row | {"m": size.element, "pass": name} | _compared(times["lstm"], times["scan"], times.get("reference"))


def _compared(lstm: Timing, scan: Timing, reference: Timing | None) -> Row:
    row: Row = {"lstm_ms": lstm.median * 1e3, "scan_ms": scan.median * 1e3}
    if reference is not None:
        row["reference_ms"] = reference.median * 1e3
    row |= {"scan/lstm": scan.median / lstm.median, "of_minima": scan.minimum / lstm.minimum}
    if reference is not None:
        row["reference/scan"] = reference.median / scan.median
    return row


def measure_cell(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure the sizes for which the project has targets."""
    sizes = [Size(preset, hidden=hidden) for hidden in (100, 650) for preset in ("u1", "d1")]
    if args.device.type == "cuda":
        sizes.append(Size(batch=256, length=128, hidden=650, element=64))
    return [_pass(size, args, tell, backward) for size in _sizes(args, *sizes) for backward in (False, True)]


def measure_large(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure the sizes of large language models, where matrix products take nearly all of the time."""
    sizes = [Size(hidden=hidden, element=m, embedding=e) for e, hidden, m in LARGE]
    return [_pass(size, args, tell, backward) for size in _sizes(args, *sizes) for backward in (False, True)]


def measure_step(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure training steps without the optimiser."""
    rows = []
    sizes = [Size(preset, hidden=hidden) for hidden in (100, 650) for preset in ("u1", "d1")]
    for size in _sizes(args, *sizes):
        tell(f"{size.preset}, H {size.hidden}")
        times = timed(step_runs(size, args.device), args, 6)
        lstm, stack = times["lstm"], times["stack"]
        rows.append(
            {
                "preset": size.preset,
                "H": size.hidden,
                "lstm_ms": lstm.median * 1e3,
                "stack_ms": stack.median * 1e3,
                "bfloat16_ms": times["bfloat16"].median * 1e3,
                "reference_ms": times["reference"].median * 1e3,
                "own_lstm_ms": times["own_lstm"].median * 1e3,
                "lstm/stack": lstm.median / stack.median,
                "of_minima": lstm.minimum / stack.minimum,
                "tokens/s": round(size.batch * (size.length - 1) / stack.median),
            }
        )
    return rows


def measure_update(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure training steps with the optimiser, and the loss in both of its types."""
    rows = []
    sizes = [
        Size(preset, batch=batch, length=length) for preset in ("u1", "d1") for batch, length in ((16, 30), (32, 64))
    ]
    for size in _sizes(args, *sizes):
        tell(f"{size.preset}, batch {size.batch}, T {size.length}")
        runs = step_runs(size, args.device, adam=True)
        times = timed({name: runs[name] for name in ("lstm", "stack", "bfloat16")}, args, 6)
        lstm, stack, bfloat16 = times["lstm"], times["stack"], times["bfloat16"]
        rows.append(
            {
                "preset": size.preset,
                "batch": size.batch,
                "T": size.length,
                "lstm_ms": lstm.median * 1e3,
                "stack_ms": stack.median * 1e3,
                "bfloat16_ms": bfloat16.median * 1e3,
                "lstm/stack": lstm.median / stack.median,
                "lstm/bfloat16": lstm.median / bfloat16.median,
                "lstm/stack_of_minima": lstm.minimum / stack.minimum,
                "lstm/bfloat16_of_minima": lstm.minimum / bfloat16.minimum,
                "tokens/s": round(size.batch * (size.length - 1) / bfloat16.median),
            }
        )
    return rows


def measure_length(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure time per token against T, with all lengths in the same rounds, since they are compared."""
    sizes = _sizes(args, *(Size(length=2**i) for i in range(6, 13)))
    tell("T " + ", ".join(str(size.length) for size in sizes))
    runs: dict[Any, Callable[[], None]] = {}
    for size in sizes:
        runs["lstm", size] = lstm_run(size, args.device, True)
        runs["scan", size] = cell_run(size, args.device, True)
        if size.length <= REFERENCE_STEPS:
            runs["reference", size] = cell_run(size, args.device, True, "reference")
    times = timed(runs, args, 25, max_rounds=9)
    # Long sequences need fresh memory pages after other runs, so measure them alone as well.
    alone = timed({size: runs["scan", size] for size in sizes}, args, 12, max_rounds=15)
    rows = []
    for size in sizes:
        row: Row = {"T": size.length}
        for name in ("lstm", "scan", "reference"):
            if (name, size) in times:
                row[f"{name}_us/token"] = times[name, size].median / (size.batch * size.length) * 1e6
        lstm, scan = times["lstm", size], times["scan", size]
        row |= {"scan/lstm": scan.median / lstm.median, "of_minima": scan.minimum / lstm.minimum}
        rows.append(row | {"scan_alone_us/token": alone[size].median / (size.batch * size.length) * 1e6})
    return rows


def measure_batch(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure time against the batch size."""
    sizes = _sizes(args, *(Size(batch=batch) for batch in (1, 8, 32, 128)))
    return [_pass(size, args, tell) for size in sizes]


def measure_hidden(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure time against the hidden size."""
    sizes = _sizes(args, *(Size(hidden=hidden) for hidden in (100, 256, 650)))
    return [_pass(size, args, tell) for size in sizes]


def measure_memories(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure stack, queue and deque."""
    sizes = [size for memory in ("stack", "queue", "deque") for size in _sizes(args, Size(memory))]
    return [_pass(size, args, tell) for size in sizes]


def measure_strength(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure time against push strength d: a reading of 1 covers 1/d elements, and half of what is pushed stays."""
    rows = []
    for push in PUSH_STRENGTHS:
        for size in _sizes(args, Size(f"d={push}", length=512)):
            tell(f"push strength {push}")
            runs = {"lstm": lstm_run(size, args.device, True), "scan": cell_run(size, args.device, True)}
            times = timed(runs, args, 3)
            row = {"push_strength": push, "pop_strength": push / 2, "elements_read": math.ceil(1 / push)}
            rows.append(row | _compared(times["lstm"], times["scan"], None))
    return rows


def memory_of(name: str, size: Size, device: torch.device, threads: int) -> float | None:
    """Peak memory of a forward and backward pass, in MiB. Runs in a separate process."""
    torch.set_num_threads(threads)
    make = lstm_run if name == "lstm" else partial(cell_run, backend="auto" if name == "scan" else name)
    make(size._replace(length=8), device, True)()  # compiles, and loads what a first call loads
    return peak_memory(make(size, device, True), device)


def measure_memory(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure peak memory against T."""
    rows = []
    for size in _sizes(args, *(Size(batch=8, length=length) for length in (64, 256, 1024, 4096))):
        tell(f"T {size.length}")
        names = ["lstm", "scan", "reference"] if size.length <= REFERENCE_STEPS else ["lstm", "scan"]
        peaks = {name: in_fresh_process(memory_of, name, size, args.device, torch.get_num_threads()) for name in names}
        row: Row = {"T": size.length, **{f"{name}_MiB": peak for name, peak in peaks.items()}}
        if peaks["scan"] is not None:
            row["scan_KiB/token"] = peaks["scan"] * 1024 / (size.batch * size.length)
        rows.append(row)
    return rows


@torch.no_grad()
def measure_generation(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure tokens per second at batch 1 on one thread, with more or less of transformers' code."""
    count = 3 if args.quick else 200
    threads = torch.get_num_threads()
    models: dict[str, Any] = {name: StackRNNForCausalLM(Size(name).config()) for name in ("u1", "lstm")}
    for model in models.values():
        model.to(args.device).eval()
    rows = []
    torch.set_num_threads(1)
    try:
        for way, generate in GENERATION.items():
            tell(way)
            runs: dict[Any, Callable[[], None]] = {
                name: partial(generate, model, torch.ones(1, 1, dtype=torch.long), count)
                for name, model in models.items()
            }
            times = timed(runs, args, 4)
            rows.append({"how": way, **{f"{name}_tokens/s": round(count / times[name].median) for name in models}})
    finally:
        torch.set_num_threads(threads)
    return rows


# The targets


def summarize(tables: list[Table], args: argparse.Namespace) -> Table | None:
    """The project's targets, with the measured figures."""
    found = {table["name"]: table["rows"] for table in tables}
    rows: list[Row] = []
    if args.quick:
        return None

    def add(what: str, figure: float | None, sign: str, target: float) -> None:
        if figure is not None:
            met = figure <= target if sign == "<=" else figure >= target
            rows.append({"what": what, "measured": figure, "target": f"{sign} {target}", "met": "yes" if met else "no"})

    for row in found.get("cell", []):
        if row["pass"] == "forward + backward":
            what = f"{row['preset']}: scan/lstm at batch {row['batch']}, T {row['T']}, H {row['H']}, m {row['m']}"
            if args.device.type == "cuda":
                add(what, row["scan/lstm"], "<=", 2.0)
            else:
                add(what, row["scan/lstm"], "<=", 1.5 if row["H"] == 100 else 1.3)
    for row in found.get("large", []):
        if row["pass"] == "forward + backward" and args.device.type == "cpu":
            what = f"{row['preset']}: scan/lstm at batch {row['batch']}, E {row['E']}, H {row['H']}, m {row['m']}"
            add(what, row["scan/lstm"], "<=", 1.2)
    for row in found.get("step", []):
        add(f"{row['preset']}: lstm/stack of a training step, H {row['H']}", row["lstm/stack"], ">=", 1.5)
    for row in found.get("update", []):
        what = f"{row['preset']}: lstm/bfloat16 of an update, batch {row['batch']}, T {row['T']}"
        add(what, row["lstm/bfloat16"], ">=", 3.0)
    per_token = {row["T"]: row["scan_alone_us/token"] for row in found.get("length", [])}
    if 4096 in per_token and 256 in per_token:
        add("time per token at T 4096, to that at T 256", per_token[4096] / per_token[256], "<=", 1.3)
    per_token = {row["T"]: row.get("scan_KiB/token") for row in found.get("memory", [])}
    if per_token.get(4096) and per_token.get(256):
        add("peak memory per token at T 4096, to that at T 256", per_token[4096] / per_token[256], "<=", 1.3)
    for row in found.get("generation", []):
        add(f"tokens/s at batch 1: {row['how']}", row["u1_tokens/s"], ">=", 5000)
    if not rows:
        return None
    return {"name": "targets", "title": "Targets", "caption": f"The scan: {_backend(args.device)}.", "rows": rows}


def _backend(device: torch.device) -> str:
    cell: Any = StackRNNCell(Size().config())
    return explain_backend(cell.to(device))


_PASSES = "Medians in milliseconds; 'of minima' is the ratio of the shortest times. Gradients go to inputs and weights."
PARTS = [
    Part("cell", "The cell, against nn.LSTM of the same size", _PASSES, measure_cell),
    Part("large", "Large networks", _PASSES, measure_large),
    Part(
        "step",
        f"A training step with {VOCABULARY:,} words, batch 32, T 64, without the optimiser",
        "lstm: nn.Embedding, nn.LSTM, cross_entropy(linear(h)). own lstm: this toolkit's, with its own loss. "
        "bfloat16: stack with loss_dtype bfloat16.",
        measure_step,
    ),
    Part(
        "update",
        f"A training update with {VOCABULARY:,} words, H 100, with torch's fused Adam for all",
        "lstm: nn.Embedding, nn.LSTM, cross_entropy(linear(h)). stack: loss_dtype float32; bfloat16: that.",
        measure_update,
    ),
    Part(
        "length",
        "Forward and backward per token, against T (u1, batch 32, H 100)",
        "Microseconds. The reference is measured as far as its memory, which grows with the square of T, allows.",
        measure_length,
    ),
    Part("memory", "Peak memory of a forward and backward pass, against T (u1, batch 8, H 100)", "", measure_memory),
    Part(
        "generation",
        "Generation at batch 1, one thread, H 100",
        "lstm: the same model, memory none.",
        measure_generation,
    ),
    Part("batch", "Against the batch size (u1)", _PASSES, measure_batch),
    Part("hidden", "Against the hidden size (u1)", _PASSES, measure_hidden),
    Part("memories", "Stack, queue and deque, all controls expected values", _PASSES, measure_memories),
    Part(
        "strength",
        "Against the push strength (fixed controls, batch 32, T 512, H 100)",
        "Pops of half the strength: half of what is pushed stays. Forward and backward, medians in milliseconds.",
        measure_strength,
    ),
]


main = partial(run_benchmark, "scan", PARTS, __doc__, summarize=summarize)


if __name__ == "__main__":
    sys.exit(main())
