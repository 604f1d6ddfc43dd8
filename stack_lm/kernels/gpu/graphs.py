"""Whole scans as CUDA graphs: a thousand small launches become one.

A graph has its own memory and one fixed shape. A scan leases a graph from its forward to the end of its backward, so
that two scans in flight never share one; results are copied out. The first scan of a shape is not captured, because
many shapes occur only once. So that batches of sentences have few shapes, their lengths are rounded up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..protocol import CUDA_GRAPHS
from . import scan

Recorded = TypeVar("Recorded")

STEPS = 8  # captured scans have a multiple of this many steps
# All that is kept: so many graphs, and so much of a device's memory. A scan that finds no place goes launch by launch;
# a graph makes place if so many scans went by without it, as a capture takes as long as many scans.
CAPACITY, SHARE, IDLE = 64, 0.25, 1000
_seen: set[Any] = set()
_held: list[Captured] = []
_scans = 0
_cramped = False  # a capture has found too little memory


def wanted(device: torch.device) -> bool:
    """True if scans should be captured: if STACK_LM_CUDA_GRAPHS=1 and no other capture is in progress."""
    on = os.environ.get(CUDA_GRAPHS) == "1" and device.type == "cuda"
    return on and not torch.cuda.is_current_stream_capturing()


def steps(length: int, device: torch.device) -> int:
    """The number of steps of a scan: rounded up if it may be captured."""
    return -(-length // STEPS) * STEPS if wanted(device) else length


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
        key: what it can be used for.
        settings: of the scan.
        given: the first scan's inputs; all later scans have the same shapes.
        differentiable: whether a backward may follow.

    Attributes:
        size: its memory, in bytes.
        leased: whether a scan is using it.
        used: the number of the last scan that used it.
    """

    def __init__(self, key: Any, settings: Any, given: tuple[Tensor, ...], differentiable: bool) -> None:
        device = given[0].device
        before = _allocated(device)
        self.key, self.leased, self.used = key, False, 0
        self.given = scan.Given(*(tensor.clone() for tensor in given))
        self.run, (self.results, kept) = record(lambda: scan.forward(settings, self.given))
        if differentiable:
            self.run()  # the backward is tried out before it is captured, and walks over the log
            self.grads = scan.Results(*(torch.zeros_like(result) for result in self.results))
            self.run_back, self.grad_given = record(lambda: scan.backward(settings, self.given, kept, self.grads))
        self.size = _allocated(device) - before

    def forward(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The results of `scan.forward`."""
        for own, tensor in zip(self.given, given, strict=True):
            own.copy_(tensor)
        self.run()
        return tuple(result.clone() for result in self.results)

    def backward(self, grads: tuple[Tensor, ...]) -> list[Tensor | None]:
        """`scan.backward` of the last `forward`."""
        for own, tensor in zip(self.grads, grads, strict=True):
            own.copy_(tensor)
        self.run_back()
        return [None if grad is None else grad.clone() for grad in self.grad_given]


class Lease:
    """Exclusive use of a captured scan for the lifetime of this object."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        captured.leased, captured.used = True, _scans

    def __del__(self) -> None:
        self.captured.leased = False


def lease(settings: Any, given: tuple[Tensor, ...], differentiable: bool) -> Lease | None:
    """A captured scan of these settings and shapes, or None if the scan should run launch by launch."""
    global _scans, _cramped
    _scans += 1
    device = given[0].device
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    shapes = tuple((tensor.shape, tensor.dtype) for tensor in given)
    key = (repr(settings), shapes, device, stream, differentiable)
    if key not in _seen:
        _seen.add(key)
        return None
    captured = next((held for held in _held if held.key == key and not held.leased), None)
    if captured is None:
        if _cramped or not _make_place(device):
            return None
        try:
            captured = Captured(key, settings, given, differentiable)
        except torch.OutOfMemoryError:  # launch by launch it may still fit
            _cramped = True
            return None
        _held.append(captured)
    return Lease(captured)


def _make_place(device: torch.device) -> bool:
    """True if there is place for another capture, perhaps in place of those not used for long."""
    while len(_held) >= CAPACITY or sum(captured.size for captured in _held) >= SHARE * _total(device):
        free = (captured for captured in _held if not captured.leased)
        oldest = min(free, key=lambda captured: captured.used, default=None)
        if oldest is None or _scans - oldest.used < IDLE:
            return False
        _held.remove(oldest)
    return True


def _allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _total(device: torch.device) -> float:
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else float("inf")
