"""Controllers: the recurrent networks that read an input and the memory's last reading, and drive the memory.

All are one class behind one step interface. They differ in how many gates they have, in their state, and in a
pointwise function. The first layer computes `W_x x_t + W_r r_{t-1} + W_h h_{t-1}`, which is a layer on `[x_t; r_{t-1}]`
written so that `W_x x_t` can be one product for the whole sequence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import init

if TYPE_CHECKING:
    from .configuration_stack_rnn import StackRNNConfig

# One tensor [B, L, H] for each kind of state a controller has: none, (h,) or (h, c).
ControllerState = tuple[Tensor, ...]


class Controller(nn.Module, ABC):
    """A recurrent network of L layers with a second input, the reading, at its first layer.

    Parameters are those of torch's own recurrent modules, two biases included, so that sizes compare like for like.

    Args:
        input_size: size of x_t, E.
        reading_size: size of the memory's reading, D; 0 where there is no memory.
        hidden_size: size of a layer's output, H.
        num_layers: L.
        dropout: probability, on each layer's output but the last.
        learn_initial_state: learn the first state; otherwise it is zero.
    """

    gates: ClassVar[int]  # rows of the weights, in units of H
    states: ClassVar[int]  # tensors in the state
    recurrent: ClassVar[bool] = True
    fused: ClassVar[str | None] = None  # torch's function for a whole sequence
    weight_ih_l0: Tensor
    bias_ih_l0: Tensor

    def __init__(
        self,
        input_size: int,
        reading_size: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        learn_initial_state: bool = False,
    ) -> None:
        super().__init__()
        self.reading_size, self.hidden_size, self.num_layers = reading_size, hidden_size, num_layers
        self.dropout = dropout
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            columns = input_size if layer == 0 else hidden_size
            self.register_parameter(f"weight_ih_l{layer}", nn.Parameter(torch.empty(rows, columns)))
            self.register_parameter(f"bias_ih_l{layer}", nn.Parameter(torch.empty(rows)))
            if self.recurrent:
                self.register_parameter(f"weight_hh_l{layer}", nn.Parameter(torch.empty(rows, hidden_size)))
                self.register_parameter(f"bias_hh_l{layer}", nn.Parameter(torch.empty(rows)))
        self.weight_reading = nn.Parameter(torch.empty(rows, reading_size)) if reading_size else None
        learned = self.states if learn_initial_state else 0
        self.first_state = nn.ParameterList(nn.Parameter(torch.empty(num_layers, hidden_size)) for _ in range(learned))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """U(-1/sqrt(H), 1/sqrt(H)), as torch's recurrent modules; a learned first state starts at zero."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)
        for parameter in self.first_state:
            init.zeros_(parameter)

    def initial_state(self, batch_size: int) -> ControllerState:
        """The first state: one tensor [B, L, H] for each of the controller's states."""
        if len(self.first_state):
            return tuple(state.expand(batch_size, -1, -1) for state in self.first_state)
        shape = (batch_size, self.num_layers, self.hidden_size)
        return tuple(self.weight_ih_l0.new_zeros(shape) for _ in range(self.states))

    def project(self, inputs: Tensor) -> Tensor:
        """The first layer's `W_x x_t + b`, for any number of steps at once: [..., E] to [..., gates * H]."""
        return F.linear(inputs, self.weight_ih_l0, self.bias_ih_l0)

    def step(self, projected: Tensor, reading: Tensor, state: ControllerState) -> tuple[list[Tensor], ControllerState]:
        """One step of all layers.

        Args:
            projected: `project(x_t)`, [B, gates * H].
            reading: r_{t-1}, [B, D].
            state: [B, L, H] each.

        Returns:
            Each layer's output [B, H], the last of which is the controller's; and the next state.
        """
        outputs: list[Tensor] = []
        new_states: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer == 0:
                gates = projected
                if self.weight_reading is not None:
                    gates = gates + F.linear(reading, self.weight_reading)
            else:
                below = F.dropout(outputs[-1], self.dropout, self.training)
                gates = F.linear(below, getattr(self, f"weight_ih_l{layer}"), getattr(self, f"bias_ih_l{layer}"))
            previous = tuple(part[:, layer] for part in state)
            recurrent = gates.new_zeros(())
            if self.recurrent:
                recurrent = F.linear(
                    previous[0], getattr(self, f"weight_hh_l{layer}"), getattr(self, f"bias_hh_l{layer}")
                )
            output, new_state = self.pointwise(gates, recurrent, previous)
            outputs.append(output)
            new_states.append(new_state)
        return outputs, tuple(torch.stack(parts, dim=1) for parts in zip(*new_states, strict=True))

    @abstractmethod
    def pointwise(
        self, gates: Tensor, recurrent: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """From the input's part and the state's part of the gates, and a layer's state [B, H] each, to the layer's
        output and next state."""

    def run(self, inputs: Tensor, state: ControllerState) -> tuple[Tensor, ControllerState] | None:
        """A whole sequence through torch's fused kernels, where there is no reading; None where they have no such.

        Args:
            inputs: [B, T, E].
            state: [B, L, H] each.

        Returns:
            The last layer's outputs [B, T, H] and the last state.
        """
        if self.fused is None or self.weight_reading is not None:
            return None
        weights = [
            getattr(self, f"{name}_l{layer}")
            for layer in range(self.num_layers)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        first = [part.transpose(0, 1).contiguous().to(inputs.dtype) for part in state]
        # The flags: has biases, number of layers, dropout, training, bidirectional, batch first.
        flags = (True, self.num_layers, self.dropout, self.training, False, True)
        fused = getattr(torch, self.fused)
        outputs, *last = fused(inputs, first if self.states == 2 else first[0], weights, *flags)
        return outputs, tuple(part.transpose(0, 1) for part in last)


class LinearController(Controller):
    """o_t = W [x_t; r_{t-1}] + b, with no state of its own (Hao et al. 2018, section 3)."""

    gates, states, recurrent = 1, 0, False

    def pointwise(
        self, gates: Tensor, recurrent: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        return gates, ()


class ElmanController(Controller):
    """h_t = tanh(W_x x_t + W_r r_{t-1} + W_h h_{t-1} + b)."""

    gates, states, fused = 1, 1, "rnn_tanh"

    def pointwise(
        self, gates: Tensor, recurrent: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden = torch.tanh(gates + recurrent)
        return hidden, (hidden,)


class GRUController(Controller):
    """torch's `nn.GRU`: the reset gate applies after the recurrent product."""

    gates, states, fused = 3, 1, "gru"

    def pointwise(
        self, gates: Tensor, recurrent: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        (hidden,) = state
        input_reset, input_update, input_new = gates.chunk(3, -1)
        hidden_reset, hidden_update, hidden_new = recurrent.chunk(3, -1)
        reset = torch.sigmoid(input_reset + hidden_reset)
        update = torch.sigmoid(input_update + hidden_update)
        new = torch.tanh(input_new + reset * hidden_new)
        hidden = new + update * (hidden - new)
        return hidden, (hidden,)


class LSTMController(Controller):
    """torch's `nn.LSTM`, without peepholes; gates in the order input, forget, cell, output."""

    gates, states, fused = 4, 2, "lstm"

    def pointwise(
        self, gates: Tensor, recurrent: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        _, cell = state
        into, forget, new, out = (gates + recurrent).chunk(4, -1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
        hidden = torch.sigmoid(out) * torch.tanh(cell)
        return hidden, (hidden, cell)


_CLASSES: dict[str, type[Controller]] = {
    "linear": LinearController,
    "rnn": ElmanController,
    "gru": GRUController,
    "lstm": LSTMController,
}


def make_controller(config: StackRNNConfig, reading_size: int) -> Controller:
    """The controller named by `config.controller`, for a memory that reads vectors of `reading_size`."""
    return _CLASSES[config.controller](
        config.embedding_size,
        reading_size,
        config.hidden_size,
        config.num_layers,
        config.hidden_dropout,
        config.learn_initial_state,
    )
