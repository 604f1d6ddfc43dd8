"""Interventions: a trained memory with replaced actions, contents or readings.

The controller continues from the changed reading, so actions are replaced step by step while the model runs. An
intervention is a memory that replaces the layer's own. Compiled scans do not support it, so the reference runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from ..memory import Memory, map_tensors
from ..memory.base import Where
from .controlled import ControlledMemory


@dataclass(frozen=True, eq=False)
class Intervention:
    """Replacements in a memory's steps; none by default.

    Attributes:
        actions: by the name of the action, such as "push_strength" or "operation": a number or a tensor [*shape] for
            every step, or a tensor [B, T, *shape] with the steps of each sequence. The latter is for whole sequences in
            one call, from an empty memory and with any padding on the right.
        one_element: the memory is emptied before each step, so that it holds only the element that the step pushes.
        reading: [R], replaces every reading; None keeps it.
        exit: [X], replaces the memory's vector for a head (see `Memory.output_features`); None keeps it.
        observe: called after each step with its actions and its reading [B, R], which have gradients.
    """

    actions: Mapping[str, float | Tensor] = field(default_factory=dict)
    one_element: bool = False
    reading: Tensor | None = None
    exit: Tensor | None = None
    observe: Callable[[Any, Tensor], None] | None = None


class IntervenedState(NamedTuple):
    """A memory's state, the number of steps taken [B], and the last step.

    Attributes:
        memory: the state of the memory itself.
        steps: number taken by each sequence [B].
        done: the actions of the last step as applied to the memory, by field.
        reading: after it, [B, R].
        exit: its exit, [B, X]; None if the memory has none.
    """

    memory: Any
    steps: Tensor
    done: tuple[Tensor, ...]
    reading: Tensor
    exit: Tensor | None


class IntervenedMemory(Memory[IntervenedState, Any]):
    """A memory under an intervention.

    It reports the applied actions, including those that the memory itself does not report, the `reading` and the
    `exit`. The distribution behind a strength is still the controller's.

    Args:
        memory: the memory itself.
        intervention: what to replace.
        first: the learned parts of the memory's initial state, by name.

    Raises:
        ValueError: for an action that the memory lacks, or a value of another shape.
    """

    name = "intervened"
    state_type = IntervenedState

    def __init__(
        self, memory: Memory[Any, Any], intervention: Intervention, first: Mapping[str, Tensor] | None = None
    ) -> None:
        self.memory, self.intervention, self.first = memory, intervention, first or {}
        self.actions, self.action_type, self.learned = memory.actions, memory.action_type, memory.learned
        self.reading_size, self.output_size = memory.reading_size, memory.output_size
        shapes = {action.name: action.shape for action in memory.actions}
        self._given: dict[str, tuple[Tensor, bool]] = {}
        for name, value in intervention.actions.items():
            if name not in shapes:
                raise ValueError(f"memory={memory.name!r} has no action {name!r}; it has {', '.join(shapes)}")
            given, shape = torch.as_tensor(value), shapes[name]
            of_steps = given.dim() == len(shape) + 2
            if given.dim() > 0 and tuple(given.shape[2:] if of_steps else given.shape) != shape:
                steps = ", ".join(map(str, ("B", "T", *shape)))
                raise ValueError(f"{name} must be a number, {list(shape)} or [{steps}]; got {list(given.shape)}")
            self._given[name] = given, of_steps
        for name, size in (("reading", self.reading_size), ("exit", self.output_size)):
            vector = getattr(intervention, name)
            if vector is not None and vector.shape != (size,):
                raise ValueError(f"{name} must be [{size}]; got {list(vector.shape)}")

    @classmethod
    def from_config(cls, config: Any) -> IntervenedMemory:
        """An intervention is not part of a configuration."""
        raise NotImplementedError("an intervention is made by `intervene`, not by a configuration")

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> IntervenedState:
        state = self.memory.initial_state(batch_size, length, **where)
        reading = self.memory.initial_reading(state)
        done = tuple(reading.new_zeros(batch_size, *action.shape) for action in self.actions)
        steps = torch.zeros(batch_size, dtype=torch.int64, device=reading.device)
        exits = reading.new_zeros(batch_size, self.output_size) if self.output_size else None
        return IntervenedState(state, steps, done, reading, exits)

    def set_learned(
        self, state: IntervenedState, parts: Mapping[str, Tensor], rows: Tensor | None = None
    ) -> IntervenedState:
        return state._replace(memory=self.memory.set_learned(state.memory, parts, rows))

    def initial_reading(self, state: IntervenedState) -> Tensor:
        return self.memory.initial_reading(state.memory)

    def update(self, state: IntervenedState, actions: Any) -> tuple[IntervenedState, Tensor]:
        actions = self._replaced(actions, state.steps)
        before = state.memory
        if self.intervention.one_element:
            everywhere = torch.ones_like(state.steps, dtype=torch.bool)
            before = self.memory.set_learned(self.memory.reset(before, everywhere), self.first, everywhere)
        after, reading = self.memory.update(before, actions)
        if self.intervention.reading is not None:
            reading = self.intervention.reading.to(reading).expand_as(reading)
        if self.intervention.observe is not None:
            self.intervention.observe(actions, reading)
        exits = self._exit(actions, reading) if self.output_size else None
        return IntervenedState(after, state.steps + 1, tuple(actions), reading, exits), reading

    def hold(self, active: Tensor, new: IntervenedState, old: IntervenedState) -> IntervenedState:
        def where(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old)

        padding = tuple(
            torch.full_like(part, action.padding) for action, part in zip(self.actions, new.done, strict=True)
        )
        return IntervenedState(
            self.memory.hold(active, new.memory, old.memory),
            where(new.steps, old.steps),
            map_tensors(where, new.done, padding),
            where(new.reading, torch.zeros_like(new.reading)),
            None if new.exit is None else where(new.exit, torch.zeros_like(new.exit)),
        )

    def reset(self, state: IntervenedState, rows: Tensor) -> IntervenedState:
        return super().reset(state, rows)._replace(memory=self.memory.reset(state.memory, rows))

    def output_features(self, actions: Any, readings: Tensor) -> Tensor:
        """The steps of whole sequences one after another, [B * T, ...]."""
        return self._exit(self._replaced(actions), readings)

    def measure(self, state: IntervenedState) -> dict[str, Tensor]:
        """Return the memory's measures, and the last step's actions, reading and exit."""
        done = {action.name: part for action, part in zip(self.actions, state.done, strict=True)}
        exits = {} if state.exit is None else {"exit": state.exit}
        return self.memory.measure(state.memory) | done | {"reading": state.reading} | exits

    def compact(self, state: IntervenedState, steps: int) -> IntervenedState:
        return state._replace(memory=self.memory.compact(state.memory, steps))

    def check_overflow(self, state: IntervenedState) -> None:
        self.memory.check_overflow(state.memory)

    def _exit(self, actions: Any, readings: Tensor) -> Tensor:
        fixed = self.intervention.exit
        exits = self.memory.output_features(actions, readings)
        return exits if fixed is None else fixed.to(exits).expand_as(exits)

    def _replaced(self, actions: Any, steps: Tensor | None = None) -> Any:
        """Replace actions with those of the intervention, for one step of each sequence or, with None, for all steps.

        Actions for fewer steps, or for another number of sequences, are torch's error.
        """
        replaced = {}
        for name, (given, of_steps) in self._given.items():
            emitted = getattr(actions, name)
            if of_steps and steps is None:
                given = given.flatten(0, 1)
            elif of_steps and steps is not None and len(given) == len(steps):
                given = given[torch.arange(len(steps), device=given.device), steps.to(given.device)]
            replaced[name] = given.to(emitted).expand_as(emitted)
        return actions._replace(**replaced)


@contextmanager
def intervene(layer: ControlledMemory, intervention: Intervention) -> Iterator[None]:
    """Context manager: put a memory layer under an intervention; weights do not change.

    Example:
        >>> (layer,) = stack_lm.memories(model)
        >>> with intervene(layer, Intervention({"push_strength": 0.5})):
        ...     outputs = model(ids, output_actions=True)

    Args:
        layer: one of `memories(model)`.
        intervention: what to replace.

    Raises:
        ValueError: if the intervention does not fit the memory.
    """
    memory, backend = layer.memory, layer.scan_backend
    layer.memory, layer.scan_backend = IntervenedMemory(memory, intervention, layer.controls.first()), "reference"
    try:
        yield
    finally:
        layer.memory, layer.scan_backend = memory, backend
