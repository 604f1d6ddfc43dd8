"""Scans on the CPU: torch before and after, compiled code in between, as one differentiable function."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import TransformType, get_interpreter_stack

from ...memory import under_transform
from ..heads import (
    OneHead,
    heads_of,
    readings_of,
    readings_to_batch,
    repeated,
    state_from_batch,
    state_to_batch,
)
from ..layout import DROPOUT, controller_kind
from ..protocol import CellState, GivenVectors, Inputs, MemoryState, System
from . import element_block, nondeterministic_block, superposition_block  # noqa: F401 - they register themselves
from .autograd import First, Given, Tensors, differentiable
from .blocks import Block, block_of
from .given import GivenPlan
from .plan import ControllerPlan, parameters_of


def obstacle(system: System, device: torch.device, dtype: torch.dtype) -> str | None:
    """The reason why this backend cannot run a system, or None; see `stack_lm.kernels.dispatch.Backend`."""
    if device.type != "cpu":
        return f"the inputs are on {device.type}"
    if dtype not in (torch.float32, torch.float64) or any(p.dtype != dtype for p in _parameters(system)):
        return f"numbers must be all float32 or all float64; the inputs are {str(dtype).removeprefix('torch.')}"
    if under_transform() and [level.key() for level in get_interpreter_stack() or ()] != [TransformType.Vmap]:
        return "of torch.func's transforms it supports only vmap, one at a time"
    block = block_of(system.memory)
    if block is None:
        return f"the memory is a {type(system.memory).__name__}"
    driver = system.driver
    if isinstance(driver, GivenVectors):
        if not system.memory.actions:
            return "there is no memory"
    elif heads_of(system.memory) > 1:
        return "with a controller, the memory has one head"
    elif controller_kind(driver.controller) is None:
        return f"the controller is a {type(driver.controller).__name__}"
    of_one: Any = system.controls if heads_of(system.memory) == 1 else OneHead(system.controls)
    return block.obstacle(of_one)


def _parameters(system: System) -> Iterator[Tensor]:
    """The parameters of a system, ten times faster than `Module.parameters`."""
    modules: list[nn.Module | None] = [system.controls.projection]
    if not isinstance(system.driver, GivenVectors):
        modules += [system.controller, system.controller.first_state]
    for module in modules:
        if module is not None:
            yield from (parameter for parameter in module._parameters.values() if parameter is not None)


def scan(
    system: System, inputs: Inputs, state: CellState, output_readings: bool = False
) -> tuple[Tensor, Tensor | None, CellState]:
    """Run a sequence with a controller; see `stack_lm.kernels.dispatch.Backend`."""
    values, controller, block = inputs.values, system.controller, _block(system)
    batch_size = len(values)
    like = values if values.is_floating_point() else state.reading
    dropped = inputs.noise.get(DROPOUT)
    if dropped is not None:
        dropped = dropped.movedim(2, 1)
    elif controller.dropout and controller.training and controller.num_layers > 1:
        shape = (batch_size, controller.num_layers - 1, inputs.steps, controller.hidden_size)
        dropped = F.dropout(like.new_ones(shape), controller.dropout)
    none = like.new_zeros(batch_size, controller.num_layers, controller.hidden_size)
    parameters = parameters_of(system)
    tensors = Tensors(
        Given(
            values if values.is_floating_point() else values.long(),
            inputs.mask,
            block.noise_of(inputs.noise),
            inputs.held,
            dropped,
        ),
        First(
            state.controller[0].to(like.dtype) if state.controller else none,
            state.controller[1].to(like.dtype) if len(state.controller) > 1 else none[:, :, :0],
            state.reading.to(like.dtype),
            *block.first(state.memory, like),
        ),
        tuple(parameters.values()),
    )
    make = partial(ControllerPlan, system, inputs.steps, output_readings, tuple(parameters))
    results = differentiable(make, tensors, like.dtype, partial(_check_overflow, system, state.memory))
    last = CellState(
        controller=(results.state.hidden, results.state.cell)[: len(state.controller)],
        memory=block.last(state.memory, *results.state.memory),
        reading=results.state.reading,
    )
    return results.outputs, results.readings if output_readings else None, last


def scan_given(system: System, inputs: Inputs, state: MemoryState) -> tuple[Tensor, MemoryState]:
    """Run a memory on given vectors; see `stack_lm.kernels.dispatch.Backend`."""
    values, block, projection = inputs.values, _block(system), system.controls.projection
    logits = values[..., :0] if projection is None else projection(values).to(values.dtype)  # autocast's is another
    heads, mask, first, reading = heads_of(system.memory), inputs.mask, state.memory, state.reading.to(values.dtype)
    if heads > 1:
        one: Any = OneHead(system.controls)
        logits, mask, first = one.logits(logits), repeated(mask, heads), state_to_batch(first)
        reading = readings_to_batch(reading, heads, len(one.memory.ends))
        system = System(one.memory, one, system.driver)
    none = values.new_zeros(len(logits), 0, 0)
    tensors = Tensors(
        Given(logits, mask, block.noise_of(inputs.noise)),
        First(none, none, reading, *block.first(first, values)),
    )
    check = partial(_check_overflow, system, first)
    results = differentiable(partial(GivenPlan, system), tensors, values.dtype, check)
    last, readings, reading = block.last(first, *results.state.memory), results.readings, results.state.reading
    if heads > 1:
        ends = len(one.memory.ends)
        last, readings = state_from_batch(last, heads), readings_of(readings, heads, ends)
        reading = readings_of(reading.unsqueeze(1), heads, ends)[:, 0]
    return readings, MemoryState(last, reading)


def _block(system: System) -> type[Block]:
    block = block_of(system.memory)
    assert block is not None, "see `obstacle`"
    return block


def _check_overflow(system: System, before: object, last: First) -> None:
    """Check the memories of several models for overflow, as layers do after the backend."""
    memory = _block(system).last(before, *(part.flatten(0, 1) for part in last.memory))
    system.memory.check_overflow(memory)
