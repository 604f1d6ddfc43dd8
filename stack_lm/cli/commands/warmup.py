"""`stack-lm warmup`: compile the scan and the loss ahead of their first use."""

from __future__ import annotations

import argparse
import contextlib
import time
from typing import Any

from ...core.errors import InputError
from ...kernels.dispatch import BACKENDS
from ..options import option, shared
from ..printing import PrintedTable
from ..report import Report

_DTYPES = ("float32", "float64")
_MEMORIES = ("stack", "superposition", "nondeterministic")  # each compiles code of its own

EXAMPLE = "stack-lm warmup"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm warmup`."""
    backend = "backend to compile; auto is the fastest on the device"
    option(parser, "--backend", backend, choices=BACKENDS, default="auto")
    shared(parser, "--device")


def run(options: argparse.Namespace) -> Report:
    """Run small cells forwards and backwards in each precision."""
    import torch

    from ...hub.loading import find_device
    from ...models.configuration_stack_rnn import StackRNNConfig
    from ...models.loss import linear_cross_entropy
    from ...nn.cell import StackRNNCell
    from ...nn.memory_layer import MemoryLayer

    device = find_device(options.device)
    sizes: dict[str, Any] = {"vocab_size": 2, "embedding_size": 2, "hidden_size": 2, "memory_size": 2}
    seconds = {}
    for name in _DTYPES:
        dtype = getattr(torch, name)
        try:
            cells = [StackRNNCell(StackRNNConfig(memory=memory, **sizes)).to(device, dtype) for memory in _MEMORIES]
            layers = [MemoryLayer(2, memory, memory_size=2).to(device, dtype) for memory in _MEMORIES]
            like = torch.empty(0, device=device, dtype=dtype)
            cells[0].scan_backend = options.backend
            choice = cells[0].choose_backend(like)
            for module in (*cells[1:], *layers):
                with contextlib.suppress(ValueError):  # it has no scan in this backend, and runs in torch
                    module.choose_backend(like, backend=options.backend)
                    module.scan_backend = options.backend
        except (ValueError, RuntimeError, AssertionError) as error:  # torch raises any of them for a missing device
            raise InputError(str(error).splitlines()[0]) from error
        start = time.perf_counter()
        inputs = torch.zeros(1, 2, 2, dtype=dtype, device=device, requires_grad=True)
        for cell in cells:
            cell.scan(inputs).outputs.sum().backward()
        for layer in layers:
            layer(inputs)[0].sum().backward()
        weight, labels = torch.zeros(2, 2, dtype=dtype, device=device), torch.zeros(2, dtype=torch.long)
        linear_cross_entropy(inputs[0], weight, weight[0], labels.to(device)).backward()
        seconds[name] = time.perf_counter() - start
    rows = [[name, f"{seconds[name]:.2f}"] for name in _DTYPES]
    table = PrintedTable(f"the scan runs on {choice.name}: {choice.reason}", ["precision", "first run (s)"], rows)
    return Report({"backend": choice.name, "reason": choice.reason, "seconds": seconds}, [table])
