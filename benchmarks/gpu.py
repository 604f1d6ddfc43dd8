"""The cell's scan on a GPU, and a language model's training step, against cuDNN's LSTM and the reference.

The Triton backend goes launch by launch, and in CUDA graphs.

Everything is measured in one process, in turn, and each way's results are compared with the reference's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from models import PlainLSTM
from stack_lm import StackRNNConfig, StackRNNForCausalLM
from stack_lm.core.console import positive_int, print_json, print_note, print_table, run_command
from stack_lm.core.errors import InputError
from stack_lm.kernels.gpu import backend
from stack_lm.kernels.protocol import CUDA_GRAPHS as GRAPHS
from stack_lm.kernels.protocol import Inputs
from stack_lm.nn.cell import StackRNNCell

Run = Callable[[Tensor], Tensor]  # inputs [B, T, E] to outputs [B, T, H]
PARTS = ["scan", "language-model"]
EXAMPLE = "python benchmarks/gpu.py --batch-size 256 --length 128 --hidden-size 650 --memory-size 64"


class _Reference(nn.Module):
    """The reference as a module, as `torch.cuda.make_graphed_callables` requires."""

    def __init__(self, cell: StackRNNCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, inputs: Tensor) -> Tensor:
        return self.cell.scan(inputs).outputs


class Way(NamedTuple):
    """One way to run a sequence.

    Attributes:
        run: runs a sequence.
        module: the module whose parameters get gradients.
        graphs: whether the Triton backend may capture CUDA graphs.
    """

    run: Run
    module: nn.Module
    graphs: bool = False


def rounding(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Set the precision of products, without autocast's cache, which a graph could not reuse."""
    if precision != "bf16":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def make_config(args: argparse.Namespace) -> StackRNNConfig:
    """The configuration of the cell, and of the language model."""
    names = "embedding_size hidden_size memory_size memory controller push_control pop_control".split()
    return StackRNNConfig(vocab_size=args.vocabulary_size, **{name: getattr(args, name) for name in names})


def make_ways(args: argparse.Namespace, inputs: Tensor) -> dict[str, Way]:
    """All requested ways, with the same weights if possible."""
    cell = StackRNNCell(make_config(args)).to(inputs.device)
    reason = backend.obstacle(cell.system, inputs.device, inputs.dtype)
    if reason:
        raise InputError(f"the Triton backend cannot run this: {reason}")
    lstm = nn.LSTM(args.embedding_size, args.hidden_size, batch_first=True).to(inputs.device)

    def triton(given: Tensor) -> Tensor:
        steps = Inputs(given, None, {}, None, given.shape[1])
        return backend.scan(cell.system, steps, cell.initial_state(len(given)))[0]

    ways = {
        "lstm": Way(lambda given: lstm(given)[0], lstm),
        "triton": Way(triton, cell),
        "triton-graphs": Way(triton, cell, graphs=True),
        "reference": Way(lambda given: cell.scan(given).outputs, cell),
    }
    if "reference-graphs" in args.ways:
        if inputs.device.type != "cuda":
            raise InputError("reference-graphs needs a CUDA device")
        with rounding(inputs.device, args.precision):
            graphed: Any = torch.cuda.make_graphed_callables(_Reference(cell), (inputs,))
        ways["reference-graphs"] = Way(graphed, cell)
    return {name: way for name, way in ways.items() if name in args.ways}


def results_of(way: Way, inputs: Tensor, grad: Tensor, precision: str) -> list[Tensor]:
    """The outputs, and the gradients of the inputs and of all weights."""
    os.environ[GRAPHS] = str(int(way.graphs))
    leaves = [inputs, *way.module.parameters()]
    with rounding(inputs.device, precision):
        outputs = way.run(inputs)
    return [outputs.detach(), *torch.autograd.grad(outputs, leaves, grad.to(outputs.dtype))]


def forward_of(way: Way, inputs: Tensor, precision: str) -> None:
    """The outputs alone, as in evaluation."""
    os.environ[GRAPHS] = str(int(way.graphs))
    with torch.no_grad(), rounding(inputs.device, precision):
        way.run(inputs)


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference over all results, each relative to its largest number."""
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in pairs)


def wait(device: torch.device) -> None:
    """Wait until a device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def in_turn(runs: Mapping[str, Callable[[], Any]], rounds: int, device: torch.device) -> dict[str, float]:
    """Median milliseconds of each run, after two untimed rounds for compilation and capture."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(-2, rounds):
        for name, run in runs.items():
            wait(device)
            start = time.perf_counter()
            run()
            wait(device)
            if i >= 0:
                taken[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(times) for name, times in taken.items()}


def peak_mebibytes(run: Callable[[], Any], device: torch.device) -> float | None:
    """A run's peak memory above the memory held before it; None on a CPU."""
    if device.type != "cuda":
        return None
    wait(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    wait(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def measure(args: argparse.Namespace, length: int, device: torch.device) -> list[dict[str, Any]]:
    """Measure one row for each way."""
    torch.manual_seed(0)
    inputs = torch.randn(args.batch_size, length, args.embedding_size, device=device, requires_grad=True)
    grad = torch.randn(args.batch_size, length, args.hidden_size, device=device)
    ways = make_ways(args, inputs)
    both = {name: partial(results_of, way, inputs, grad, args.precision) for name, way in ways.items()}
    forward = {name: partial(forward_of, way, inputs, args.precision) for name, way in ways.items()}
    with_backward, alone = in_turn(both, args.rounds, device), in_turn(forward, args.rounds, device)
    expected = both["reference"]() if "reference" in ways else None
    rows = []
    for name in ways:
        rows.append(
            {
                "way": name,
                "length": length,
                "forward_ms": alone[name],
                "both_ms": with_backward[name],
                "times_lstm": with_backward[name] / with_backward["lstm"] if "lstm" in ways else None,
                "us_per_step": 1000 * with_backward[name] / length,
                "difference": difference(both[name](), expected) if expected and name != "lstm" else None,
                "peak_mib": peak_mebibytes(both[name], device),
            }
        )
    return rows


def make_steps(args: argparse.Namespace, ids: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Training steps of language models: forward, loss, backward and fused Adam. Each returns its loss.

    The stack models start with the same weights. Their loss is computed in chunks on the device; the LSTM uses torch's
    loss of all logits at once.
    """
    backends = {"triton": "triton", "triton-graphs": "triton", "reference": "reference"}
    steps: dict[str, Callable[[], Tensor]] = {}
    for name in args.ways:
        torch.manual_seed(0)
        if name == "lstm":
            plain = PlainLSTM(args.vocabulary_size, args.embedding_size, args.hidden_size).to(ids.device)
            steps[name] = partial(_step, plain, partial(plain, ids), False, args.precision, _adam(plain))
        elif name in backends:
            model: Any = StackRNNForCausalLM(make_config(args))
            model.to(ids.device).train()
            model.set_scan_backend(backends[name])
            loss = partial(_own_loss, model, ids)
            steps[name] = partial(_step, model, loss, name == "triton-graphs", args.precision, _adam(model))
    return steps


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), fused=True)


def _own_loss(model: Any, ids: Tensor) -> Tensor:
    loss: Tensor = model(ids, labels=ids, use_cache=False).loss
    return loss


def _step(
    model: nn.Module, loss_of: Callable[[], Tensor], graphs: bool, precision: str, optimizer: torch.optim.Optimizer
) -> Tensor:
    os.environ[GRAPHS] = str(int(graphs))
    model.zero_grad(set_to_none=True)
    with rounding(next(model.parameters()).device, precision):
        loss = loss_of()
    loss.backward()
    optimizer.step()
    return loss.detach()


def measure_steps(args: argparse.Namespace, length: int, device: torch.device) -> list[dict[str, Any]]:
    """Measure one row for each way except the reference's graphs."""
    torch.manual_seed(0)
    ids = torch.randint(args.vocabulary_size, (args.batch_size, length), device=device)
    steps = make_steps(args, ids)
    losses = {name: float(step()) for name, step in steps.items()}
    times = in_turn(steps, args.rounds, device)
    return [
        {
            "way": name,
            "length": length,
            "step_ms": times[name],
            "tokens_per_s": round(args.batch_size * (length - 1) / times[name] * 1000),
            "times_lstm": times[name] / times["lstm"] if "lstm" in times else None,
            "first_loss": losses[name],
            "peak_mib": peak_mebibytes(step, device),
        }
        for name, step in steps.items()
    ]


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/gpu.py",
        description="Measure the scan on a GPU, and training steps: cuDNN's LSTM, the Triton backend, the reference.",
        epilog=f"example:\n  {EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ["lstm", "triton", "triton-graphs", "reference", "reference-graphs"]
    parser.add_argument("--ways", nargs="+", choices=names, default=names, metavar="WAY", help=", ".join(names))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--vocabulary-size", type=positive_int, default=10_000, help="of the language model")
    parser.add_argument("--batch-size", type=positive_int, default=256)
    parser.add_argument(
        "--length", type=positive_int, nargs="+", default=[128], help="steps; several give several rows"
    )
    parser.add_argument("--embedding-size", type=positive_int, default=650)
    parser.add_argument("--hidden-size", type=positive_int, default=650)
    parser.add_argument("--memory-size", type=positive_int, default=64)
    parser.add_argument("--memory", choices=["stack", "queue", "deque"], default="stack")
    parser.add_argument("--controller", choices=["linear", "rnn", "rnn_sigmoid", "gru", "lstm"], default="lstm")
    parser.add_argument("--push-control", default="expected_value", help="as in a configuration")
    parser.add_argument("--pop-control", default="1.0", help="as in a configuration")
    parser.add_argument(
        "--precision", choices=["fp32", "tf32", "bf16"], default="tf32", help="of products, cuDNN's too (default: tf32)"
    )
    parser.add_argument("--rounds", type=positive_int, default=20)
    parser.add_argument("--device", default="cuda", help="cpu needs TRITON_INTERPRET=1, and times nothing of interest")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON object on standard output")
    args = parser.parse_args(argv)
    for name in ("push_control", "pop_control"):
        value = getattr(args, name)
        if value not in ("sigmoid", "expected_value"):
            try:
                setattr(args, name, float(value))
            except ValueError:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"{option} must be sigmoid, expected_value or a number; got {value}") from None
    return args


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    args = parse(argv)
    os.environ["STACK_LM_SCAN_BACKEND"] = "reference"  # what a cell's own scan is here
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("this needs a CUDA device, and torch finds none")
    # For cuDNN and cuBLAS alike: by torch's defaults, cuDNN alone would round its products to TF32.
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")
    rows: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for length in args.length:
        print_note(f"length {length}")
        rows += measure(args, length, device) if "scan" in args.only else []
        steps += measure_steps(args, length, device) if "language-model" in args.only else []
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    if args.json:
        settings = {name: value for name, value in vars(args).items() if name != "json"}
        about = {"device": where, "torch": torch.__version__, "settings": settings}
        print_json(about | {"rows": rows, "language_model": steps})
        return
    show(args, where, rows, steps)


def show(args: argparse.Namespace, where: str, rows: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]]) -> None:
    """Print the tables."""
    shown = [[f"{v:.0e}" if key == "difference" and v is not None else v for key, v in row.items()] for row in rows]
    title = f"{where}: batch {args.batch_size}, E {args.embedding_size}, H {args.hidden_size}, m {args.memory_size}"
    title = f"{title}, {args.controller} and {args.memory}, {args.precision}"
    if rows:
        columns = ["way", "length", "forward ms", "forward + backward ms", "times LSTM", "us/step"]
        print_table(
            title,
            [*columns, "difference", "peak MiB"],
            shown,
            "Medians of runs in turn. difference: the largest of outputs and gradients from the reference's.",
        )
    if steps:
        print_table(
            f"A training step of a language model with {args.vocabulary_size:,} words; {title}",
            ["way", "length", "step ms", "tokens/s", "times LSTM", "first loss", "peak MiB"],
            [list(row.values()) for row in steps],
            "Forward, loss, backward and fused Adam; medians of runs in turn. Not lstm: the loss in chunks.",
        )


if __name__ == "__main__":
    sys.exit(run_command("benchmarks/gpu.py", main))
