"""The cost of nondeterministic stacks: compiled, by einsum in log space and step by step; its growth; language models.

The einsum way needs torch_semiring_einsum: pip install --no-deps torch_semiring_einsum nvidia-ml-py

Example:
    python benchmarks/nondeterministic.py --threads 1 --json nondeterministic.json
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from einsum_stack import einsum_cell
from report import Part, Row, Table, run_benchmark
from timing import Key, alternate, in_fresh_process, peak_memory

from models import VOCABULARY
from stack_lm import StackRNNCell, StackRNNConfig, StackRNNForCausalLM
from stack_lm.training.carried import CarriedState

Tell = Callable[[str], None]
Run = Callable[[], Any]

SYMBOLS, HIDDEN = 5, 20  # of the papers' strings
APART = 1e-4  # largest difference between readings of two ways in float32
EINSUM_AIM, UPDATE_AIM = 30, 3


class Size(NamedTuple):
    """A stack of Q states and S symbols with vectors of m, over B strings of n symbols with a window of D."""

    states: int = 2
    symbols: int = 3
    element: int = 0
    window: int | None = None
    batch: int = 10
    length: int = 40

    @property
    def name(self) -> str:
        """The stack's name in the papers."""
        name = f"RNS {self.states}-{self.symbols}"
        if self.element:
            name = f"V{name}-{self.element}"
        return name if self.window is None else f"{name}, window {self.window}"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a configuration."""
        return {
            "memory": "nondeterministic",
            "memory_states": self.states,
            "memory_symbols": self.symbols,
            "memory_size": self.element,
            "memory_window": self.window,
        }


EINSUM_SIZES = (Size(), Size(length=80), Size(states=3))
SIZES = (*EINSUM_SIZES, Size(element=5), Size(window=20, length=80), Size(window=20, length=320))
# By the letter in the recurrences: the field of `Size` that grows, and its values; the other fields as above.
GROWTH: dict[str, tuple[str, tuple[int, ...], Size]] = {
    "n": ("length", (20, 40, 80, 160), Size()),
    "Q": ("states", (1, 2, 3, 4, 6), Size()),
    "S": ("symbols", (2, 3, 4, 6, 8), Size()),
    "m": ("element", (1, 2, 5, 10, 20), Size()),
    "B": ("batch", (1, 3, 10, 30, 100), Size()),
    "D": ("window", (5, 10, 20, 40, 80, 160), Size(length=160)),
}
MODELS: dict[str, dict[str, Any]] = {
    "none": {"memory": "none"},
    "RNS 2-3": Size(window=35).fields,
    "VRNS 1-1-32": Size(1, 1, 32, window=35).fields,
}
BATCH, TOKENS, MODEL_SIZE = 32, 35, 256  # of the papers' language models


def least(runs: Mapping[Key, Run], args: argparse.Namespace, seconds: float, rounds: int = 2) -> dict[Key, float]:
    """Minimum milliseconds of each, run in turn for the given seconds and at least `rounds` rounds."""
    if args.quick:
        seconds, rounds = 0, 1
    times = alternate(runs, seconds=seconds, device=args.device, min_rounds=rounds, max_rounds=100)
    return {name: 1e3 * time.minimum for name, time in times.items()}


# The tables


def measure_einsum(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Forward and backward, compiled and by einsum."""
    rows = []
    for size in _sizes(args, EINSUM_SIZES):
        tell(f"{size.name}, n {size.length}")
        compiled, inputs = cell_and_inputs(size, args.device)
        by_einsum = einsum_cell(compiled)
        apart = check_readings(compiled, by_einsum, inputs)
        # Several rounds make the minimum of short runs more reliable.
        runs: dict[tuple[str, int], Run] = {("compiled", i): partial(passes, compiled, inputs) for i in range(5)}
        times = least(runs | {("einsum", 0): partial(passes, by_einsum, inputs)}, args, 10)
        fastest = min(time for (way, _), time in times.items() if way == "compiled")
        row: Row = {"stack": size.name, "n": size.length, "compiled_ms": fastest, "einsum_ms": times["einsum", 0]}
        rows.append(row | {"einsum/compiled": times["einsum", 0] / fastest, "readings_apart": f"{apart:.0e}"})
    return rows


def measure_cell(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Forward alone and with backward, compiled and in the reference."""
    rows = []
    for size in _sizes(args, SIZES):
        tell(f"{size.name}, n {size.length}")
        cell, inputs = cell_and_inputs(size, args.device)
        reference, _ = cell_and_inputs(size, args.device)
        reference.scan_backend = "reference"
        runs: dict[str, Run] = {
            "forward": partial(cell.scan, inputs),
            "both": partial(passes, cell, inputs),
            "reference": partial(passes, reference, inputs),
        }
        times = least(runs, args, 3)
        row: Row = {"stack": size.name, "n": size.length, "forward_ms": times["forward"], "both_ms": times["both"]}
        rows.append(
            row | {"reference_ms": times["reference"], "reference/compiled": times["reference"] / times["both"]}
        )
    return rows


def measure_growth(letter: str, args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure time and peak memory of the compiled scan against one of its sizes."""
    field, values, base = GROWTH[letter]
    sizes = _sizes(args, [base._replace(**{field: value}) for value in values], 2)
    tell(", ".join(str(getattr(size, field)) for size in sizes))
    runs = {size: partial(passes, *cell_and_inputs(size, args.device)) for size in sizes}
    times = least(runs, args, 5, rounds=3)
    peaks = in_fresh_process(peaks_of, sizes, args.device, torch.get_num_threads())
    return [
        {letter: getattr(size, field), "ms": times[size], "MiB": peak} for size, peak in zip(sizes, peaks, strict=True)
    ]


def measure_update(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Training steps of language models that carry their state from chunk to chunk of a text."""
    tell(", ".join(MODELS))
    size = 8 if args.quick else MODEL_SIZE
    runs = {name: update_run(fields, size, args.device) for name, fields in MODELS.items()}
    times = least(runs, args, 20, rounds=3)
    return [
        {"memory": name, "ms": time, "tokens/s": round(1e3 * BATCH * TOKENS / time), "to_none": time / times["none"]}
        for name, time in times.items()
    ]


def _sizes(args: argparse.Namespace, sizes: Sequence[Size], several: int = 1) -> list[Size]:
    """The given sizes; for a quick run, a smaller version of the first."""
    if not args.quick:
        return list(sizes)
    return [size._replace(length=min(size.length, 5 + i)) for i, size in enumerate(sizes[:several])]


# What is measured


def cell_and_inputs(size: Size, device: torch.device) -> tuple[StackRNNCell, torch.Tensor]:
    """A cell of the papers' size with reproducible weights, and random strings."""
    torch.manual_seed(0)
    cell = StackRNNCell(StackRNNConfig(embedding_size=SYMBOLS, hidden_size=HIDDEN, **size.fields)).to(device)
    return cell, torch.randn(size.batch, size.length, SYMBOLS, device=device, requires_grad=True)


def passes(cell: StackRNNCell, inputs: torch.Tensor) -> None:
    """Forward and backward."""
    cell.scan(inputs).outputs.sum().backward()


@torch.no_grad()
def check_readings(cell: StackRNNCell, other: StackRNNCell, inputs: torch.Tensor) -> float:
    """Return the largest difference between the readings of two cells.

    Raises:
        RuntimeError: if it exceeds float32 rounding, so that the cells compute different functions.
    """
    readings, others = (each.scan(inputs, output_readings=True).readings for each in (cell, other))
    assert readings is not None
    assert others is not None
    apart = float((readings - others).abs().max())
    if not apart <= APART:
        raise RuntimeError(f"the readings of the two ways are {apart:g} apart")
    return apart


def peaks_of(sizes: Sequence[Size], device: torch.device, threads: int) -> list[float | None]:
    """Peak memory of forward and backward, in MiB. Runs in a separate process."""
    torch.set_num_threads(threads)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's: gives back what earlier sizes freed
    peaks = []
    for size in sizes:
        passes(*cell_and_inputs(size._replace(length=2, batch=1), device))  # loads what a first call loads
        gc.collect()
        if trim is not None:
            trim(0)
        peaks.append(peak_memory(partial(passes, *cell_and_inputs(size, device)), device))
    return peaks


def update_run(fields: dict[str, Any], size: int, device: torch.device) -> Run:
    """A training step: forward from the previous step's state, loss, backward and fused Adam."""
    torch.manual_seed(0)
    config = StackRNNConfig(vocab_size=VOCABULARY, embedding_size=size, hidden_size=size, **fields)
    model: Any = StackRNNForCausalLM(config)
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    ids = torch.randint(VOCABULARY, (BATCH, TOKENS + 1), device=device)
    carried = CarriedState(model, BATCH)

    def run() -> None:
        optimizer.zero_grad()
        state = carried.next([False] * BATCH)
        model(ids[:, :-1], shift_labels=ids[:, 1:], cache=state, use_cache=False).loss.backward()
        optimizer.step()

    return run


# The targets


def summarize(tables: list[Table], args: argparse.Namespace) -> Table | None:
    """The project's targets, with the measured figures."""
    found = {table["name"]: table["rows"] for table in tables}
    rows: list[Row] = []
    for row in found.get("einsum", []):
        figure, what = row["einsum/compiled"], f"einsum to compiled, {row['stack']}, n {row['n']}"
        rows.append({"what": what, "measured": figure, "target": f">= {EINSUM_AIM}", "met": figure >= EINSUM_AIM})
    for row in found.get("update", [])[1:]:
        figure, what = row["to_none"], f"an update with {row['memory']}, to one without a memory"
        rows.append({"what": what, "measured": figure, "target": f"<= {UPDATE_AIM}", "met": figure <= UPDATE_AIM})
    if args.quick or not rows:
        return None
    rows = [row | {"met": "yes" if row["met"] else "no"} for row in rows]
    return {"name": "targets", "title": "Targets", "caption": "Ratios of the shortest times.", "rows": rows}


_PASSES = f"Forward and backward of a cell of {HIDDEN} units, shortest times."
PARTS = [
    Part(
        "einsum",
        "Compiled and by einsum in log space, batch 10",
        f"{_PASSES} readings apart: the largest difference of the two ways' readings.",
        measure_einsum,
    ),
    Part("cell", "Compiled and in the reference, batch 10", _PASSES, measure_cell),
    *(
        Part(
            letter,
            f"Against {letter} ({base.name}, batch {base.batch}, n {base.length})",
            f"{_PASSES} MiB: peak memory.",
            partial(measure_growth, letter),
        )
        for letter, (_, _, base) in GROWTH.items()
    ),
    Part(
        "update",
        f"A training step of a language model of {VOCABULARY:,} words: batch {BATCH}, {TOKENS} tokens, window 35, "
        f"LSTM {MODEL_SIZE}",
        "Forward from the last step's state, loss, backward and fused Adam, shortest times.",
        measure_update,
    ),
]


main = partial(run_benchmark, "nondeterministic", PARTS, __doc__, summarize=summarize)


if __name__ == "__main__":
    sys.exit(main())
