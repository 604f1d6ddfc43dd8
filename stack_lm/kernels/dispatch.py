"""Backends of the cell's scan: which there are, which one runs, and why.

"reference" is the definition in `stack_lm.layers.cell`, step by step in torch. "numba" (CPU) and "triton" (GPU) compute
the same in one differentiable function per sequence. Each of the two is a module with

    obstacle(cell, device, dtype) -> str | None     why it cannot run this cell, in a few words, or None
    scan(cell, inputs, state, mask, noise, with_readings) -> (outputs [B, T, H], readings [B, T, R] or None, last state)

and, if it runs buffered networks,

    scan_buffered(cell, inputs, state, mask, noise) -> (outputs, last state), of inputs in a `layout.Buffered`

that is loaded when it is first needed. Nothing about the backend is part of a model's configuration.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from ..controls import ActionProjection
from ..errors import InputError
from .plain import alteration, alteration_of

if TYPE_CHECKING:
    from ..layers.cell import CellState, StackRNNCell
    from .layout import Buffered

VARIABLE = "STACK_LM_SCAN_BACKEND"
_MODULES = {"numba": "cpu.backend", "triton": "gpu.backend"}
BACKENDS = ("auto", "reference", *_MODULES)
# NOTE: the Triton scan has been run in Triton's interpreter and compiled for GPUs, but not run on one; until its tests
# have passed there it has to be named.
_FASTEST = {"cpu": "numba"}
# Multiply-adds of a scan's forward pass from which on torch's LSTM has its threads wait for each other at every step.
_WORK_OF_THREADS = 100_000_000


class BackendChoice(NamedTuple):
    """A backend's name, and why it is the one that runs."""

    name: str
    reason: str


class Backend(Protocol):
    """A compiled scan."""

    def obstacle(self, cell: StackRNNCell, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why it cannot run this cell, or None."""

    def scan(
        self,
        cell: StackRNNCell,
        inputs: Tensor,
        state: CellState,
        mask: Tensor | None,
        noise: Tensor | None = None,
        with_readings: bool = False,
    ) -> tuple[Tensor, Tensor | None, CellState]:
        """Equals the reference in outputs, states and every gradient."""

    def scan_buffered(
        self, cell: StackRNNCell, inputs: Buffered, state: CellState, mask: Tensor | None, noise: Tensor | None = None
    ) -> tuple[Tensor, CellState]:
        """The same for inputs in a buffer; a backend need not have it."""


def load(name: str) -> Backend:
    """The module of a compiled backend."""
    return cast(Backend, import_module(f"{__package__}.{_MODULES[name]}"))


def check_name(name: str) -> str:
    """Find names that are no backend.

    Raises:
        ValueError: naming those that there are.
    """
    if name not in BACKENDS:
        raise ValueError(f"scan_backend must be one of {', '.join(BACKENDS)}; got {name!r}")
    return name


def choose(
    cell: StackRNNCell,
    device: torch.device,
    dtype: torch.dtype,
    *,
    has_mask: bool = False,
    all_layers: bool = False,
    single_step: bool = False,
    n_steps: int = 0,
    several_models: bool = False,
    buffer_projection: nn.Module | Literal[False] | None = False,
) -> BackendChoice:
    """The backend for a cell: the one it is set to, or the environment names, or the fastest that can run.

    Args:
        device, dtype: of the inputs.
        has_mask: whether there is padding.
        all_layers: whether the outputs of every controller layer are wanted.
        single_step: whether it is one step, without gradients, as in generation.
        n_steps: of all sequences together; 0 where that is not known.
        several_models: whether `torch.func.vmap` runs several at once, of which torch's own networks know nothing.
        buffer_projection: of a buffered network, whose inputs are read from a buffer, the layer from the controller's
            output to the strengths of its buffers, if it has one; False for other networks.

    Raises:
        ValueError: if a backend that was named cannot run.
        InputError: if the environment names one that there is not.
    """
    named, by = cell.scan_backend, "as set"
    if named is None:
        named, by = os.environ.get(VARIABLE, "auto"), f"as {VARIABLE} says"
        if named not in BACKENDS:
            raise InputError(f"{VARIABLE}={named!r} is no backend; there are {', '.join(BACKENDS)}")
    if named == "reference":
        return BackendChoice(named, by)
    if named != "auto":
        reason = _obstacle(named, cell, device, dtype, all_layers, buffer_projection)
        if reason is not None:
            raise ValueError(f"scan_backend={named!r}, {by}, cannot run this: {reason}")
        return BackendChoice(named, by)
    steps = cell.memory.actions or has_mask or all_layers or several_models or cell.bare_controller.fused is None
    if buffer_projection is False and not steps:
        return _without_memory(cell, device, dtype, single_step, n_steps)
    if single_step:
        return BackendChoice("reference", "for a single step a compiled sequence is more to set up than to run")
    if device.type not in _FASTEST:
        ask = '; set_scan_backend("triton") has one that is new' if device.type == "cuda" else ""
        return BackendChoice("reference", f"no compiled scan is the default on {device.type}{ask}")
    name = _FASTEST[device.type]
    reason = _obstacle(name, cell, device, dtype, all_layers, buffer_projection)
    if reason is None:
        return BackendChoice(name, f"the fastest on {device.type}")
    return BackendChoice("reference", f"{name} cannot run this: {reason}")


def _without_memory(
    cell: StackRNNCell, device: torch.device, dtype: torch.dtype, single_step: bool, n_steps: int
) -> BackendChoice:
    """Torch's kernel for a whole sequence, unless the compiled scan is faster."""
    fused, name = cell.bare_controller.fused, _FASTEST.get(device.type)
    own = f"without a memory it is torch's own {fused}"
    if name is None or single_step or _obstacle(name, cell, device, dtype, False, False) is not None:
        return BackendChoice("reference", own)
    if fused != "lstm":
        return BackendChoice(name, f"faster than torch's own {fused}")
    threads = torch.get_num_threads()
    if threads == 1 or not torch.is_grad_enabled():
        return BackendChoice("reference", own)
    least = -(-_WORK_OF_THREADS // sum(parameter.numel() for parameter in cell.controller.parameters()))
    if n_steps < least:
        return BackendChoice(
            "reference", f"{own}; with {threads} threads, training on {least:,} or more steps of a batch is {name}'s"
        )
    return BackendChoice(name, "as fast as torch's own lstm, whose threads wait for each other at every step")


@cache
def _installed(name: str) -> bool:
    return find_spec(name) is not None


def _obstacle(
    name: str,
    cell: StackRNNCell,
    device: torch.device,
    dtype: torch.dtype,
    all_layers: bool,
    buffer_projection: nn.Module | Literal[False] | None,
) -> str | None:
    if not _installed(name):
        return f"{name} is not installed (pip install {name})"
    if all_layers and cell.bare_controller.num_layers > 1:
        return "it keeps the outputs of the last controller layer only, and those of all layers were asked for"
    if torch.compiler.is_compiling():
        return "torch.compile cannot look into it"
    if buffer_projection is not False and not hasattr(load(name), "scan_buffered"):
        return "it has no input buffer"
    if buffer_projection:
        reason = alteration_of(buffer_projection, "buffer_projection", ActionProjection)
        if reason is not None:
            return reason
    return alteration(cell) or load(name).obstacle(cell, device, dtype)
