"""A cell's parameters and states as tensors for scans on a GPU; `stack_lm.kernels.layout` has the order of gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ...memory import StackState
from ...memory.controls import Controls
from ..layout import GRU, controller_kind
from ..protocol import CellState

if TYPE_CHECKING:
    from ...nn.controllers import Controller


class Weights(NamedTuple):
    """A cell's parameters.

    Attributes:
        inputs: from x_t to the gates of the first layer, or with skip connections of each layer [1 or L, gates * H, E];
            a GRU has no block here for what comes from the state.
        first: from h and r to the gates of the first layer [blocks * H, H + R]; the linear controller has no state.
        rest: from the layer below and h to those of each further layer [L - 1, blocks * H, 2 H]; likewise.
        biases: of the gates [L, blocks * H].
        controls, controls_bias: from the controller's output to the logits of all controls [P, H] and [P]; P = 0
            without a memory.
    """

    inputs: Any
    first: Any
    rest: Any
    biases: Any
    controls: Any
    controls_bias: Any


class States(NamedTuple):
    """A cell's state, or its gradients. N is the number of elements in the memory.

    Attributes:
        hidden, cell: of the controller's layers [B, L, H] each; zeros for controllers that have none.
        reading: [B, R].
        values, strengths: of the elements, from bottom to top [B, N, D] and [B, N]; N = D = 0 without a memory.
    """

    hidden: Any
    cell: Any
    reading: Any
    values: Any
    strengths: Any


def gather_weights(controller: Controller, controls: Controls) -> Weights:
    """The parameters of a controller and of controls as blocks, by differentiable operations."""
    layers, size = controller.num_layers, controller.hidden_size
    gru = controller_kind(controller) == GRU

    def blocks(weight: Tensor, of_state: bool = False) -> Tensor:
        """Rows of a weight matrix, or a bias, as blocks: a GRU's new gate is apart for what is below and the state."""
        if not gru:
            return weight
        none = weight.new_zeros(size, *weight.shape[1:])
        return torch.cat((weight[: 2 * size], none, weight[2 * size :]) if of_state else (weight, none))

    matrices, biases = [], []
    for layer in range(layers):
        columns = [] if layer == 0 else [blocks(controller.parameter_of("weight_ih", layer))]
        bias = controller.parameter_of("weight_ih", 0).new_zeros((4 if gru else controller.gates) * size)
        if controller.bias:
            bias = blocks(controller.parameter_of("bias_ih", layer))
        if controller.recurrent:
            columns.append(blocks(controller.parameter_of("weight_hh", layer), of_state=True))
            if controller.bias:
                bias = bias + blocks(controller.parameter_of("bias_hh", layer), of_state=True)
        if layer == 0 and controller.weight_reading is not None:
            columns.append(blocks(controller.weight_reading))
        matrices.append(torch.cat(columns, dim=1) if columns else bias.new_zeros(len(bias), 0))
        biases.append(bias)
    none = matrices[0].new_zeros(0, len(biases[0]), size * (2 if controller.recurrent else 1))
    of_inputs = [controller.parameter_of("weight_ih", 0)]
    if controller.skips:
        of_inputs += [controller.parameter_of("weight_skip", layer) for layer in range(1, layers)]
    projection = controls.projection
    of_controls = none.new_zeros(0, size) if projection is None else projection.weight
    has_bias = projection is not None and projection.bias is not None
    return Weights(
        torch.stack(of_inputs),
        matrices[0],
        torch.stack(matrices[1:]) if layers > 1 else none,
        torch.stack(biases),
        of_controls,
        projection.bias if projection is not None and has_bias else none.new_zeros(len(of_controls)),
    )


def gather_states(controller: Controller, state: CellState) -> States:
    """A cell's state with a tensor in every field."""
    layers, size = controller.num_layers, controller.hidden_size
    none = state.reading.new_zeros(len(state.reading), layers, size)
    hidden, memory_cell = (*state.controller, none, none)[:2]
    remembered = memory_tensors(state.memory) or (none[:, :0, :0], none[:, 0, :0])
    return States(hidden, memory_cell, state.reading, *remembered)


def memory_tensors(memory: Any) -> tuple[Tensor, Tensor] | None:
    """`States.values` and `strengths` of a memory's state; None if it has none."""
    return (memory.values, memory.strengths) if isinstance(memory, StackState) else None


def memory_state(before: Any, values: Tensor, strengths: Tensor, dtype: torch.dtype) -> Any:
    """A memory's state built from such tensors, in the form of the previous state; values in a dtype."""
    return StackState(values.to(dtype), strengths) if isinstance(before, StackState) else before


def next_state(before: CellState, last: States) -> CellState:
    """A scan's last state, in the form of its first."""
    return before._replace(
        controller=(last.hidden, last.cell)[: len(before.controller)],
        memory=memory_state(before.memory, last.values, last.strengths, last.reading.dtype),
        reading=last.reading,
    )
