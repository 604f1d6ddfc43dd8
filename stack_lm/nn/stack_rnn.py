"""A recurrent network with memories, with the interface of `torch.nn.LSTM`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..core.checks import Integer, Number, OneOf, check_of
from ..kernels.protocol import CellState, MemoryState
from ..memory import memory_class
from ..memory.base import numbers_hidden
from ..memory.fields import Parts, Size
from ..memory.settings import layer_settings, unknown_setting
from .cell import StackRNNCell
from .controlled import Actions

# Controllers that have a state, by the mode of the equivalent torch module.
_MODES = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN_TANH", "rnn_relu": "RNN_RELU", "rnn_sigmoid": None}


class StackRNN(nn.Module):
    """Recurrent layers, each a controller with its own memory; called like `torch.nn.LSTM`.

    The memory's reading at step t enters its layer's controller at step t + 1 (Grefenstette et al. 2015, figure 1b).
    Without a memory and with the same weights it equals torch's module in outputs, states and gradients. Parameter
    names end like torch's: `layers.1.controller.weight_ih_l1`.

    Args:
        input_size: size of x_t, E.
        hidden_size: size of a layer's output, H.
        num_layers: L.
        memory: name of a registered memory for all layers, such as "stack"; or a name for each layer, such as
            `("none", "stack")`.
        controller: "lstm", "gru", "rnn" (tanh), "rnn_relu" or "rnn_sigmoid".
        bias: whether to have biases.
        batch_first: whether tensors are [B, T, ...] instead of [T, B, ...]. It does not affect states.
        dropout: probability, on the outputs of each layer but the last.
        bidirectional: whether each layer also has a network, with a memory, that reads from the end, as in torch:
            outputs are [..., 2 H], forward first; states [2 L, B, H] and memories are in the order of layers, then of
            directions.
        proj_size: P below H: the outputs of an LSTM, and `h_n`, are linear maps to this size, as in torch; the memories
            follow the outputs. Such a layer with a memory runs on the reference. 0: none.
        device: the device of the parameters, as in torch's modules.
        dtype: the dtype of the parameters.
        settings: settings of the memories, such as `memory_size=16` or `pop_control="sigmoid"`; see `StackRNNConfig`
            for their meanings. Each applies to all layers whose memory has it.

    Raises:
        ValueError: for an unknown memory, controller or setting, or a value that a setting does not allow.

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
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.input_size = check_of(Size)("input_size", input_size)
        self.hidden_size = check_of(Size)("hidden_size", hidden_size)
        self.num_layers = check_of(Parts)("num_layers", num_layers)
        memories: Any = tuple(memory) if isinstance(memory, tuple | list) else (memory,) * num_layers
        if len(memories) != num_layers:
            raise ValueError(f"memory must be one name, or one for each of num_layers={num_layers}; got {memories}")
        known = {name: None for each in memories for name in memory_class(each).settings}
        unknown = next((name for name in settings if name not in known), None)
        if unknown is not None:
            raise unknown_setting(memory, unknown, known)
        self.controller = OneOf(tuple(_MODES))("controller", controller)
        self.proj_size = Integer(0, self.hidden_size - 1)("proj_size", proj_size)
        if proj_size and controller != "lstm":
            raise ValueError(f"proj_size is for controller='lstm'; got proj_size={proj_size} and {controller!r}")
        self.bias = check_of(bool)("bias", bias)
        self.batch_first = check_of(bool)("batch_first", batch_first)
        self.dropout = Number(minimum=0, below=1)("dropout", dropout)
        if self.dropout and num_layers == 1:  # as torch's modules
            warnings.warn("dropout is between layers, and there is one: it changes nothing", stacklevel=2)
        self.bidirectional = check_of(bool)("bidirectional", bidirectional)
        self.layers = nn.ModuleList(self._make_layer(k, name, settings) for k, name in enumerate(memories))
        reverse = memories if bidirectional else ()
        self.reverse_layers = nn.ModuleList(self._make_layer(k, name, settings) for k, name in enumerate(reverse))
        if device is not None or dtype is not None:  # under a FakeTensorMode this fails even if nothing changes
            self.to(device=device, dtype=dtype)

    def _make_layer(self, number: int, memory: str, settings: dict[str, Any]) -> StackRNNCell:
        size = self.proj_size or self.hidden_size
        config = layer_settings(
            memory,
            {name: value for name, value in settings.items() if name in memory_class(memory).settings},
            controller=self.controller,
            embedding_size=size * (1 + self.bidirectional) if number else self.input_size,
            hidden_size=size,
            cell_size=self.hidden_size if self.proj_size else None,
            bias=self.bias,
            first_layer=number,
        )
        return StackRNNCell(config)

    def reset_parameters(self) -> None:
        """Draw all weights anew, as when the network was made."""
        for module in self.modules():
            if module is not self and callable(reset := getattr(module, "reset_parameters", None)):
                reset()

    def flatten_parameters(self) -> None:
        """Do nothing: torch's modules lay their weights out for cuDNN, and code written for them calls this."""

    def extra_repr(self) -> str:
        memories = ", ".join(cell.memory.name for cell in self._cells)
        return f"{self.input_size}, {self.hidden_size}, memories={memories}, batch_first={self.batch_first}"

    def copy_weights(self, module: nn.RNNBase) -> None:
        """Copy the weights of a torch module with the same controller, sizes and layers.

        Raises:
            ValueError: if a weight or its shape differs between the two, or the module is not recurrent.
        """
        if not isinstance(module, nn.RNNBase) or module.mode != _MODES[self.controller]:
            raise ValueError(f"controller={self.controller!r} has other weights than {module}")
        given = dict(module.named_parameters())
        own = {
            name + direction: parameter
            for cells, direction in ((self.layers, ""), (self.reverse_layers, "_reverse"))
            for cell in cells
            for name, parameter in cell.bare_controller.named_parameters()  # type: ignore[union-attr]
            if not name.endswith("_reading")
        }
        theirs, ours = ({name: list(part.shape) for name, part in each.items()} for each in (given, own))
        if theirs != ours:
            raise ValueError(f"the weights of the {type(module).__name__} are {theirs}; here they are {ours}")
        with torch.no_grad():
            for name, parameter in given.items():
                own[name].copy_(parameter)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        lengths: Tensor | None = None,
        output_actions: bool = False,
    ) -> tuple[Any, ...]:
        """Run sequences.

        Args:
            input: x_1 .. x_T: [T, B, E], with `batch_first` [B, T, E], unbatched [T, E], or a `PackedSequence`.
            hx: the initial state, as returned by an earlier call or by torch's module, with which memories start empty.
                A memory whose state is None also starts empty. None: zeros, and empty memories.
            lengths: the numbers of steps [B], from 0 to T, of padded sequences; the outputs behind a sequence's end are
                zeros, and its last state is that at its end, as with packed sequences. Integers, on any device.
            output_actions: also return the actions.

        Returns:
            The last layer's outputs in the form of the input, and the last state: `h_n` [L, B, H] and, for an LSTM,
            `c_n` [L, B, H] (unbatched [L, H]). If any layer has a memory, the last part is a tuple of all layers'
            memory states, batch first (unbatched: of one sequence), None for layers without one. A state of one part is
            that part alone, as in torch. If requested, a tuple of the actions of all layers [B, T, ...] follows (see
            `stack_lm.nn.controlled.Actions`).

        Raises:
            ValueError: if shapes or parts of the state do not fit.
        """
        inputs, packed = self._batch_first(input)
        batch_size, length = inputs.shape[:2]
        mask, steps = None, torch.arange(length)
        if packed is not None and int(packed.min()) < length:
            mask = (steps < packed.unsqueeze(1)).to(inputs.device)
        if lengths is not None:
            self._check_lengths(lengths, batch_size, length, packed)
            mask = steps.to(inputs.device) < lengths.to(inputs.device).unsqueeze(1)
        unbatched = isinstance(input, Tensor) and input.dim() == 2
        first = self._first(hx, batch_size, length, unbatched)
        order = self._backwards(inputs, mask) if self.bidirectional else steps
        last, actions, both = [], [], 1 + self.bidirectional
        for k in range(0, len(first), both):
            if k:
                inputs = F.dropout(inputs, self.dropout, self.training)
            scans = [self._cells[k].scan(inputs, first[k], mask, output_actions=output_actions)]
            if self.bidirectional:
                given = _reorder(inputs, order)
                scans.append(self._cells[k + 1].scan(given, first[k + 1], mask, output_actions=output_actions))
                there = Actions({name: _reorder(part, order) for name, part in scans[1].actions.items()})
                scans[1] = scans[1]._replace(outputs=_reorder(scans[1].outputs, order), actions=there)
            inputs = torch.cat([scan.outputs for scan in scans], dim=-1) if self.bidirectional else scans[0].outputs
            last += [scan.state for scan in scans]
            actions += [scan.actions for scan in scans]
        results = self._in_form_of(input, inputs, packed), self._last(last, unbatched)
        return (*results, tuple(actions)) if output_actions else results

    @staticmethod
    def _backwards(inputs: Tensor, mask: Tensor | None) -> Tensor:
        """The steps [B, T] from each sequence's end to its beginning, and then its padding."""
        steps = torch.arange(inputs.shape[1], device=inputs.device).expand(inputs.shape[:2])
        if mask is None:
            return steps.flip(1)
        return torch.where(mask, mask.sum(1, keepdim=True) - 1 - steps, steps)

    @staticmethod
    def _check_lengths(lengths: Any, batch_size: int, length: int, packed: Tensor | None) -> None:
        if packed is not None:
            raise ValueError("a PackedSequence has its lengths: leave out lengths")
        if not isinstance(lengths, Tensor) or lengths.shape != (batch_size,) or lengths.is_floating_point():
            found = (list(lengths.shape), lengths.dtype) if isinstance(lengths, Tensor) else type(lengths).__name__
            raise ValueError(f"lengths must be integers [{batch_size}]; got {found}")
        # On a GPU the check would wait.
        if lengths.device.type == "cpu" and not numbers_hidden():
            wrong = lengths[(lengths < 0) | (lengths > length)]
            if len(wrong):
                raise ValueError(f"lengths must be from 0 to {length}; got {int(wrong[0])}")

    def _batch_first(self, given: Tensor | PackedSequence) -> tuple[Tensor, Tensor | None]:
        """The input as [B, T, E], and the lengths of packed sequences."""
        lengths = None
        if not isinstance(given, Tensor | PackedSequence):
            raise ValueError(f"input must be a tensor or a PackedSequence; got a {type(given).__name__}")
        if isinstance(given, PackedSequence):
            inputs, lengths = pad_packed_sequence(given, batch_first=True)
        elif given.dim() == 2:
            inputs = given.unsqueeze(0)
        else:
            inputs = given if self.batch_first or given.dim() != 3 else given.transpose(0, 1)
        if inputs.dim() != 3 or inputs.shape[1] == 0 or inputs.shape[2] != self.input_size:
            layout, found = "B, T" if self.batch_first else "T, B", given.data  # of packed sequences [N, E]
            raise ValueError(
                f"input must be [{layout}, {self.input_size}], [T, {self.input_size}] or packed, with T of at least 1; "
                f"got {list(found.shape)}"
            )
        self._cells[0].check_type("input", inputs)
        return inputs, lengths

    def _in_form_of(self, given: Any, outputs: Tensor, lengths: Tensor | None) -> Any:
        """The outputs [B, T, H] in the form of the input."""
        if lengths is None:
            return outputs[0] if given.dim() == 2 else outputs if self.batch_first else outputs.transpose(0, 1)
        if given.sorted_indices is not None:
            outputs = outputs.index_select(0, given.sorted_indices)
        descending = lengths.sort(descending=True).values
        return given._replace(data=pack_padded_sequence(outputs, descending, batch_first=True).data)

    def _first(self, hx: Any, batch_size: int, length: int, unbatched: bool) -> list[CellState]:
        """The state of each layer before the first step."""
        first = [cell.initial_state(batch_size, length) for cell in self._cells]
        if hx is None:
            return first
        parts = hx if isinstance(hx, tuple | list) else (hx,)
        n_torch = len(first[0].controller)
        if not n_torch <= len(parts) <= n_torch + self._has_memories:
            names = ["h", "c"][:n_torch] + ["memories"] * self._has_memories
            raise ValueError(f"hx must be of the parts {', '.join(names)}; got {len(parts)}")
        for part, own in zip(parts, first[0].controller, strict=False):
            shape = [len(first), *([] if unbatched else [batch_size]), own.shape[-1]]
            if list(part.shape) != shape:
                raise ValueError(f"the tensors of hx must be {shape}; got {list(part.shape)}")
        memories = parts[n_torch] if len(parts) > n_torch else (None,) * len(first)
        if len(memories) != len(first):
            raise ValueError(f"the memories of hx must be {len(first)}, one a layer and direction; got {len(memories)}")
        states = []
        for k, (empty, given) in enumerate(zip(first, memories, strict=True)):
            state = empty if given is None else given
            controller = tuple(part[k].view(batch_size, 1, part.shape[-1]) for part in parts[:n_torch])
            states.append(CellState(controller, state.memory, state.reading))
        return states

    def _last(self, last: Sequence[CellState], unbatched: bool) -> Any:
        """The layers' last states in the form that is returned."""
        of_layers = zip(*(state.controller for state in last), strict=True)
        parts: list[Any] = [torch.stack([part[:, 0] for part in same]) for same in of_layers]
        if unbatched:
            parts = [part[:, 0] for part in parts]
        if self._has_memories:
            pairs = [(cell.memory.actions, each) for cell, each in zip(self._cells, last, strict=True)]
            parts.append(tuple(MemoryState(each.memory, each.reading) if acts else None for acts, each in pairs))
        return parts[0] if len(parts) == 1 else tuple(parts)

    @property
    def _cells(self) -> list[StackRNNCell]:
        pairs = zip(self.layers, self.reverse_layers, strict=True) if self.bidirectional else zip(self.layers)
        return [cell for pair in pairs for cell in pair]  # type: ignore[misc]

    @property
    def _has_memories(self) -> bool:
        return any(cell.memory.actions for cell in self._cells)


def _reorder(part: Tensor, order: Tensor) -> Tensor:
    """The steps of [B, T, ...] in an order [B, T]."""
    return part.gather(1, order.view(*order.shape, *[1] * (part.dim() - 2)).expand_as(part))
