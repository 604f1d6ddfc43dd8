"""The cell's scan on a GPU: torch before and after, Triton kernels in between, as one differentiable function."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...controls import Controls
from ...emission import Activation, ExpectedValue, Fixed, Sigmoid
from ...memory import Memory, NeuralDeque, NeuralQueue, NeuralStack, NoMemory, under_transform
from ..derivatives import first_derivative_only
from ..layout import CONTROLLERS, States, gather_states, gather_weights, next_state
from ..protocol import CellState, Controlled, Inputs, MemoryState, System

if TYPE_CHECKING:
    from .scan import Settings

_MEMORIES = (NoMemory, NeuralStack, NeuralQueue, NeuralDeque)
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def obstacle(system: System, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why this backend cannot run a system, in one line; None if it can.

    Args:
        system: what is to run.
        device: where: a CUDA device, or the CPU if TRITON_INTERPRET=1 was set, for tests.
        dtype: of its weights.
    """
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it runs on CUDA devices, and this is on {device.type}"
    if under_transform():
        return "it has none of torch.func's transforms"
    if dtype not in _DTYPES:
        return f"it runs in {', '.join(str(d).removeprefix('torch.') for d in _DTYPES)}, and this is {dtype}"
    driver = system.driver
    if not isinstance(driver, Controlled):
        return "it has no scan of given vectors"
    if driver.buffer is not None:
        return "it has no input buffer"
    controller = driver.controller
    if type(controller) not in CONTROLLERS:
        return f"it has no {type(controller).__name__}"
    if type(system.memory) not in _MEMORIES:
        return f"it has no {type(system.memory).__name__}"
    if controller.reading_entry != "input" and controller.weight_reading is not None:
        return f'it has no reading_entry="{controller.reading_entry}"'
    for field in system.memory.actions:
        emission = type(system.controls.emission(field.name))
        if emission not in (Activation, Fixed, Sigmoid, ExpectedValue):
            return f"it has no {emission.__name__}"
    return None


def scan(
    system: System, inputs: Inputs, state: CellState, with_readings: bool = False
) -> tuple[Tensor, Tensor | None, CellState]:
    """Run a sequence; see `stack_lm.kernels.dispatch.Backend`.

    Products run in autocast's dtype where it is on. All else is at least float32, strengths and their sums above all.
    """
    from .scan import Given, Results

    controller, values, mask = system.controller, inputs.values, inputs.mask
    if not values.is_floating_point():
        values = F.one_hot(values, controller.input_size).to(controller.weight("weight_ih", 0).dtype)
    batch_size, length = values.shape[:2]
    layers, size = controller.num_layers, controller.hidden_size
    weights, first = gather_weights(controller, system.controls), gather_states(controller, state)
    # Projected with the steps first, the inputs of all layers lie in the order in which the steps need them.
    projected = F.linear(values.transpose(0, 1), weights.inputs.flatten(0, 1))
    product, exact = projected.dtype, torch.promote_types(weights.inputs.dtype, torch.float32)
    dropping = layers > 1 and controller.dropout > 0 and controller.training
    ones = projected.new_ones(layers - 1, *((length, batch_size, size) if dropping else (0, 0, 0)))
    given = Given(
        projected=projected.contiguous(),
        active=projected.new_zeros(0, 0, dtype=torch.uint8) if mask is None else mask.t().to(torch.uint8).contiguous(),
        dropped=F.dropout(ones, controller.dropout, dropping),
        first=weights.first.to(product).contiguous(),
        rest=weights.rest.to(product).contiguous(),
        biases=weights.biases.to(exact).contiguous(),
        controls=weights.controls.to(product).contiguous(),
        controls_bias=weights.controls_bias.to(exact).contiguous(),
        hidden=first.hidden.transpose(0, 1).to(exact).contiguous(),
        cell=first.cell.transpose(0, 1).to(exact).contiguous(),
        reading=first.reading.to(exact).contiguous(),
        values=first.values.to(exact).contiguous(),
        strengths=first.strengths.to(exact).contiguous(),
    )
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    results = Results(
        *_Scan.apply(_settings(controller, system.memory, system.controls, with_readings), differentiable, *given)
    )
    dtype = weights.inputs.dtype
    last = States(
        hidden=results.hidden.transpose(0, 1).to(dtype),
        cell=results.cell.transpose(0, 1).to(dtype),
        reading=results.reading.to(dtype),
        values=results.values.to(dtype),
        strengths=results.strengths,
    )
    outputs, readings = (part.transpose(0, 1).to(dtype) for part in (results.outputs, results.readings))
    return outputs, readings if with_readings else None, next_state(state, last)


def scan_given(system: System, inputs: Inputs, state: MemoryState) -> tuple[Tensor, MemoryState]:
    """Never called; see `obstacle`."""
    raise NotImplementedError


def _settings(controller: Any, memory: Memory[Any, Any], controls: Controls, with_readings: bool) -> Settings:
    from .scan import Settings

    stack: dict[str, Any] | None = None
    if not isinstance(memory, NoMemory):
        stack = {
            "DEQUE": isinstance(memory, NeuralDeque),
            "AT_TOP": not isinstance(memory, NeuralQueue),
        }
        for field in memory.actions:
            emission = controls.emission(field.name)
            if isinstance(emission, Activation):
                stack["TANH"] = emission.name == "tanh"
                continue
            # A deque has the same control at both ends.
            name = field.name.split("_")[0].upper()
            fixed = {"PUSH": "PUSHED", "POP": "POPPED", "READ": "READS"}[name]
            stack |= {name: emission.width, fixed: emission.value if isinstance(emission, Fixed) else 0.0}
    return Settings(CONTROLLERS[type(controller)], controller.recurrent, controller.skips, with_readings, stack)


class _Scan(torch.autograd.Function):
    """`scan.forward` and `scan.backward`, launch by launch or as CUDA graphs."""

    @staticmethod
    def forward(ctx: Any, settings: Settings, differentiable: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        from . import graphs
        from . import scan as launches

        given = launches.Given(*tensors)
        ctx.settings, ctx.lease = settings, None
        if graphs.wanted(given.projected.device):
            ctx.lease = graphs.lease(settings, given, differentiable)
        if ctx.lease is not None:
            return ctx.lease.captured.forward(given)
        results, kept = launches.forward(settings, given)
        if differentiable:
            ctx.save_for_backward(*given, *kept)
        return results

    @staticmethod
    @first_derivative_only("the compiled scan", 'set_scan_backend("reference") has one that can')
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from . import scan as launches

        of_results = launches.Results(*(grad.contiguous() for grad in grads))
        if ctx.lease is not None:
            return None, None, *ctx.lease.captured.backward(of_results)
        saved = ctx.saved_tensors  # once: under activation checkpointing each access unpacks them anew
        given = launches.Given(*saved[: len(launches.Given._fields)])
        kept = launches.Kept(*saved[len(given) :])
        return None, None, *launches.backward(ctx.settings, given, kept, of_results)
