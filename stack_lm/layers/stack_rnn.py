"""A recurrent network with memories that is called as `torch.nn.LSTM` is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..checks import Number, OneOf, check_of
from ..kernels.protocol import CellState, MemoryState
from ..memory.fields import Parts, Size
from ..memory.settings import complete_settings, settings_of
from .cell import StackRNNCell

# What torch has: `nn.LSTM`, `nn.GRU` and `nn.RNN`, this one with tanh or, here only, sigmoid.
CONTROLLERS = ("lstm", "gru", "rnn", "rnn_sigmoid")


class StackRNN(nn.Module):
    """Recurrent layers, each a controller with a memory of its own; called as `torch.nn.LSTM`.

    The memory's reading at step t enters its layer's controller at step t + 1 (Grefenstette et al. 2015, figure 1b).
    Without a memory and with the same weights it is torch's module, in outputs, states and gradients. Names of
    parameters end as torch's do: `layers.1.controller.weight_ih_l1`.

    Args:
        input_size: size of x_t, E.
        hidden_size: size of a layer's output, H.
        num_layers: L.
        memory: name of a registered memory, such as "stack", that all layers have; or L names, of which some may be
            "none". A shorter way to give only the last layer one is `("none", "stack")`.
        controller: "lstm", "gru", "rnn" (tanh) or "rnn_sigmoid".
        bias: whether to have biases.
        batch_first: whether tensors are [B, T, ...] instead of [T, B, ...]. It does not concern states.
        dropout: probability, on the outputs of each layer but the last.
        settings: of the memories, such as `memory_size=16` or `pop_control="sigmoid"`: see `StackRNNConfig` for what
            they mean. Layers without a memory have no use for them.

    Raises:
        ValueError: for a memory, controller or setting that does not exist, or a value that it does not allow.

    Example:
        >>> rnn = StackRNN(50, 100, memory="stack", batch_first=True)
        >>> outputs, (h_n, c_n, memories) = rnn(torch.randn(8, 20, 50))
        >>> outputs.shape, h_n.shape
        (torch.Size([8, 20, 100]), torch.Size([1, 8, 100]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        memory: str | Sequence[str] = "stack",
        controller: str = "lstm",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.input_size = check_of(Size)("input_size", input_size)
        self.hidden_size = check_of(Size)("hidden_size", hidden_size)
        self.num_layers = check_of(Parts)("num_layers", num_layers)
        memories = (memory,) * num_layers if isinstance(memory, str) else tuple(memory)
        if len(memories) != num_layers:
            raise ValueError(f"memory must be one name, or one for each of num_layers={num_layers}; got {memories}")
        self.controller = OneOf(CONTROLLERS)("controller", controller)
        self.bias = check_of(bool)("bias", bias)
        self.batch_first = check_of(bool)("batch_first", batch_first)
        self.dropout = Number(minimum=0, below=1)("dropout", dropout)
        self.layers = nn.ModuleList(
            self._make_layer(k, name, {} if name == "none" else settings) for k, name in enumerate(memories)
        )
        if settings and not any(layer.memory.actions for layer in self._cells):
            raise ValueError(f"{min(settings)} does not go with memory='none', which has no settings")

    def _make_layer(self, number: int, memory: str, settings: dict[str, Any]) -> StackRNNCell:
        config: Any = settings_of(
            memory,
            settings,
            controller=self.controller,
            embedding_size=self.hidden_size if number else self.input_size,
            hidden_size=self.hidden_size,
            num_layers=1,
            hidden_dropout=0.0,
            bias=self.bias,
            learn_initial_state=False,
            reading_entry="input",
            input_skip_connections=False,
            first_layer=number,
        )
        complete_settings(config)
        return StackRNNCell(config)

    @property
    def _cells(self) -> list[StackRNNCell]:
        return list(self.layers)  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        memories = ", ".join(cell.memory.name for cell in self._cells)
        return f"{self.input_size}, {self.hidden_size}, memories={memories}, batch_first={self.batch_first}"

    def copy_weights(self, module: nn.RNNBase) -> None:
        """Take over the weights of a torch module of the same controller, sizes and layers.

        Raises:
            ValueError: if it has a parameter, or a shape, that there is none for here.
        """
        own = {name.rsplit(".", 1)[-1]: parameter for name, parameter in self.named_parameters()}
        given = dict(module.named_parameters())
        for name, parameter in given.items():
            if name not in own or own[name].shape != parameter.shape:
                there = f"it is {list(own[name].shape)}" if name in own else "there is none"
                raise ValueError(f"{name} of the {type(module).__name__} is {list(parameter.shape)}; here {there}")
        with torch.no_grad():
            for name, parameter in given.items():
                own[name].copy_(parameter)

    def forward(
        self, input: Tensor | PackedSequence, state: Any = None, *, output_actions: bool = False
    ) -> tuple[Any, ...]:
        """Run sequences.

        Args:
            input: x_1 .. x_T: [T, B, E], with `batch_first` [B, T, E], unbatched [T, E], or a `PackedSequence`.
            state: to start from, as it was returned, or as torch's module returns it: then memories begin empty. None:
                zeros, and empty memories.
            output_actions: also return the actions.

        Returns:
            The last layer's outputs in the form of the input, and the last state: `h_n` [L, B, H], of an LSTM also
            `c_n` [L, B, H] (unbatched [L, H]), and where a layer has a memory last a tuple of the states of all layers'
            memories, None for layers without one. A state of one part is that part alone, as torch's. If asked for,
            then a tuple of the actions of all layers [B, T, ...] (see `stack_lm.layers.controlled.Actions`).

        Raises:
            ValueError: if shapes do not fit.
        """
        mask, packed, single = None, None, False
        if isinstance(input, PackedSequence):
            packed = input
            inputs, lengths = pad_packed_sequence(packed, batch_first=True)
            if int(lengths.min()) < inputs.shape[1]:
                mask = (torch.arange(inputs.shape[1]) < lengths.unsqueeze(1)).to(inputs.device)
        else:
            inputs, single = self._batch_first(input), input.dim() == 2
        states = self._states(state, inputs, single)
        actions, last = [], []
        for k, (cell, first) in enumerate(zip(self._cells, states, strict=True)):
            if k:
                inputs = F.dropout(inputs, self.dropout, self.training)
            scan = cell.scan(inputs, first, mask, output_actions=output_actions)
            inputs = scan.outputs
            last.append(scan.state)
            actions.append(scan.actions)
        results = self._outputs(inputs, packed, single), self._state(last, single)
        return (*results, tuple(actions)) if output_actions else results

    def _batch_first(self, inputs: Tensor) -> Tensor:
        """The input as [B, T, E]."""
        if inputs.dim() not in (2, 3) or inputs.shape[-1] != self.input_size:
            layout = "[B, T, {}]" if self.batch_first else "[T, B, {}]"
            wanted = f"{layout.format(self.input_size)} or [T, {self.input_size}]"
            raise ValueError(f"input must be {wanted}; got {list(inputs.shape)}")
        if inputs.dim() == 2:
            inputs = inputs.unsqueeze(0)
        elif not self.batch_first:
            inputs = inputs.transpose(0, 1)
        if inputs.shape[1] == 0:
            raise ValueError("input has no steps")
        return inputs

    def _outputs(self, outputs: Tensor, packed: PackedSequence | None, single: bool) -> Any:
        """The outputs [B, T, H] in the form of the input."""
        if packed is None:
            return outputs[0] if single else outputs if self.batch_first else outputs.transpose(0, 1)
        if packed.sorted_indices is not None:
            outputs = outputs.index_select(0, packed.sorted_indices)
        # In a packed sequence, the k-th step has the rows whose length is more than k.
        lengths = (torch.arange(len(outputs)).unsqueeze(1) < packed.batch_sizes).sum(1)
        data = pack_padded_sequence(outputs, lengths, batch_first=True).data
        return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)

    def _states(self, state: Any, inputs: Tensor, single: bool) -> list[CellState]:
        """The state of each layer before the first step."""
        batch_size, length = inputs.shape[:2]
        first = [cell.initial_state(batch_size, length) for cell in self._cells]
        if state is None:
            return first
        parts = state if isinstance(state, tuple | list) else (state,)
        n_parts = len(first[0].controller)
        if len(parts) not in (n_parts, n_parts + self._has_memories):
            names = ["h_n", "c_n"][:n_parts] + ["memories"] * self._has_memories
            raise ValueError(f"state must be ({', '.join(names)}); it has {len(parts)} parts")
        shape = (self.num_layers, *(() if single else (batch_size,)), self.hidden_size)
        for part in parts[:n_parts]:
            if tuple(part.shape) != shape:
                raise ValueError(f"the parts of state must be {list(shape)}; got {list(part.shape)}")
        of_torch = [part.unsqueeze(1) if single else part for part in parts[:n_parts]]
        memories = parts[n_parts] if len(parts) > n_parts else [None] * self.num_layers
        return [
            CellState(tuple(part[k].unsqueeze(1) for part in of_torch), *(held or (own.memory, own.reading)))
            for k, (own, held) in enumerate(zip(first, memories, strict=True))
        ]

    def _state(self, last: Sequence[CellState], single: bool) -> Any:
        """The layers' last states in the form that is returned."""
        of_torch = [
            torch.stack([part.squeeze(1) for part in parts])
            for parts in zip(*(state.controller for state in last), strict=True)
        ]
        parts: list[Any] = [part.squeeze(1) for part in of_torch] if single else of_torch
        if self._has_memories:
            held = zip(self._cells, last, strict=True)
            parts.append(
                tuple(MemoryState(state.memory, state.reading) if cell.memory.actions else None for cell, state in held)
            )
        return parts[0] if len(parts) == 1 else tuple(parts)

    @property
    def _has_memories(self) -> bool:
        return any(cell.memory.actions for cell in self._cells)
