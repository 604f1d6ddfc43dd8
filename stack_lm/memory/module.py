"""A memory and its controls: the one place where controls, update, hold and report meet.

`ControlledMemory` has the step. `MemoryModule` is one to put into an encoder or decoder of your own, and
`stack_lm.cell.StackRNNCell` combines one with a controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..controls import Controls
from ..field_checks import FIELD_CHECKS, MEMORY_CHECKS
from .base import Memory, memory_class
from .settings import check_memory, complete_settings


class Actions(dict[str, Tensor]):
    """The actions on a memory at each step, by name and as attributes.

    For a stack: `push_strength`, `pop_strength`, `read_strength` and `total_strength` [B, T], in elements, and for
    each control that is an expected value its distribution, such as `push_distribution` [B, T, K + 1]. For memories in
    superposition: `operation` [B, T, S, O], a distribution over the operations. At padded steps all are zero, but what
    the memory measures of its state (`total_strength`, `depth`, `lost`), which stays. Empty where there is no memory.
    """

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self[name]
        except KeyError:
            there = ", ".join(self) or "no actions, because the model has no memory"
            raise AttributeError(f"no action {name!r}; there are {there}") from None


class MemoryState(NamedTuple):
    """What passes from one step to the next: the memory's own state, and the last reading [B, R]."""

    memory: Any
    reading: Tensor


def blank(actions: Mapping[str, Tensor], mask: Tensor | None) -> dict[str, Tensor]:
    """Actions with zeros where the mask, of their first dimensions, is False."""
    if mask is None:
        return dict(actions)
    padding = ~mask
    return {
        name: part.masked_fill(padding.view(*mask.shape, *[1] * (part.dim() - mask.dim())), 0)
        for name, part in actions.items()
    }


def over_time(steps: Sequence[Mapping[str, Tensor]]) -> Actions:
    """The actions of a sequence [B, T, ...] from those of its steps [B, ...]; none from no steps."""
    return Actions({name: torch.stack([step[name] for step in steps], dim=1) for name in (steps[0] if steps else ())})


class ControlledMemory(nn.Module):
    """A memory that is driven by vectors: what its step is, wherever it runs.

    Attributes:
        memory: the memory, a function without parameters.
        controls: emit its actions from a vector.
    """

    memory: Memory[Any, Any]
    controls: Controls

    @property
    def like(self) -> Tensor:
        """A tensor of the module's device and type; a direct controller without a memory has a buffer alone."""
        return next(chain(self.parameters(), self.buffers()), torch.empty(0))

    def empty(self, batch_size: int) -> MemoryState:
        """An empty memory for `batch_size` sequences, and its reading."""
        memory = self.memory.initial_state(batch_size, device=self.like.device, dtype=self.like.dtype)
        return MemoryState(memory, self.memory.initial_reading(memory).to(self.like.dtype))

    def drive(
        self, hidden: Tensor, state: MemoryState, active: Tensor | None = None, noise: Tensor | None = None
    ) -> tuple[tuple[Any, dict[str, Tensor]], MemoryState]:
        """One step of controls and memory.

        Args:
            hidden: the vectors to emit the actions from, [B, H].
            state: after step t - 1.
            active: [B] bool; where False, the sequence does not take the step and its state stays.
            noise: of choices, as `Controls.draw_noise` drew it; None to draw it here.

        Returns:
            The output of the controls (see `Controls.forward`), and the next state.
        """
        emitted = self.controls(hidden, noise)
        memory, reading = self.memory.update(state.memory, emitted[0])
        if active is not None:
            memory = self.memory.hold(active, memory, state.memory)
            reading = torch.where(active.unsqueeze(-1), reading, state.reading)
        return emitted, MemoryState(memory, reading)

    def report(self, emitted: tuple[Any, dict[str, Tensor]], memory: Any, active: Tensor | None = None) -> Actions:
        """The actions of a step (see `Actions`, without the time), from the result of `drive`."""
        return Actions(blank(self.controls.report(*emitted), active) | self.memory.measure(memory))

    def report_over(
        self, hidden: Tensor, memory: Any, mask: Tensor | None = None, noise: Tensor | None = None
    ) -> Actions:
        """The actions over a sequence whose states were not kept, for memories with `measure_over`.

        Args:
            hidden: [B, T, H].
            memory: the memory's state before the first step.
            mask: [B, T] bool, False at padding.
            noise: of choices [B, T, S, O], as it was drawn for the steps.
        """
        noise = None if noise is None else noise.flatten(0, 1)
        reported = self.controls.report(*self.controls(hidden.flatten(0, 1), noise))
        actions = blank({name: part.unflatten(0, hidden.shape[:2]) for name, part in reported.items()}, mask)
        return Actions(actions | self.memory.measure_over(memory, actions))


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
        own = memory_class(check_memory("memory", memory)).settings
        unknown = sorted(settings.keys() - own.keys())
        if unknown:
            raise ValueError(f"memory={memory!r} has no setting {unknown[0]!r}; it has {', '.join(own) or 'none'}")
        config: Any = SimpleNamespace(
            memory=memory,
            hidden_size=FIELD_CHECKS["hidden_size"]("input_size", input_size),
            bias=FIELD_CHECKS["bias"]("bias", bias),
            **{name: check(name, settings.pop(name, None)) for name, check in MEMORY_CHECKS.items()},
            **settings,
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
