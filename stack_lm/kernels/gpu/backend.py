"""Scans on a GPU: torch before and after, Triton kernels in between, as one differentiable function."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...memory import Memory, NeuralDeque, NeuralQueue, NeuralStack, NoMemory, under_transform
from ...memory.controls import Controls
from ...memory.emission import Activation, ExpectedValue, Fixed, Sigmoid
from ...memory.strength import StrengthMemory
from ..derivatives import first_derivative_only
from ..layout import DIRECT, DROPOUT, controller_kind
from ..protocol import CellState, Controlled, Inputs, System
from .tensors import States, gather_states, gather_weights, next_state

_MEMORIES = (NoMemory, NeuralStack, NeuralQueue, NeuralDeque)
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def obstacle(system: System, device: torch.device, dtype: torch.dtype) -> str | None:
    """The reason why this backend cannot run a system, in one line; None if it can.

    Args:
        system: the system to run.
        device: a CUDA device, or the CPU if TRITON_INTERPRET=1 is set, for tests.
        dtype: of its weights.
    """
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it runs on CUDA devices, and this is on {device.type}"
    if under_transform():
        return "it supports no transform of torch.func"
    if dtype not in _DTYPES:
        return f"it runs in {', '.join(str(d).removeprefix('torch.') for d in _DTYPES)}, and this is {dtype}"
    driver = system.driver
    if isinstance(driver, Controlled):
        controller = driver.controller
        if driver.buffer is not None:
            return "it has no input buffer"
        if controller_kind(controller) in (None, DIRECT):
            return f"it has no {type(controller).__name__}"
        if controller.reading_entry != "input" and controller.weight_reading is not None:
            return f'it has no reading_entry="{controller.reading_entry}"'
    else:
        return "given vectors are run by parallel, all steps at once"
    if type(system.memory) not in _MEMORIES:
        return f"it has no {type(system.memory).__name__}"
    if getattr(system.memory, "num_heads", 1) > 1:
        return "it has one head"
    for field in system.memory.actions:
        emission = system.controls.emission(field.name)
        if type(emission) not in (Activation, Fixed, Sigmoid, ExpectedValue):
            return f"it has no {type(emission).__name__}"
        if isinstance(emission, Activation) and emission.name not in ("tanh", "sigmoid"):
            return f"it has no {emission.name} of pushed values"
    return None


def scan(
    system: System, inputs: Inputs, state: CellState, output_readings: bool = False
) -> tuple[Tensor, Tensor | None, CellState]:
    """Run a sequence; see `stack_lm.kernels.dispatch.Backend`.

    Products run in autocast's dtype where it is on. All else is at least float32, strengths and their sums above all.
    """
    from . import graphs
    from . import scan as launches

    controller, values = system.controller, inputs.values
    if not values.is_floating_point():
        values = F.one_hot(values, controller.input_size).to(controller.parameter_of("weight_ih", 0).dtype)
    batch_size, length = values.shape[:2]
    steps = graphs.steps(length, values.device)
    layers, size = controller.num_layers, controller.hidden_size
    weights, first = gather_weights(controller, system.controls), gather_states(controller, state)
    # Projected with the steps first, the inputs of all layers lie in the order in which the steps need them.
    projected = _lengthen(F.linear(values.transpose(0, 1), weights.inputs.flatten(0, 1)), steps)
    product, exact = projected.dtype, torch.promote_types(weights.inputs.dtype, torch.float32)
    dropping = layers > 1 and controller.dropout > 0 and controller.training
    dropped = inputs.noise.get(DROPOUT)
    if dropped is None:
        ones = projected.new_ones(layers - 1, *((steps, batch_size, size) if dropping else (0, 0, 0)))
        dropped = F.dropout(ones, controller.dropout, dropping)
    else:
        dropped = _lengthen(dropped.permute(1, 2, 0, 3), steps).transpose(0, 1).to(projected.dtype).contiguous()
    given = launches.Given(
        projected=projected.contiguous(),
        active=_active(inputs, steps),
        dropped=dropped,
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
    stack = _stack(system.memory, system.controls) if system.memory.actions else None
    kind = controller_kind(controller)
    assert kind is not None  # `obstacle` has looked
    settings = launches.Settings(kind, controller.recurrent, controller.skips, output_readings, stack)
    results = launches.Results(*_run(settings, given))
    dtype = weights.inputs.dtype
    last = States(
        hidden=results.hidden.transpose(0, 1).to(dtype),
        cell=results.cell.transpose(0, 1).to(dtype),
        reading=results.reading.to(dtype),
        values=_pushed(system.memory, results.values, steps - length),
        strengths=_pushed(system.memory, results.strengths, steps - length),
    )
    outputs, readings = (part[:length].transpose(0, 1).to(dtype) for part in (results.outputs, results.readings))
    return outputs, readings if output_readings else None, next_state(state, last)


def _lengthen(over_time: Tensor, steps: int) -> Tensor:
    """Zeros behind a tensor [T, ...], up to so many steps."""
    missing = steps - len(over_time)
    return F.pad(over_time, [0, 0] * (over_time.dim() - 1) + [0, missing]) if missing else over_time


def _pushed(memory: Memory[Any, Any], elements: Tensor, added: int) -> Tensor:
    """All elements [B, C, ...] but the places of steps that were added, which are at the ends where it pushes."""
    if not added or not memory.actions:
        return elements
    return elements[:, added if isinstance(memory, NeuralDeque) else 0 : -added]


def _active(inputs: Inputs, steps: int) -> Tensor:
    """The mask with time first, of so many steps; [0, 0] if all are of the sequence."""
    batch_size, length = inputs.values.shape[:2]
    if inputs.mask is not None:
        mask = inputs.mask.t().to(torch.uint8)
    elif steps > length:
        mask = torch.ones(length, batch_size, dtype=torch.uint8, device=inputs.values.device)
    else:
        return torch.zeros(0, 0, dtype=torch.uint8, device=inputs.values.device)
    return _lengthen(mask, steps).contiguous()


def _stack(memory: Memory[Any, Any], controls: Controls) -> dict[str, Any]:
    """The constants of the memory's kernels, as far as they depend on it and its controls alone."""
    stack: dict[str, Any] = {
        "DEQUE": isinstance(memory, NeuralDeque),
        "AT_TOP": not isinstance(memory, NeuralQueue),
        "UNREAD": int(isinstance(memory, StrengthMemory) and memory.read_order == "before_push"),
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
    return stack


def _run(settings: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    with torch.cuda.device_of(given[0]):  # Triton launches on the current device
        results: tuple[Tensor, ...] = _Scan.apply(settings, differentiable, *given)
    return results


class _Scan(torch.autograd.Function):
    """`scan.forward` and `scan.backward`, launch by launch or as CUDA graphs."""

    @staticmethod
    def forward(ctx: Any, settings: Any, differentiable: bool, *given: Tensor) -> tuple[Tensor, ...]:
        from . import graphs
        from . import scan as launches

        ctx.settings, ctx.lease = settings, None
        if graphs.wanted(given[0].device):
            ctx.lease = graphs.lease(settings, given, differentiable)
        if ctx.lease is not None:
            return ctx.lease.captured.forward(given)
        results, of_forward = launches.forward(settings, launches.Given(*given))
        if differentiable:
            ctx.save_for_backward(*given, *of_forward)
        return results

    @staticmethod
    @first_derivative_only("the compiled scan", 'set_scan_backend(model, "reference") selects one that can')
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from . import scan as launches

        of_results = launches.Results(*(grad.contiguous() for grad in grads))
        if ctx.lease is not None:
            return None, None, *ctx.lease.captured.backward(of_results)
        saved = ctx.saved_tensors  # once: under activation checkpointing each access unpacks them anew
        n_given = len(launches.Given._fields)
        given, of_forward = launches.Given(*saved[:n_given]), saved[n_given:]
        return None, None, *launches.backward(ctx.settings, given, of_forward, of_results)
