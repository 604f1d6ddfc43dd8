"""A memory to put into a network of one's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..checks import check_of
from ..controls import Controls
from ..memory import memory_class
from ..memory.settings import MemoryName, Size, complete_settings, setting_names
from .controlled import Actions, ControlledMemory, MemoryState, over_time


class MemoryModule(ControlledMemory):
    """A differentiable memory driven by given vectors: hidden state in, reading out.

    A linear layer emits the memory's actions from a vector h_t, and the memory takes its step. The controller is yours,
    and what becomes of the reading too. Most often it enters at the next step, beside the input.

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
        own = memory_class(check_of(MemoryName)("memory", memory)).settings
        unknown = sorted(settings.keys() - own.keys())
        if unknown:
            raise ValueError(f"memory={memory!r} has no setting {unknown[0]!r}; it has {', '.join(own) or 'none'}")
        config: Any = SimpleNamespace(
            memory=memory,
            hidden_size=check_of(Size)("input_size", input_size),
            bias=check_of(bool)("bias", bias),
            **dict.fromkeys(setting_names()) | settings,
        )
        self.memory = complete_settings(config)
        self.controls = Controls.from_config(config, self.memory)
        self.reading_size = self.memory.reading_size

    def initial_state(self, batch_size: int) -> MemoryState:
        """An empty memory for `batch_size` sequences, and its reading."""
        return self.empty(batch_size)

    def forward(
        self, hidden: Tensor, state: MemoryState | None = None, active: Tensor | None = None
    ) -> tuple[Tensor, MemoryState, Actions]:
        """One step.

        Args:
            hidden: h_t, [B, H].
            state: after step t - 1; None: empty.
            active: [B] bool; where False, at padding, the sequence does not take the step and its state stays.

        Returns:
            The reading r_t [B, R], the next state, and the actions (see `Actions`, without the time).

        Raises:
            ValueError: if the state is of another batch size, or a memory of limited size overflows.
        """
        state = self.initial_state(hidden.shape[0]) if state is None else state
        if state.reading.shape[0] != hidden.shape[0]:
            raise ValueError(f"state is of {state.reading.shape[0]} sequences; hidden is of {hidden.shape[0]}")
        emitted, state = self.drive(hidden, state, active)
        self.memory.check_overflow(state.memory)
        return state.reading, state, self.report(emitted, state.memory, active)

    def scan(
        self, hidden: Tensor, mask: Tensor | None = None, state: MemoryState | None = None
    ) -> tuple[Tensor, MemoryState, Actions]:
        """Run a sequence of given h_1 .. h_T, as after an encoder that does not see the readings.

        Args:
            hidden: [B, T, H].
            mask: [B, T] bool, False at padding, where the reading is that of the last step before it.
            state: to start from; None: empty.

        Returns:
            The readings [B, T, R], the last state, and the actions [B, T, ...].

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
        return torch.stack(readings, dim=1), state, over_time(actions)
