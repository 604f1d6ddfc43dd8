"""A memory and its controls as one module, to put into an encoder or decoder of your own."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cell import Actions, blank
from ..configuration_stack_rnn import StackRNNConfig
from ..controls import Controls
from ..field_checks import FIELD_CHECKS
from . import make_memory, memory_class


class MemoryState(NamedTuple):
    """What passes from one step to the next: the memory's own state, and the last reading [B, R]."""

    memory: Any
    reading: Tensor


class MemoryModule(nn.Module):
    """A differentiable memory driven by vectors of yours: hidden state in, reading out.

    A linear layer emits the memory's actions from a vector h_t, and the memory takes its step. `StackRNNCell` is this
    with a controller of ours; here the controller is yours, and what becomes of the reading too. Most often it enters
    at the next step, beside the input.

    Args:
        input_size: size of h_t, H.
        memory: the name of a registered memory, such as "stack".
        bias: whether the linear layer has biases.
        settings: the memory's settings; see `StackRNNConfig` for what they mean and
            `stack_lm.memory.memory_class(memory).settings` for those that a memory has, and its defaults.

    Attributes:
        reading_size: size of a reading, R.

    Raises:
        ValueError: for a memory or a setting that does not exist, or a value that it does not allow.

    Example:
        >>> stack = MemoryModule(64, memory="stack", memory_size=32, pop_control="sigmoid")
        >>> state = stack.initial_state(batch_size=8)
        >>> reading, state, actions = stack(torch.randn(8, 64), state)
    """

    def __init__(self, input_size: int, memory: str = "stack", *, bias: bool = True, **settings: Any) -> None:
        super().__init__()
        own = memory_class(FIELD_CHECKS["memory"]("memory", memory)).settings
        unknown = sorted(settings.keys() - own.keys())
        if unknown:
            raise ValueError(f"memory={memory!r} has no setting {unknown[0]!r}; it has {', '.join(own) or 'none'}")
        config = StackRNNConfig(memory=memory, hidden_size=input_size, bias=bias, **settings)
        self.memory = make_memory(config)
        self.controls = Controls.from_config(config, self.memory)
        self.reading_size = self.memory.reading_size

    def initial_state(self, batch_size: int) -> MemoryState:
        """An empty memory for `batch_size` sequences, and what is read from it."""
        weight = next(self.parameters(), torch.empty(0))
        memory = self.memory.initial_state(batch_size, device=weight.device, dtype=weight.dtype)
        return MemoryState(memory, self.memory.initial_reading(memory).to(weight.dtype))

    def forward(
        self, hidden: Tensor, state: MemoryState | None = None, active: Tensor | None = None
    ) -> tuple[Tensor, MemoryState, Actions]:
        """One step.

        Args:
            hidden: h_t, [B, H].
            state: after step t - 1; None: empty.
            active: [B] bool; where False, at padding, the sequence does not take the step and its state stays.

        Returns:
            The reading r_t [B, R], the next state, and what was done (see `stack_lm.cell.Actions`, without the time).

        Raises:
            ValueError: if the state is of another batch size, or a memory of limited size overflows.
        """
        state = self.initial_state(hidden.shape[0]) if state is None else state
        if state.reading.shape[0] != hidden.shape[0]:
            raise ValueError(f"state is of {state.reading.shape[0]} sequences; hidden is of {hidden.shape[0]}")
        actions, distributions = self.controls(hidden)
        memory, reading = self.memory.update(state.memory, actions)
        if active is not None:
            memory = self.memory.hold(active, memory, state.memory)
            reading = torch.where(active.unsqueeze(-1), reading, state.reading)
        self.memory.check_overflow(memory)
        told = blank(self.controls.report(actions, distributions), active)
        return reading, MemoryState(memory, reading), Actions(told | self.memory.measure(memory))

    def scan(
        self, hidden: Tensor, mask: Tensor | None = None, state: MemoryState | None = None
    ) -> tuple[Tensor, MemoryState, Actions]:
        """Run a sequence whose h_1 .. h_T are there already, as behind an encoder that does not see the readings.

        Args:
            hidden: [B, T, H].
            mask: [B, T] bool, False at padding, where the reading is that of the last step before it.
            state: to start from; None: empty.

        Returns:
            The readings [B, T, R], the last state, and what was done [B, T, ...].

        Raises:
            ValueError: as for a step, and if there is none.
        """
        if hidden.shape[1] == 0:
            raise ValueError(f"hidden has no steps: its shape is {list(hidden.shape)}")
        state = self.initial_state(hidden.shape[0]) if state is None else state
        readings, actions = [], []
        for t in range(hidden.shape[1]):
            reading, state, done = self(hidden[:, t], state, None if mask is None else mask[:, t])
            readings.append(reading)
            actions.append(done)
        collected = Actions({name: torch.stack([done[name] for done in actions], dim=1) for name in actions[0]})
        return torch.stack(readings, dim=1), state, collected
