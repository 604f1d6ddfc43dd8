"""The training cost of stack attention beside self-attention: forward and backward of one sublayer, by length.

The second table has the scan of a stack alone, over all steps at once, beside torch's kernel for attention.

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
from torch.utils._python_dispatch import TorchDispatchMode

from stack_lm import MemoryLayer, StackTransformerConfig, StackTransformerModel

Tell = Callable[[str], None]

SIZE, HEADS, DEPTH, WINDOW = 128, 4, 32, 32
TOKENS, LENGTHS = 2048, (128, 512, 2048)
SCAN_BATCH, SCAN_SIZE = 8, 64
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


def measure_scan(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure a stack layer on each backend, and attention without its products, and count operations of torch."""
    rows = []
    backends = ("numba", "parallel") if args.device.type == "cpu" else ("parallel",)
    for length in (4,) if args.quick else LENGTHS:
        tell(f"T {length}")
        shape = (SCAN_BATCH, length, SCAN_SIZE)
        inputs = [torch.randn(shape, device=args.device, requires_grad=True) for _ in range(3)]
        runs: dict[str, Callable[[], None]] = {ATTENTION: partial(attend, *inputs)}
        for name in backends:
            layer = MemoryLayer(SCAN_SIZE, memory_size=SCAN_SIZE, pop_control="sigmoid").to(args.device)
            layer.scan_backend = name
            runs[name] = partial(passes_of_scan, layer, inputs[0])
        times = timed(runs, args, 6, max_rounds=40)
        for name, time in times.items():
            with _Counted() as counted:
                runs[name]()
            row: Row = {"T": length, "scan": name, "ms": 1e3 * time.minimum, "operations": counted.number}
            rows.append(row | {"to_attention": time.minimum / times[ATTENTION].minimum})
    return rows


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Forward and backward of torch's causal attention with one head."""
    query, key, value = (part.unsqueeze(1) for part in (queries, keys, values))
    torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()


def passes_of_scan(layer: MemoryLayer, inputs: Tensor) -> None:
    """Forward and backward of a memory layer."""
    layer(inputs)[0].sum().backward()


class _Counted(TorchDispatchMode):
    """Count torch's operations but views: on a GPU most are one launch."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += not operation.is_view
        return operation(*args, **kwargs or {})


def summarize(tables: Sequence[Table], args: argparse.Namespace) -> Table | None:
    """The project's targets, with the measured figures."""
    found = [row for table in tables for row in table["rows"] if row["T"] == AIMED_LENGTH and "layer" in row]
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
    ),
    Part(
        "scan",
        f"Forward and backward of a stack, batch {SCAN_BATCH}, size {SCAN_SIZE}, beside torch's causal attention",
        "A layer with its linear map; attention without. Operations of torch are about as many launches on a GPU.",
        measure_scan,
    ),
]


main = partial(run_benchmark, "stack_attention", PARTS, __doc__, summarize=summarize)


if __name__ == "__main__":
    sys.exit(main())
