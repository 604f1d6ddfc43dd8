"""The speed of the loss without logits, against the plain loss and torch's own, and the choice of chunk size.

Example:
    python benchmarks/loss.py --threads 2 --json loss.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from report import Part, Row, run_benchmark, timed
from timing import in_fresh_process, peak_memory
from torch import Tensor
from torch.nn import functional as F

from stack_lm.models.loss import default_chunk_rows, linear_cross_entropy, sampled_cross_entropy

Tell = Callable[[str], None]
Loss = Callable[..., Tensor]
Size = tuple[int, int, int]

# Rows (tokens), hidden size, classes.
SIZES: tuple[Size, ...] = (
    (256, 100, 10_000),
    (2048, 100, 10_000),
    (2048, 256, 10_000),
    (2048, 650, 10_000),
    (1024, 100, 50_000),
    (1024, 650, 50_000),
)
QUICK_SIZES: tuple[Size, ...] = ((16, 4, 50),)
SAMPLED_SIZES: tuple[Size, ...] = ((1024, 100, 16_000), (1024, 256, 16_000), (1024, 100, 50_257), (1024, 256, 50_257))


def plain(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """The loss in its usual form."""
    return F.cross_entropy(F.linear(hidden, weight, bias), labels)


def torchs_own(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """torch's loss in chunks, with torch's own chunk size."""
    options = torch.nn.LinearCrossEntropyOptions()
    return F.linear_cross_entropy(hidden, weight, labels, linear_bias=bias, options=options)


LOSSES: dict[str, Loss] = {
    "plain": plain,
    "ours": linear_cross_entropy,
    "bfloat16": partial(linear_cross_entropy, dtype=torch.bfloat16),
}
if hasattr(F, "linear_cross_entropy"):
    LOSSES["torch"] = torchs_own


def run_of(loss: Loss, size: Size, device: torch.device, present: int | None = None) -> Callable[[], None]:
    """Forward and backward pass of a loss over random inputs, with labels from at most `present` classes."""
    rows, hidden_size, classes = size
    hidden = torch.randn(rows, hidden_size, device=device, requires_grad=True)
    weight = (torch.randn(classes, hidden_size, device=device) / hidden_size**0.5).requires_grad_()
    bias = torch.zeros(classes, device=device, requires_grad=True)
    labels = torch.randint(present or classes, (rows,), device=device)

    def run() -> None:
        hidden.grad = weight.grad = bias.grad = None
        loss(hidden, weight, bias, labels).backward()

    return run


def measure_losses(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Time of the losses."""
    table = []
    for size in QUICK_SIZES if args.quick else SIZES:
        rows, hidden, classes = size
        tell(f"{rows} rows, H {hidden}, V {classes}")
        times = timed({name: run_of(loss, size, args.device) for name, loss in LOSSES.items()}, args, 6)
        row: Row = {"rows": rows, "H": hidden, "V": classes}
        row |= {f"{name}_ms": time.median * 1e3 for name, time in times.items()}
        row |= {f"plain/{name}": times["plain"].median / time.median for name, time in times.items() if name != "plain"}
        for name in ("ours", "bfloat16"):
            row[f"plain/{name}_of_minima"] = times["plain"].minimum / times[name].minimum
        table.append(row)
    return table


def memory_of(name: str, size: Size, device: torch.device, threads: int) -> float | None:
    """Peak memory of a loss's forward and backward pass, in MiB. Runs in a separate process."""
    torch.set_num_threads(threads)
    run_of(LOSSES[name], (16, 4, 50), device)()  # loads what a first call loads
    return peak_memory(run_of(LOSSES[name], size, device), device)


def measure_memory(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Peak memory of the losses."""
    table = []
    for size in QUICK_SIZES if args.quick else ((2048, 100, 10_000), (1024, 100, 50_000)):
        rows, hidden, classes = size
        tell(f"{rows} rows, H {hidden}, V {classes}")
        row: Row = {"rows": rows, "H": hidden, "V": classes, "all_logits_MiB": rows * classes * 4 / 2**20}
        for name in LOSSES:
            peak = in_fresh_process(memory_of, name, size, args.device, torch.get_num_threads())
            row[f"{name}_MiB"] = peak
        table.append(row)
    return table


def growth_of(name: str, hidden: int, classes: int, batches: int, device: torch.device, threads: int) -> float | None:
    """Peak memory over batches of 200 to 900 rows each, drawn at random, in MiB. Runs in a separate process."""
    torch.set_num_threads(threads)
    run_of(LOSSES[name], (16, 4, 50), device)()  # loads what a first call loads
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(200, 901, (batches,), generator=generator).tolist()

    def run() -> None:
        for rows in sizes:
            run_of(LOSSES[name], (rows, hidden, classes), device)()

    return peak_memory(run, device)


def measure_growth(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Peak memory over batches of many sizes."""
    table = []
    for hidden, classes in ((4, 50),) if args.quick else ((100, 10_000), (400, 10_000)):
        row: Row = {"H": hidden, "V": classes}
        for batches in (2,) if args.quick else (10, 300):
            tell(f"{batches} batches, H {hidden}, V {classes}")
            for name in ("ours", "bfloat16"):
                peak = in_fresh_process(growth_of, name, hidden, classes, batches, args.device, torch.get_num_threads())
                row[f"{name}_{batches}_MiB"] = peak
        table.append(row)
    return table


def measure_chunks(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Time of ours against the rows of a chunk."""
    table = []
    for size in QUICK_SIZES if args.quick else SIZES[1:]:
        rows, hidden, classes = size
        default = min(rows, default_chunk_rows(hidden, classes, args.device))
        tell(f"{rows} rows, H {hidden}, V {classes}")
        chunks = sorted({chunk for chunk in (64, 128, 256, 512, 1024, 2048) if chunk < rows} | {rows, default})
        runs: dict[Any, Callable[[], None]] = {
            (name, chunk): run_of(partial(LOSSES[name], chunk_rows=chunk), size, args.device)
            for name in ("ours", "bfloat16")
            for chunk in chunks
        }
        times = timed(runs | {"plain": run_of(plain, size, args.device)}, args, 6)
        table += [
            {
                "H": hidden,
                "V": classes,
                "chunk_rows": chunk,
                "default": "yes" if chunk == default else "",
                "ours_ms": times["ours", chunk].median * 1e3,
                "bfloat16_ms": times["bfloat16", chunk].median * 1e3,
                "plain/ours": times["plain"].median / times["ours", chunk].median,
                "plain/bfloat16": times["plain"].median / times["bfloat16", chunk].median,
            }
            for chunk in chunks
        ]
    return table


def measure_sampled(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Time of the loss against the number of sampled classes; a batch of text has about 450 classes of its own."""
    table = []
    for rows, hidden, classes in QUICK_SIZES if args.quick else SAMPLED_SIZES:
        tell(f"{rows} rows, H {hidden}, V {classes}")
        numbers = (5, 20) if args.quick else (1000, 2000, 4000, 8000)
        losses: dict[Any, Loss] = {number: partial(sampled_cross_entropy, samples=number) for number in numbers}
        runs = {
            name: run_of(loss, (rows, hidden, classes), args.device, present=min(450, classes))
            for name, loss in ({"whole": linear_cross_entropy} | losses).items()
        }
        times = timed(runs, args, 6)
        row: Row = {"rows": rows, "H": hidden, "V": classes, "whole_ms": times["whole"].median * 1e3}
        row |= {f"whole/{number}": times["whole"].median / times[number].median for number in numbers}
        table.append(row)
    return table


PARTS = [
    Part(
        "losses",
        "Linear layer and cross-entropy of float32 tensors, forward and backward",
        "Medians in ms. plain: cross_entropy(linear(h)). ours: this toolkit's linear_cross_entropy. bfloat16: "
        "with its products in bfloat16. torch: torch's own linear_cross_entropy, in chunks.",
        measure_losses,
    ),
    Part(
        "memory",
        "Peak memory of the same",
        "Gradients of hidden states and weights included; all logits: one matrix of them, for comparison.",
        measure_memory,
    ),
    Part(
        "growth",
        "Peak memory over 10 and over 300 batches, each with another number of rows, 200 to 900",
        "What a library keeps for each shape that it has met, such as oneDNN for bfloat16, adds up.",
        measure_growth,
    ),
    Part(
        "sampled",
        "The whole softmax against one over the batch's classes, about 450, and a sample of the others",
        "whole_ms: linear_cross_entropy. whole/N: how much faster sampled_cross_entropy is with N samples.",
        measure_sampled,
    ),
    Part("chunks", "Against the rows of a chunk", "default: what is chosen where nothing is said.", measure_chunks),
]


main = partial(run_benchmark, "loss", PARTS, __doc__)


if __name__ == "__main__":
    sys.exit(main())
