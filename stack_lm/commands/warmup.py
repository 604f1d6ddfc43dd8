"""`stack-lm warmup`: compile the scan ahead of its first use."""

from __future__ import annotations

import argparse
import time

from ..console import print_json, print_table
from ..errors import InputError
from ..kernels.dispatch import BACKENDS

_DTYPES = ("float32", "float64")

EXAMPLE = "stack-lm warmup"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm warmup`."""
    parser.add_argument(
        "--backend", choices=BACKENDS, default="auto", help="default: auto, the fastest on the device at hand"
    )
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu (default) or cuda")


def run(options: argparse.Namespace) -> None:
    """Run a small model forwards and backwards in each precision."""
    import torch

    from ..cell import StackRNNCell
    from ..configuration_stack_rnn import StackRNNConfig
    from ..kernels.dispatch import choose

    config = StackRNNConfig(vocab_size=2, embedding_size=2, hidden_size=2, memory_size=2)
    seconds = {}
    for name in _DTYPES:
        dtype = getattr(torch, name)
        try:
            cell = StackRNNCell(config).to(options.device, dtype)
            cell.scan_backend = options.backend
            choice = choose(cell, torch.device(options.device), dtype)
        except (
            ValueError,
            RuntimeError,
            AssertionError,
        ) as error:  # torch has all three for a device that is not there
            raise InputError(str(error).splitlines()[0]) from error
        start = time.perf_counter()
        inputs = torch.zeros(1, 2, 2, dtype=dtype, device=options.device, requires_grad=True)
        cell.scan(inputs).outputs.sum().backward()
        seconds[name] = time.perf_counter() - start
    if options.json:
        print_json({"backend": choice.name, "reason": choice.reason, "seconds": seconds})
        return
    print_table(
        f"the scan runs on {choice.name}: {choice.reason}",
        ["precision", "first run (s)"],
        [[name, f"{seconds[name]:.2f}"] for name in _DTYPES],
    )
