"""Scans of given vectors, all steps of a block at once: emission in torch, then the memory as one function."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ...memory import NeuralDeque, NeuralQueue, NeuralStack, StackState, under_transform
from ...memory.base import newest
from ...memory.strength import StrengthMemory
from ..derivatives import first_derivative_only
from ..heads import heads_of, one_head, readings_of, repeated, state_from_batch, state_to_batch, to_batch
from ..protocol import GivenVectors, Inputs, MemoryState, System
from .gradients import backward
from .intervals import Amounts, Elements, Heights, Kind, on_grid
from .scan import Run, Sequence, last_strengths, run

_ENDS = {NeuralStack: (True, False, False), NeuralQueue: (False, True, False), NeuralDeque: (True, True, True)}


def obstacle(system: System, device: torch.device, dtype: torch.dtype) -> str | None:
    """The reason why this backend cannot run a system, or None; see `stack_lm.kernels.dispatch.Backend`."""
    if not isinstance(system.driver, GivenVectors):
        return "a controller needs each reading before its next step"
    if type(system.memory) not in _ENDS:
        return f"it has no {type(system.memory).__name__}"
    if under_transform():
        return "it supports no transform of torch.func"
    if device.type == "mps":
        return "heights are in float64, which mps lacks"
    return None


def scan_given(system: System, inputs: Inputs, state: MemoryState) -> tuple[Tensor, MemoryState]:
    """Run a sequence of given vectors; see `stack_lm.kernels.dispatch.Backend`."""
    actions, _ = system.controls.over_time(inputs.values, inputs.noise)
    memory, readings = over_time(cast("StrengthMemory[Any]", system.memory), state.memory, actions, inputs.mask)
    readings = readings.to(state.reading.dtype)
    return readings, MemoryState(memory, newest(readings, inputs.mask, state.reading))


def over_time(
    memory: StrengthMemory[Any], state: StackState, actions: Any, mask: Tensor | None = None
) -> tuple[StackState, Tensor]:
    """Run a stack, queue or deque over given actions.

    Args:
        memory: one of the three.
        state: before the first step.
        actions: of all steps, [B, T, ...].
        mask: [B, T] bool, False at padding.

    Returns:
        The last state, and the readings [B, T, R], zeros at padding.
    """
    heads, ends = heads_of(memory), len(memory.ends)
    if heads > 1:
        parts = (*map(memory.split, actions[:ends]), *actions[ends:])  # values come first
        of_heads = type(actions)(*(to_batch(part, heads) for part in parts))
        last, readings = over_time(one_head(memory), state_to_batch(state), of_heads, repeated(mask, heads))
        return state_from_batch(last, heads), readings_of(readings, heads, ends)
    top, bottom, both = _ENDS[type(memory)]
    kind = Kind(top, bottom, both, memory.read_order == "before_push")
    if both:
        values = torch.cat((actions.push_value_bottom.flip(1), state.values, actions.push_value_top), dim=1)
        given = Amounts(*actions[2:])
    else:
        values = torch.cat((state.values, actions.push_value), dim=1)
        push, pop, read = actions[1:]
        given = Amounts(
            push, None, pop if top else None, None if top else pop, read if top else None, None if top else read
        )
    readings, strengths = _Scan.apply(kind, mask, values, state.strengths, *given)
    return StackState(values, strengths), readings


def _sequence(kind: Kind, mask: Tensor | None, values: Tensor, strengths: Tensor, given: Amounts) -> Sequence:
    rounded = on_grid(torch.stack([part for part in given if part is not None]))  # at once: few launches
    if mask is not None:
        rounded = rounded.masked_fill(~mask, 0)
    parts = iter(rounded)
    return Sequence(kind, values, on_grid(strengths), given.map(lambda _: next(parts)), mask)


class _Scan(torch.autograd.Function):
    """`scan.run`, and its gradients by hand."""

    @staticmethod
    def forward(
        ctx: Any, kind: Kind, mask: Tensor | None, values: Tensor, strengths: Tensor, *given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        amounts: Any = given
        sequence = _sequence(kind, mask, values, strengths, Amounts(*amounts))
        with torch.cuda.device_of(values):  # Triton launches on the current device
            done = run(sequence)
        flat = [part for group in (*done.heights, *done.carried, done.last) for part in group]
        ctx.kind, ctx.blocks = kind, len(done.heights)
        ctx.save_for_backward(mask, values, strengths, *given, *flat)
        return done.readings, last_strengths(sequence, done.last).to(strengths.dtype)

    @staticmethod
    @first_derivative_only("the parallel scan", 'set_scan_backend(model, "reference") selects one that can')
    def backward(ctx: Any, grad_readings: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        mask, values, strengths, *saved = ctx.saved_tensors
        given, flat = Amounts(*saved[: len(Amounts._fields)]), iter(saved[len(Amounts._fields) :])
        heights = [Heights(*(next(flat) for _ in Heights._fields)) for _ in range(ctx.blocks)]
        *carried, last = (Elements(*(next(flat) for _ in Elements._fields)) for _ in range(ctx.blocks + 1))
        sequence = _sequence(ctx.kind, mask, values, strengths, given)
        done = Run(grad_readings, heights, carried, last)
        with torch.cuda.device_of(values):
            grad_values, grad_first, amounts = backward(sequence, done, grad_readings, grad_last)
        if mask is not None:
            amounts = amounts.map(lambda grad: grad.masked_fill(~mask, 0))
        of_amounts = amounts.map(lambda grad: grad.to(given.push_top.dtype))
        return None, None, grad_values, grad_first.to(strengths.dtype), *of_amounts
