"""Controllers: recurrent networks that read an input and the memory's last reading, and drive the memory.

All are one class with one step interface. They differ in the number of gates, in their state, and in a
pointwise function. The first layer computes `W_x x_t + W_r r_{t-1} + W_h h_{t-1}`, which is a layer on `[x_t; r_{t-1}]`
written so that `W_x x_t` can be one product for the whole sequence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import init

from ..kernels import layout
from ..kernels.layout import DROPOUT

Result = TypeVar("Result")

# One tensor [B, L, H] for each kind of state a controller has: none, (h,) or (h, c).
ControllerState = tuple[Tensor, ...]
# A layer's output [B, H] and next state, [B, H] each.
Output = tuple[Tensor, ControllerState]


class OneHot(nn.Module):
    """Token ids [...] to one-hot vectors [..., V] of floats, because integers cannot require gradients."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size

    def forward(self, input_ids: Tensor) -> Tensor:
        return F.one_hot(input_ids, self.vocab_size).float()


class Controller(nn.Module, ABC):
    """A recurrent network of L layers with a second input, the reading.

    Parameters are those of torch's own recurrent modules, including both biases, so that sizes are comparable.

    Args:
        input_size: size of x_t, E.
        reading_size: size of the memory's reading, R; 0 without a memory.
        hidden_size: size of a layer's output, H.
        num_layers: L.
        dropout: probability, on each layer's output but the last.
        bias: whether to have biases.
        learn_initial_state: learn the first state; otherwise it is zero.
        reading_entry: "input": beside x_t, at the first layer. "hidden_state": h_{t-1} + W r_{t-1} + b replaces the
            first layer's h_{t-1} (Suzgun et al. 2019, section 3.1; the bias is from the released code).
        input_skip_connections: give x_t to every layer, as in the deep LSTMs of Grefenstette et al. (2015).
        first_layer: number of the first layer in the names of parameters.
        cell_size: size of the state behind a smaller output, of a `ProjectedLSTMController`; otherwise H.
    """

    gates: ClassVar[int]  # rows of the weights, in units of H
    states: ClassVar[int]  # tensors in the state
    recurrent: ClassVar[bool] = True
    fused: ClassVar[str | None] = None  # torch's function for a whole sequence
    weight_reading: Tensor | None
    bias_reading: Tensor | None

    def __init__(
        self,
        input_size: int,
        reading_size: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        learn_initial_state: bool = False,
        reading_entry: str = "input",
        input_skip_connections: bool = False,
        first_layer: int = 0,
        cell_size: int | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.reading_size, self.hidden_size = input_size, reading_size, hidden_size
        self.num_layers, self.first_layer, self.cell_size = num_layers, first_layer, cell_size or hidden_size
        self.dropout, self.bias, self.reading_entry = dropout, bias, reading_entry
        self.skips = input_skip_connections and num_layers > 1
        rows = self.gates * self.cell_size
        for layer in range(num_layers):
            self._add(f"weight_ih_l{first_layer + layer}", rows, input_size if layer == 0 else hidden_size)
            self._add(f"bias_ih_l{first_layer + layer}", rows * bias)
            if self.recurrent:
                self._add(f"weight_hh_l{first_layer + layer}", rows, hidden_size)
                self._add(f"bias_hh_l{first_layer + layer}", rows * bias)
            if cell_size:
                self._add(f"weight_hr_l{first_layer + layer}", hidden_size, cell_size)
            if self.skips and layer:
                self._add(f"weight_skip_l{first_layer + layer}", rows, input_size)
        into_state = reading_entry == "hidden_state"
        self._add("weight_reading", hidden_size if into_state else rows, reading_size)
        self._add("bias_reading", hidden_size * bias * (into_state and reading_size > 0))
        learned = self.states if learn_initial_state else 0
        sizes = self.state_sizes[:learned]
        self.first_state = nn.ParameterList(nn.Parameter(torch.empty(num_layers, size)) for size in sizes)
        self.reset_parameters()

    def _add(self, name: str, *shape: int) -> None:
        """A parameter, or None if it is empty."""
        self.register_parameter(name, nn.Parameter(torch.empty(*shape)) if all(shape) else None)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """The size of each tensor in the state."""
        return (self.hidden_size, self.cell_size)[: self.states]

    def parameter_of(self, name: str, layer: int) -> Any:
        """A parameter of one of the layers, such as "weight_ih"; None if it is empty."""
        return getattr(self, f"{name}_l{self.first_layer + layer}", None)

    def reset_parameters(self) -> None:
        """Draw from U(-1/sqrt(H), 1/sqrt(H)), as torch's recurrent modules; the map of readings as torch's linear.

        NOTE: Grefenstette et al. (2015) say that the learned first state is initialised randomly, but not how.
        """
        bound = 1 / math.sqrt(self.cell_size)
        for name, parameter in self.named_parameters():
            into_state = self.reading_entry == "hidden_state" and name.endswith("_reading")
            limit = 1 / math.sqrt(self.reading_size) if into_state else bound
            init.uniform_(parameter, -limit, limit)

    def forward(self, inputs: Tensor, run: Callable[[Tensor], Result]) -> Result:
        """Run this controller over inputs through `run`, so that adapters that wrap the controller are active.

        Hooks on a controller see the inputs and the result of `run`: the `Scan` of a sequence.
        """
        return run(inputs)

    def initial_state(self, batch_size: int) -> ControllerState:
        """The first state: one tensor [B, L, H] for each of the controller's states."""
        if len(self.first_state):
            return tuple(state.expand(batch_size, -1, -1) for state in self.first_state)
        like, shape = self.parameter_of("weight_ih", 0), (batch_size, self.num_layers)
        return tuple(like.new_zeros(*shape, size) for size in self.state_sizes)

    def project(self, inputs: Tensor) -> Tensor:
        """The part of the layers' input that depends only on x_t, `W_x x_t + b`, for any number of steps at once.

        Args:
            inputs: [..., E].

        Returns:
            [..., gates * H]; with skip connections [..., L * gates * H].
        """
        first = F.linear(inputs, self.parameter_of("weight_ih", 0), self.parameter_of("bias_ih", 0))
        if not self.skips:
            return first
        others = [F.linear(inputs, self.parameter_of("weight_skip", layer)) for layer in range(1, self.num_layers)]
        return torch.cat((first, *others), dim=-1)

    def draw_dropout(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The factors of dropout between layers, 0 or 1 / (1 - p): [*shape, L - 1, H] by the name "dropout".

        Args:
            shape: the shape of the steps.
            generator: a generator of random numbers; None is torch's own.

        Returns:
            An empty mapping if nothing is dropped, as in evaluation mode.
        """
        if not (self.dropout and self.training and self.num_layers > 1):
            return {}
        weight = self.parameter_of("weight_ih", 0)
        layers_shape = (*shape, self.num_layers - 1, self.hidden_size)
        drawn = torch.rand(layers_shape, generator=generator, dtype=weight.dtype, device=weight.device)
        return {DROPOUT: drawn.ge_(self.dropout).mul_(1 / (1 - self.dropout))}

    def step(
        self, projected: Tensor, reading: Tensor, state: ControllerState, dropped: Tensor | None = None
    ) -> tuple[list[Tensor], ControllerState]:
        """One step of all layers.

        Args:
            projected: `project(x_t)`.
            reading: r_{t-1}, [B, R].
            state: [B, L, H] each.
            dropped: the factors of dropout [B, L - 1, H]; None to draw them here.

        Returns:
            Each layer's output [B, H], the last of which is the controller's, and the next state.
        """
        input_gates = projected.chunk(self.num_layers, -1) if self.skips else (projected,)
        outputs: list[Tensor] = []
        new_states: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            previous = tuple(part[:, layer] for part in state)
            if layer == 0:
                gates = input_gates[0]
                if self.weight_reading is not None and self.reading_entry == "input":
                    gates = gates + F.linear(reading, self.weight_reading)
                elif self.weight_reading is not None:
                    hidden = previous[0] + F.linear(reading, self.weight_reading, self.bias_reading)
                    previous = (hidden, *previous[1:])
            else:
                below = outputs[-1]
                below = (
                    F.dropout(below, self.dropout, self.training) if dropped is None else below * dropped[:, layer - 1]
                )
                gates = F.linear(below, self.parameter_of("weight_ih", layer), self.parameter_of("bias_ih", layer))
                if self.skips:
                    gates = gates + input_gates[layer]
            recurrent = gates.new_zeros(())
            if self.recurrent:
                recurrent = F.linear(
                    previous[0], self.parameter_of("weight_hh", layer), self.parameter_of("bias_hh", layer)
                )
            output, new_state = self.pointwise(gates, recurrent, previous)
            if (projection := self.parameter_of("weight_hr", layer)) is not None:
                output = F.linear(output, projection)
                new_state = (output, *new_state[1:])
            outputs.append(output)
            new_states.append(new_state)
        if self.num_layers == 1:  # a view, where stacking would copy
            return outputs, tuple(part.unsqueeze(1) for part in new_states[0])
        return outputs, tuple(torch.stack(parts, dim=1) for parts in zip(*new_states, strict=True))

    @abstractmethod
    def pointwise(self, gates: Tensor, recurrent: Tensor, state: ControllerState) -> Output:
        """Compute a layer's output and next state.

        Args:
            gates: the input's part of the gates.
            recurrent: the state's part.
            state: the layer's state, [B, H] each.
        """

    def run(self, inputs: Tensor, state: ControllerState) -> tuple[Tensor, ControllerState] | None:
        """Run a whole sequence through torch's fused kernels, without a reading; None if torch has no such kernel.

        Args:
            inputs: [B, T, E].
            state: [B, L, H] each.

        Returns:
            The last layer's outputs [B, T, H] and the last state.
        """
        if self.fused is None or self.weight_reading is not None:
            return None
        first = [part.transpose(0, 1).contiguous().to(inputs.dtype) for part in state]
        if not self.skips:
            outputs, *last = self._fused(inputs, first, range(self.num_layers))
        else:
            outputs, lasts = inputs, []
            for layer in range(self.num_layers):
                if layer:
                    outputs = torch.cat((F.dropout(outputs, self.dropout, self.training), inputs), dim=-1)
                outputs, *parts = self._fused(outputs, [part[layer : layer + 1] for part in first], [layer])
                lasts.append(parts)
            last = [torch.cat(parts) for parts in zip(*lasts, strict=True)]
        return outputs, tuple(part.transpose(0, 1) for part in last)

    def _fused(self, inputs: Tensor, first: list[Tensor], layers: Sequence[int]) -> list[Tensor]:
        """Torch's function over some layers: their outputs [B, T, H] and last states [layers, B, H]."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        named = [self.parameter_of(name, layer) for layer in layers for name in names]
        weights = [weight for weight in named if weight is not None]
        if self.skips and layers[0]:
            weights[0] = torch.cat((weights[0], self.parameter_of("weight_skip", layers[0])), dim=1)
        # The flags: has biases, number of layers, dropout, training, bidirectional, batch first.
        flags = (self.bias, len(layers), self.dropout if len(layers) > 1 else 0.0, self.training, False, True)
        autocast = inputs.is_cpu and inputs.dtype != torch.float64 and torch.is_autocast_enabled("cpu")
        if autocast:  # which casts likewise, but fails for LSTMs on processors that do not multiply bfloat16
            dtype = torch.get_autocast_dtype("cpu")
            inputs = inputs.to(dtype)
            first, weights = [part.to(dtype) for part in first], [weight.to(dtype) for weight in weights]
        with torch.autocast("cpu", enabled=False) if autocast else nullcontext():
            result: list[Tensor] = getattr(torch, str(self.fused))(
                inputs, first if self.states == 2 else first[0], weights, *flags
            )
        return result


class LinearController(Controller):
    """o_t = W [x_t; r_{t-1}] + b, without a state.

    Controls and head are linear layers on o_t, so its size H limits the information that passes. In the linear
    controller of Hao et al. (2018), section 2.2, they are parts of a single layer: that is `DirectController`.
    """

    kind: ClassVar[int] = layout.LINEAR
    gates, states, recurrent = 1, 0, False

    def pointwise(self, gates: Tensor, recurrent: Tensor, state: ControllerState) -> Output:
        return gates, ()


class SigmoidController(LinearController):
    """o_t = sigmoid(W [x_t; r_{t-1}] + b), without a state: only the stacks remember.

    As in the released code of Joulin & Mikolov (2015), whose experiments omit the recurrent matrix of eq. 5.
    """

    kind: ClassVar[int] = layout.SIGMOID_ELMAN

    def pointwise(self, gates: Tensor, recurrent: Tensor, state: ControllerState) -> Output:
        """The gates' sigmoid; see `Controller.pointwise`."""
        return torch.sigmoid(gates), ()


class DirectController(LinearController):
    """o_t = [x_t; r_{t-1}]: nothing between the input and the controls and head, which are linear layers.

    With these it is the linear controller of Hao et al. (2018), section 2.2: one linear layer from [x_t; r_{t-1}] to
    the output and the actions. H is the size of [x_t; r_{t-1}]. It has no parameters.
    """

    kind: ClassVar[int] = layout.DIRECT
    gates = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Empty: it follows a model without parameters to its device and type.
        self.register_buffer("like", torch.empty(0), persistent=False)

    def project(self, inputs: Tensor) -> Tensor:
        """x_t itself."""
        return inputs

    def step(
        self, projected: Tensor, reading: Tensor, state: ControllerState, dropped: Tensor | None = None
    ) -> tuple[list[Tensor], ControllerState]:
        """Concatenate the input and the reading; see `Controller.step`."""
        return [torch.cat((projected, reading), dim=-1)], ()


class ElmanController(Controller):
    """h_t = tanh(W_x x_t + W_r r_{t-1} + W_h h_{t-1} + b)."""

    kind: ClassVar[int] = layout.ELMAN
    gates, states = 1, 1
    fused: ClassVar[str | None] = "rnn_tanh"
    # From the weighted sum [B, H] to the hidden state.
    squash: ClassVar[staticmethod[[Tensor], Tensor]] = staticmethod(torch.tanh)

    def pointwise(self, gates: Tensor, recurrent: Tensor, state: ControllerState) -> Output:
        hidden = self.squash(gates + recurrent)
        return hidden, (hidden,)


class ReLUElmanController(ElmanController):
    """h_t = max(0, W_x x_t + W_r r_{t-1} + W_h h_{t-1} + b), as in the released code of Delétang et al. (2023)."""

    kind: ClassVar[int] = layout.RELU_ELMAN
    fused, squash = "rnn_relu", staticmethod(torch.relu)


class SigmoidElmanController(ElmanController):
    """h_t = sigmoid(W_x x_t + W_r r_{t-1} + W_h h_{t-1} + b), as in Joulin & Mikolov (2015), eq. 5."""

    kind: ClassVar[int] = layout.SIGMOID_ELMAN
    fused, squash = None, staticmethod(torch.sigmoid)


class GRUController(Controller):
    """torch's `nn.GRU`: the reset gate applies after the recurrent product."""

    kind: ClassVar[int] = layout.GRU
    gates, states, fused = 3, 1, "gru"

    def pointwise(self, gates: Tensor, recurrent: Tensor, state: ControllerState) -> Output:
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

    kind: ClassVar[int] = layout.LSTM
    gates, states, fused = 4, 2, "lstm"

    def pointwise(self, gates: Tensor, recurrent: Tensor, state: ControllerState) -> Output:
        _, cell = state
        into, forget, new, out = (gates + recurrent).chunk(4, -1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
        hidden = torch.sigmoid(out) * torch.tanh(cell)
        return hidden, (hidden, cell)


class ProjectedLSTMController(LSTMController):
    """torch's `nn.LSTM` with `proj_size`: the output, and h_t, is a linear map of the gated cell, without biases."""


_CLASSES: dict[str, type[Controller]] = {
    "linear": LinearController,
    "sigmoid": SigmoidController,
    "direct": DirectController,
    "rnn": ElmanController,
    "rnn_relu": ReLUElmanController,
    "rnn_sigmoid": SigmoidElmanController,
    "gru": GRUController,
    "lstm": LSTMController,
}


def make_controller(config: Any, reading_size: int) -> Controller:
    """The controller named by `config.controller`, for a memory that reads vectors of `reading_size`."""
    cell_size = getattr(config, "cell_size", None)
    kind = _CLASSES[config.controller] if cell_size is None else ProjectedLSTMController
    return kind(
        config.embedding_size,
        reading_size,
        config.hidden_size,
        config.num_layers,
        config.hidden_dropout,
        bias=config.bias,
        learn_initial_state=config.learn_initial_state,
        reading_entry=config.reading_entry,
        input_skip_connections=config.input_skip_connections,
        first_layer=getattr(config, "first_layer", 0),
        cell_size=cell_size,
    )
