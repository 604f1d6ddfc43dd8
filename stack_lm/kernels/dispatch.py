"""The backends of scans, and the choice between them with its reason.

"reference" is the definition in `stack_lm.nn`, step by step in torch. "numba" (CPU), "triton" (GPU, with a controller)
and "parallel" (given vectors, on any device) compute the same in one differentiable function per sequence. Each is a
module with the functions of `Backend` that it supports, loaded on first use. A model's configuration does not contain
the backend.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from ..core.errors import InputError
from ..memory import Memory
from .plain import alteration
from .protocol import CellState, GivenVectors, Inputs, MemoryState, PrecisionAtRisk, Request, System

VARIABLE = "STACK_LM_SCAN_BACKEND"
_MODULES = {"numba": "cpu.backend", "triton": "gpu.backend", "parallel": "parallel.backend"}
BACKENDS = ("auto", "reference", *_MODULES)
_FASTEST = {"cpu": "numba", "cuda": "triton"}
# Multiply-adds of a scan's forward pass from which on torch's LSTM has its threads wait for each other at every step.
_WORK_OF_THREADS = 100_000_000


class BackendChoice(NamedTuple):
    """The chosen backend, and the reason for the choice."""

    name: str
    reason: str


class Backend(Protocol):
    """A compiled scan, equal to the reference in outputs, states and every gradient."""

    def obstacle(self, system: System, device: torch.device, dtype: torch.dtype) -> str | None:
        """The reason why this backend cannot run a system, in a few words; None if it can."""

    def scan(
        self, system: System, inputs: Inputs, state: CellState, output_readings: bool = False
    ) -> tuple[Tensor, Tensor | None, CellState]:
        """The controller's outputs [B, T, H], zeros at padding; the readings [B, T, R], if wanted; the last state."""

    def scan_given(self, system: System, inputs: Inputs, state: MemoryState) -> tuple[Tensor, MemoryState]:
        """The readings [B, T, R] of given vectors, zeros at padding, and the last state."""


def load(name: str) -> Backend:
    """The module of a compiled backend."""
    return cast(Backend, import_module(f"{__package__}.{_MODULES[name]}"))


def run_compiled(name: str, system: System, *arguments: Any) -> Any:
    """Run a compiled scan, `Backend.scan` or `scan_given`; None if the precision of this batch needs the reference."""
    backend = load(name)
    try:
        if isinstance(system.driver, GivenVectors):
            return backend.scan_given(system, *arguments)
        return backend.scan(system, *arguments)
    except PrecisionAtRisk:
        return None


def check_name(name: str) -> str:
    """Validate and return the name of a backend.

    Raises:
        ValueError: for an unknown name; the message lists the known ones.
    """
    if name not in BACKENDS:
        raise ValueError(f"scan_backend must be one of {', '.join(BACKENDS)}; got {name!r}")
    return name


def choose(system: System, request: Request) -> BackendChoice:
    """The backend of a scan: the one set in code, else the environment's, else the fastest that can run.

    Raises:
        ValueError: if a named backend cannot run.
        InputError: if the environment names an unknown backend.
    """
    named, by = request.backend, "as set"
    if named is None:
        named, by = os.environ.get(VARIABLE, "auto"), f"as set by {VARIABLE}"
        if named not in BACKENDS:
            raise InputError(f"{VARIABLE} must be one of {', '.join(BACKENDS)}; got {named!r}")
    if named == "reference":
        return BackendChoice(named, by)
    if request.traced:
        return _traced(system, request, named, by)
    if named != "auto":
        reason = _obstacle(named, system, request)
        if reason is not None:
            raise ValueError(f"scan_backend={named!r}, {by}, cannot run this: {reason}")
        return BackendChoice(named, by)
    if _is_torchs_own(system, request):
        return _without_memory(system, request)
    if request.single_step:
        return BackendChoice("reference", "for a single step, a compiled sequence costs more to set up than to run")
    device = request.device.type
    names = [_FASTEST[device]] if device in _FASTEST else []
    if isinstance(system.driver, GivenVectors):
        names = [*names, "parallel"] if device == "cpu" else ["parallel"]
    why = "" if names else f"no compiled scan runs on {device}"
    for name in names:
        reason = _obstacle(name, system, request)
        if reason is None:
            return BackendChoice(name, f"the fastest on {device}")
        why = why or f"{name} cannot run this: {reason}"  # parallel, the last, lacks most memories
    if isinstance(system.driver, GivenVectors) and type(system.memory).scan is not Memory.scan:
        return BackendChoice("reference", f"a {type(system.memory).__name__} itself scans all steps at once")
    if request.n_steps and os.environ.get(VARIABLE) is None:
        _warn(f"a {type(system.memory).__name__} runs step by step on the reference, which is slower: {why}")
    return BackendChoice("reference", why)


@cache  # once for each reason
def _warn(message: str) -> None:
    logging.getLogger(__name__).warning(message)


def _traced(system: System, request: Request, named: str, by: str) -> BackendChoice:
    """The backend under torch.compile: one operator, which runs the usual backend, or the reference's steps."""
    reason: str | None
    if request.several_models:
        reason = "under a transform of torch.func its steps are traced"
    elif request.all_layers and system.controller.num_layers > 1:
        reason = "the outputs of all layers were requested"
    else:
        reason = request.not_operator or alteration(system)
    if reason is None and not (request.single_step and named == "auto"):
        return BackendChoice("operator", "one operator, which torch.compile does not trace")
    if named != "auto":
        raise ValueError(f"scan_backend={named!r}, {by}, cannot run this under torch.compile: {reason}")
    return BackendChoice("reference", f"torch.compile traces the steps: {reason or 'there is only one'}")


def _is_torchs_own(system: System, request: Request) -> bool:
    """True if torch has a kernel for the whole sequence."""
    if system.memory.actions or system.buffer or isinstance(system.driver, GivenVectors):
        return False
    if request.has_mask or request.all_layers or request.several_models:
        return False
    return system.controller.fused is not None


def _without_memory(system: System, request: Request) -> BackendChoice:
    """Torch's kernel for a whole sequence, unless the compiled scan is faster: on a CPU it may be."""
    fused, name = system.controller.fused, "numba"
    own = f"without a memory it is torch's own {fused}"
    if request.device.type != "cpu" or request.single_step or _obstacle(name, system, request) is not None:
        return BackendChoice("reference", own)
    if fused != "lstm":
        return BackendChoice(name, f"faster than torch's own {fused}")
    threads = torch.get_num_threads()
    if threads == 1 or not torch.is_grad_enabled():
        return BackendChoice("reference", own)
    least = -(-_WORK_OF_THREADS // sum(parameter.numel() for parameter in system.controller.parameters()))
    if request.n_steps < least:
        return BackendChoice(
            "reference", f"{own}; with {threads} threads, training on {least:,} or more steps of a batch is {name}'s"
        )
    return BackendChoice(name, "as fast as torch's own lstm, whose threads wait for each other at every step")


@cache
def _installed(name: str) -> bool:
    return find_spec(name) is not None


def _obstacle(name: str, system: System, request: Request) -> str | None:
    if name != "parallel" and not _installed(name):
        return f"{name} is not installed (pip install {name})"
    if request.all_layers and system.controller.num_layers > 1:
        return "it keeps the outputs of the last controller layer only, and those of all layers were requested"
    return alteration(system) or load(name).obstacle(system, request.device, request.dtype)
