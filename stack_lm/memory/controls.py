"""Controls: from the controller's output to the memory's actions.

One linear layer serves all actions of a memory; its rows are laid out in the order of the memory's action fields. Each
field then has its own emission (`stack_lm.memory.emission`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from transformers.initialization import copy_

from . import Memory
from .emission import Emission, HiddenState
from .fields import ActionField

Noise = Mapping[str, Tensor]


class ActionProjection(nn.Linear):
    """The linear layer from the controller's output to the logits of all actions.

    Args:
        hidden_size: size of the controller's output, H.
        widths: number of logits of each action.
        initial_biases: for each action the initial biases of its logits; an empty one leaves them to torch.
        bias: whether to have biases.
    """

    def __init__(
        self, hidden_size: int, widths: Sequence[int], initial_biases: Sequence[list[float]], *, bias: bool = True
    ) -> None:
        # nn.Linear resets its parameters when it is made.
        self.widths, self.initial_biases = tuple(widths), tuple(initial_biases)
        super().__init__(hidden_size, sum(widths), bias=bias)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Torch's default for a linear layer, except the given biases."""
        super().reset_parameters()
        self.set_initial_biases()

    @torch.no_grad()
    def set_initial_biases(self) -> None:
        """Set the initial biases of the logits that have them, and keep the other biases."""
        if self.bias is None:
            return
        bias = self.bias.detach().clone()
        for part, values in zip(bias.split(self.widths), self.initial_biases, strict=True):
            if values:
                part.copy_(part.new_tensor(values))
        copy_(self.bias, bias)  # transformers' own, which does not change weights that were just loaded


class LearnedStart(nn.ParameterDict):
    """The logits of the learned parts of a memory's initial state; zeros at first, or random within a bound.

    Args:
        widths: number of logits of each part.
    """

    def __init__(self, widths: Mapping[ActionField, int]) -> None:
        super().__init__({field.name: nn.Parameter(torch.empty(width)) for field, width in widths.items()})
        self.bounds = {field.name: field.bound for field in widths}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set zeros, the middle of an activation's range, or draw numbers."""
        for name, parameter in self.items():
            bound = self.bounds[name]
            init.uniform_(parameter, -bound, bound) if bound else init.zeros_(parameter)


class Controls(nn.Module):
    """The emission of all actions of a memory from the controller's output, and of its learned initial state.

    Args:
        hidden_size: size of the controller's output, H.
        memory: the memory, which has the action fields to fill.
        emissions: the emissions by the name of the field, including those of `Memory.learned`.
        bias: whether the linear layer has biases.

    Attributes:
        given_noise: the result of `draw_noise` inside `with_noise`.
    """

    given_noise: Noise | None = None

    def __init__(
        self, hidden_size: int, memory: Memory[Any, Any], emissions: Mapping[str, Emission], *, bias: bool = True
    ) -> None:
        super().__init__()
        self.memory = memory
        # Emissions with a state are modules, which checkpoints have under this name.
        self.choices = nn.ModuleDict({name: part for name, part in emissions.items() if isinstance(part, nn.Module)})
        self.stateless = {name: part for name, part in emissions.items() if name not in self.choices}
        self.widths = [emissions[field.name].width for field in memory.actions]
        biases = [emissions[field.name].initial_bias() for field in memory.actions]
        self.projection = ActionProjection(hidden_size, self.widths, biases, bias=bias) if any(self.widths) else None
        self.start = LearnedStart({field: emissions[field.name].width for field in memory.learned})

    @classmethod
    def from_config(cls, config: Any, memory: Memory[Any, Any]) -> Controls:
        """The controls of a memory that a configuration, or any object with its attributes, specifies."""
        emissions = {field.name: field.emission(config) for field in (*memory.actions, *memory.learned)}
        return cls(config.hidden_size, memory, emissions, bias=config.bias)

    def emission(self, name: str) -> Emission:
        """Return the emission of the action of that name."""
        found: Any = self.stateless.get(name)  # first, because a look-up among modules is slower
        if found is None:
            found = self.choices[name]
        emission: Emission = found
        return emission

    def first(self) -> dict[str, Tensor]:
        """The learned parts of the memory's initial state, by name; see `Memory.set_learned`."""
        return {name: self.emission(name).emit(logits.unsqueeze(0))[0][0] for name, logits in self.start.items()}

    @contextmanager
    def with_noise(self, noise: Noise | None) -> Iterator[None]:
        """Context manager: use this noise, such as each model's own if several train at once; None changes nothing."""
        self.given_noise = noise
        try:
            yield
        finally:
            self.given_noise = None

    def draw_noise(self, shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None = None) -> Noise:
        """The noise of each action that currently has one, by name: [*shape, ...], at least float32.

        Args:
            shape: the shape of hidden states, without H.
            like: a tensor of the device and type of hidden states.
            generator: a generator of random numbers; None is torch's own.

        Raises:
            ValueError: inside `with_noise`, if its noise is not of this shape: in a chunk of a sequence, or under
                activation checkpointing, which scans pieces.
        """
        if self.given_noise is not None:
            for name, part in self.given_noise.items():
                if tuple(part.shape[: len(shape)]) != tuple(shape):
                    raise ValueError(f"the noise of {name} is given as {list(part.shape)}; the steps are {list(shape)}")
            return self.given_noise
        drawn = {
            field.name: self.emission(field.name).draw_noise(shape, like, generator) for field in self.memory.actions
        }
        return {name: noise for name, noise in drawn.items() if noise is not None}

    def forward(self, hidden: Tensor, noise: Noise | None = None) -> tuple[Any, dict[str, Tensor]]:
        """Emit one step's actions.

        Args:
            hidden: the controller's output [B, H].
            noise: from `draw_noise`, [B, ...]; None to draw it here.

        Returns:
            The memory's actions (see `ActionField`; at least float32 except for values), and the reported actions with
            the distributions of strengths, by name.
        """
        actions: dict[str, Tensor] = {}
        reported: dict[str, Tensor] = {}
        logits_of_all = hidden[:, :0] if self.projection is None else self.projection(hidden)
        parts = logits_of_all.split(self.widths, dim=-1) if self.widths else ()
        for field, logits in zip(self.memory.actions, parts, strict=True):
            own = None if noise is None else noise.get(field.name)
            emission = self.emission(field.name)
            given = hidden if isinstance(emission, HiddenState) else logits
            actions[field.name], distribution = emission.emit(given, own)
            if field.reported:
                reported |= field.report(actions[field.name], distribution)
        return self.memory.action_type(**actions), reported

    def over_time(self, hidden: Tensor, noise: Noise | None = None) -> tuple[Any, dict[str, Tensor]]:
        """`forward` for all steps at once: of hidden states [B, T, H], actions and reports [B, T, ...]."""
        flat = None if noise is None else {name: part.flatten(0, 1) for name, part in noise.items()}
        actions, reported = self(hidden.flatten(0, 1), flat)
        shape = hidden.shape[:2]
        of_steps = type(actions)(*(part.unflatten(0, shape) for part in actions))
        return of_steps, {name: part.unflatten(0, shape) for name, part in reported.items()}
