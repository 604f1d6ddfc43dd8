"""Whole scans as CUDA graphs: a thousand small launches become one.

A graph has its own memory and one fixed shape. A scan leases a graph from its forward to the end of its backward, so
that two scans in flight never share one; results are copied out. The first scan of a shape is not captured, because
many shapes occur only once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

Recorded = TypeVar("Recorded")

CAPACITY = 8  # graphs that are kept; a scan that finds no place goes launch by launch
_seen: set[Any] = set()
_free: dict[Any, list[Captured]] = {}  # the key used last is the last
_count = 0


def wanted(device: torch.device) -> bool:
    """True if scans should be captured: if STACK_LM_CUDA_GRAPHS=1 and no other capture is in progress."""
    on = os.environ.get("STACK_LM_CUDA_GRAPHS") == "1" and device.type == "cuda"
    return on and not torch.cuda.is_current_stream_capturing()


def record(function: Callable[[], Recorded]) -> tuple[Callable[[], None], Recorded]:
    """Capture a function's work on its memory as a graph.

    Returns:
        A function that replays the graph, and the result, which each replay fills anew.
    """
    stream, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(stream)
    with torch.cuda.stream(side):
        function()  # compiles the kernels, and sets up what libraries set up once
    stream.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # loaders' threads may go on
        result = function()
    return graph.replay, result


class Captured:
    """A captured scan and optionally its backward, with their own memory.

    Args:
        launches: `scan` or `given`, whose `forward` and `backward` are captured.
        settings: of the scan.
        given: the first scan's inputs; all later scans have the same shapes.
        differentiable: whether a backward may follow.
    """

    def __init__(self, launches: ModuleType, settings: Any, given: tuple[Tensor, ...], differentiable: bool) -> None:
        self.given = launches.Given(*(tensor.clone() for tensor in given))
        self.run, (self.results, kept) = record(lambda: launches.forward(settings, self.given))
        if differentiable:
            self.run()  # the backward is tried out before it is captured, and walks over the log
            self.grads = launches.Results(*(torch.zeros_like(result) for result in self.results))
            self.run_back, self.grad_given = record(lambda: launches.backward(settings, self.given, kept, self.grads))

    def forward(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The results of `launches.forward`."""
        for own, tensor in zip(self.given, given, strict=True):
            own.copy_(tensor)
        self.run()
        return tuple(result.clone() for result in self.results)

    def backward(self, grads: tuple[Tensor, ...]) -> list[Tensor | None]:
        """`launches.backward` of the last `forward`."""
        for own, tensor in zip(self.grads, grads, strict=True):
            own.copy_(tensor)
        self.run_back()
        return [None if grad is None else grad.clone() for grad in self.grad_given]


class Lease:
    """Exclusive use of a captured scan for the lifetime of this object."""

    def __init__(self, key: Any, captured: Captured) -> None:
        self.key, self.captured = key, captured

    def __del__(self) -> None:
        _free.setdefault(self.key, []).append(self.captured)


def lease(launches: ModuleType, settings: Any, given: tuple[Tensor, ...], differentiable: bool) -> Lease | None:
    """A captured scan of these settings and shapes, or None if the scan should run launch by launch."""
    global _count
    first = given[0]
    stream = torch.cuda.current_stream(first.device).cuda_stream if first.is_cuda else 0
    shapes = tuple((tensor.shape, tensor.dtype) for tensor in given)
    key = (launches.__name__, repr(settings), shapes, first.device, stream, differentiable)
    if key not in _seen:
        _seen.add(key)
        return None
    free = _free.pop(key, [])
    if free:
        captured = free.pop()
        _free[key] = free
        return Lease(key, captured)
    if _count >= CAPACITY:
        oldest = next((other for other, captures in _free.items() if captures), None)
        if oldest is None:
            return None
        _free[oldest].pop()
        _count -= 1
    captured = Captured(launches, settings, given, differentiable)
    _count += 1
    return Lease(key, captured)
