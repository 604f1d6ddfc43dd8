"""The training cost of stack attention beside self-attention: forward and backward of one sublayer, by length.

Example:
    python benchmarks/stack_attention.py --threads 1 --json stack_attention.json
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from report import Part, Row, Table, run_benchmark, timed
from timing import in_fresh_process, peak_memory
from torch import Tensor

from stack_lm import StackTransformerConfig, StackTransformerModel

Tell = Callable[[str], None]

SIZE, HEADS, DEPTH, WINDOW = 128, 4, 32, 32
TOKENS, LENGTHS = 2048, (128, 512, 2048)
ATTENTION, LIMITED = "self-attention", f"superposition, depth {DEPTH}"
LAYERS: dict[str, Any] = {
    ATTENTION: "attention",
    "superposition": {"memory": "superposition"},
    LIMITED: {"memory": "superposition", "memory_depth": DEPTH, "memory_overflow": "truncate"},
    "stack": {"memory": "stack"},
    f"nondeterministic, window {WINDOW}": {"memory": "nondeterministic", "memory_window": WINDOW},
}
AIMED_LENGTH, AIM = 512, 2


def measure_layers(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure time and peak memory of each sublayer at each length, with a fixed number of tokens."""
    rows = []
    for length in (4,) if args.quick else LENGTHS:
        batch = 1 if args.quick else TOKENS // length
        tokens = batch * length
        tell(f"T {length}")
        runs = {name: partial(passes, *layer_and_inputs(name, batch, length, args.device)) for name in LAYERS}
        times = timed(runs, args, 6, max_rounds=40)
        peaks = in_fresh_process(peaks_of, batch, length, args.device, torch.get_num_threads())
        for (name, time), peak in zip(times.items(), peaks, strict=True):
            row: Row = {"T": length, "layer": name, "ms": 1e3 * time.minimum}
            row |= {
                "µs/token": 1e6 * time.minimum / tokens,
                "KiB/token": None if peak is None else 1024 * peak / tokens,
            }
            rows.append(row | {"to_attention": time.minimum / times[ATTENTION].minimum})
    return rows


def layer_and_inputs(name: str, batch: int, length: int, device: torch.device) -> tuple[torch.nn.Module, Tensor]:
    """A sublayer, and random vectors for it."""
    torch.manual_seed(0)
    config = StackTransformerConfig(
        hidden_size=SIZE, num_attention_heads=HEADS, layers=[LAYERS[name]], vocab_size=2, attention_dropout=0.0
    )
    model: torch.nn.Module = StackTransformerModel(config)
    layer: Any = model.to(device).get_submodule("layers.0")
    return layer.attention, torch.randn(batch, length, SIZE, device=device, requires_grad=True)


def passes(layer: Any, inputs: Tensor) -> None:
    """Forward and backward."""
    outputs = layer(inputs, None)
    (outputs[0] if isinstance(outputs, tuple) else outputs).sum().backward()


def peaks_of(batch: int, length: int, device: torch.device, threads: int) -> list[float | None]:
    """Peak memory of each sublayer's forward and backward, in MiB. Runs in a separate process."""
    torch.set_num_threads(threads)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's: gives back what the layer before freed
    peaks = []
    for name in LAYERS:
        passes(*layer_and_inputs(name, 1, 2, device))  # loads what a first call loads
        gc.collect()
        if trim is not None:
            trim(0)
        peaks.append(peak_memory(partial(passes, *layer_and_inputs(name, batch, length, device)), device))
    return peaks


def summarize(tables: Sequence[Table], args: argparse.Namespace) -> Table | None:
    """The project's targets, with the measured figures."""
    found = [row for table in tables for row in table["rows"] if row["T"] == AIMED_LENGTH]
    rows = [
        {
            "what": f"{row['layer']}, to {ATTENTION}, T {AIMED_LENGTH}",
            "measured": row["to_attention"],
            "target": f"<= {AIM}",
            "met": "yes" if row["to_attention"] <= AIM else "no",
        }
        for row in found
        if row["layer"] in (LIMITED, "stack")
    ]
    return (
        {"name": "targets", "title": "Targets", "caption": "Ratios of the shortest times.", "rows": rows}
        if rows
        else None
    )


PARTS = [
    Part(
        "layers",
        f"Forward and backward of a sublayer of size {SIZE}, {TOKENS:,} tokens in sequences of T",
        f"Shortest times and peak memory. {HEADS} heads; vectors pushed: of that size, nondeterministic of 5.",
        measure_layers,
    )
]


main = partial(run_benchmark, "stack_attention", PARTS, __doc__, summarize=summarize)


if __name__ == "__main__":
    sys.exit(main())
