"""A memory and its controls: the one place where controls, update, hold and report meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..controls import Controls
from ..memory import Memory


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
