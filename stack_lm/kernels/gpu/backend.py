"""The cell's scan on a GPU: torch before and after, `triton_scan` in between, as one differentiable function."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...controllers import (
    Controller,
    ElmanController,
    GRUController,
    LinearController,
    LSTMController,
    SigmoidElmanController,
)
from ...controls import ExpectedValue, Fixed, Sigmoid
from ...derivatives import first_derivative_only
from ...memory import NeuralDeque, NeuralQueue, NeuralStack, NoMemory, StackState

if TYPE_CHECKING:
    from ...cell import CellState, StackRNNCell
    from .scan import Settings

# In the order of their numbers in triton_pointwise.
_CONTROLLERS = (LinearController, ElmanController, SigmoidElmanController, GRUController, LSTMController)
_MEMORIES = (NoMemory, NeuralStack, NeuralQueue, NeuralDeque)
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def obstacle(cell: StackRNNCell, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why this backend cannot run a cell, in one line; None if it can.

    Args:
        device: where it is to run: a CUDA device, or the CPU if TRITON_INTERPRET=1 was set, for tests.
        dtype: of its weights.
    """
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it runs on CUDA devices, and this is on {device.type}"
    if dtype not in _DTYPES:
        return f"it runs in {', '.join(str(d).removeprefix('torch.') for d in _DTYPES)}, and this is {dtype}"
    if type(cell.controller) not in _CONTROLLERS:
        return f"it has no {type(cell.controller).__name__}"
    if type(cell.memory) not in _MEMORIES:
        return f"it has no {type(cell.memory).__name__}"
    if cell.controller.reading_entry != "input" and cell.controller.weight_reading is not None:
        return f'it has no reading_entry="{cell.controller.reading_entry}"'
    for control in cell.controls.strengths.values():
        if type(control) not in (Fixed, Sigmoid, ExpectedValue):
            return f"it has no {type(control).__name__}"
    return None


def scan(cell: StackRNNCell, inputs: Tensor, state: CellState, mask: Tensor | None) -> tuple[Tensor, CellState]:
    """Run a sequence; equals the reference scan of `cell` in outputs, states and gradients.

    Products run in autocast's dtype where it is on. All else is at least float32, strengths and their sums above all.

    Args:
        inputs: [B, T, E].
        state: to start from.
        mask: [B, T] bool, or None.

    Returns:
        The outputs [B, T, H] and the last state.
    """
    from .scan import Given

    controller = cell.controller
    batch_size, length = inputs.shape[:2]
    layers, size = controller.num_layers, controller.hidden_size
    weight_dtype = controller.weight_ih_l0.dtype
    # Projected with the steps first, the inputs of all layers lie in the order in which the steps need them.
    projected = controller.project(inputs.transpose(0, 1))
    product, exact = projected.dtype, torch.promote_types(weight_dtype, torch.float32)
    first, rest, biases = _gather_weights(controller)
    none = projected.new_zeros(layers, batch_size, size)
    hidden, cells = (part.transpose(0, 1) for part in (*state.controller, *[none.transpose(0, 1)] * 2)[:2])
    has_memory = isinstance(state.memory, StackState)
    values, strengths = state.memory if has_memory else (inputs.new_zeros(batch_size, 0, 0), none[0, :, :0])
    projection = cell.controls.projection
    controls = none[0, :0] if projection is None else projection.weight
    controls_bias = none.new_zeros(len(controls)) if projection is None or projection.bias is None else projection.bias
    dropping = layers > 1 and controller.dropout > 0 and controller.training
    kept = projected.new_ones(layers - 1, *((length, batch_size, size) if dropping else (0, 0, 0)))
    given = Given(
        projected.contiguous(),
        projected.new_zeros(0, 0, dtype=torch.uint8) if mask is None else mask.t().to(torch.uint8).contiguous(),
        F.dropout(kept, controller.dropout, dropping),
        controls.to(product).contiguous(),
        controls_bias.to(exact).contiguous(),
        *(part.to(product).contiguous() for part in (first, rest)),
        *(part.to(exact).contiguous() for part in (biases, hidden, cells, state.reading, values, strengths)),
    )
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    outputs, hidden, cells, reading, values, strengths = _Scan.apply(_settings(cell), differentiable, *given)
    last = tuple(part.transpose(0, 1).to(weight_dtype) for part in (hidden, cells)[: len(state.controller)])
    elements = StackState(values.to(weight_dtype), strengths) if has_memory else state.memory
    return (
        outputs.transpose(0, 1).to(weight_dtype),
        state._replace(controller=last, memory=elements, reading=reading.to(weight_dtype)),
    )


def _gather_weights(controller: Controller) -> tuple[Tensor, Tensor, Tensor]:
    """A controller's parameters as `triton_scan.Given` wants them, by differentiable operations.

    Returns:
        `first`, `rest` and `biases`. The linear controller has no columns for a state of its own.
    """
    size, gru = controller.hidden_size, isinstance(controller, GRUController)

    def blocks(weight: Tensor, of_state: bool = False) -> Tensor:
        """Rows of a weight, or a bias, as blocks: a GRU's new gate is apart for what comes from below and the state."""
        if not gru:
            return weight
        none = weight.new_zeros(size, *weight.shape[1:])
        return torch.cat((weight[: 2 * size], none, weight[2 * size :]) if of_state else (weight, none))

    matrices, biases = [], []
    for layer in range(controller.num_layers):
        columns = [] if layer == 0 else [blocks(getattr(controller, f"weight_ih_l{layer}"))]
        bias = controller.weight_ih_l0.new_zeros((4 if gru else controller.gates) * size)
        if controller.bias and layer:  # the first layer's is in what the controller makes of x_t
            bias = bias + blocks(getattr(controller, f"bias_ih_l{layer}"))
        if controller.recurrent:
            columns.append(blocks(getattr(controller, f"weight_hh_l{layer}"), of_state=True))
            if controller.bias:
                bias = bias + blocks(getattr(controller, f"bias_hh_l{layer}"), of_state=True)
        if layer == 0 and controller.weight_reading is not None:
            columns.append(blocks(controller.weight_reading))
        matrices.append(torch.cat(columns, dim=1) if columns else bias.new_zeros(len(bias), 0))
        biases.append(bias)
    none = matrices[0].new_zeros(0, len(biases[0]), size * (2 if controller.recurrent else 1))
    return matrices[0], torch.stack(matrices[1:]) if len(matrices) > 1 else none, torch.stack(biases)


def _settings(cell: StackRNNCell) -> Settings:
    from .scan import Settings

    stack: dict[str, Any] | None = None
    if not isinstance(cell.memory, NoMemory):
        stack = {
            "DEQUE": isinstance(cell.memory, NeuralDeque),
            "AT_TOP": not isinstance(cell.memory, NeuralQueue),
            "TANH": cell.controls.value_activation is torch.tanh,
        }
        for field in cell.memory.actions:
            if field.kind == "strength":  # a deque has the same control at both ends
                control = cell.controls.strengths[field.name]
                name = field.name.split("_")[0].upper()
                fixed = {"PUSH": "PUSHED", "POP": "POPPED", "READ": "READS"}[name]
                stack |= {name: control.width, fixed: control.value if isinstance(control, Fixed) else 0.0}
    return Settings(_CONTROLLERS.index(type(cell.controller)), cell.controller.recurrent, cell.controller.skips, stack)


class _Scan(torch.autograd.Function):
    """`triton_scan.forward` and `backward`, launch by launch or as CUDA graphs."""

    @staticmethod
    def forward(ctx: Any, settings: Settings, differentiable: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        from . import graphs as triton_graphs
        from . import scan as triton_scan

        given = triton_scan.Given(*tensors)
        ctx.settings, ctx.lease = settings, None
        if triton_graphs.wanted(given.projected.device):
            ctx.lease = triton_graphs.lease(settings, given, differentiable)
        if ctx.lease is not None:
            return ctx.lease.captured.forward(given)
        results, kept = triton_scan.forward(settings, given)
        if differentiable:
            ctx.save_for_backward(*given, *kept)
        return results

    @staticmethod
    @first_derivative_only("the compiled scan", 'set_scan_backend("reference") has one that can')
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from . import scan as triton_scan

        of_results = triton_scan.Results(*(grad.contiguous() for grad in grads))
        if ctx.lease is not None:
            return None, None, *ctx.lease.captured.backward(of_results)
        given = triton_scan.Given(*ctx.saved_tensors[: len(triton_scan.Given._fields)])
        kept = triton_scan.Kept(*ctx.saved_tensors[len(given) :])
        return None, None, *triton_scan.backward(ctx.settings, given, kept, of_results)
