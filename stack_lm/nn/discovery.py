"""The memory layers of a model and their actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from ..memory import Choice, Strength
from ..memory.controls import Noise
from ..memory.emission import Emission
from .controlled import Actions, ControlledMemory


def recurrent_layers(model: nn.Module) -> list[ControlledMemory]:
    """The layers of a network that carry a state, in order: those of `memories`, and cells without a memory.

    The state of the i-th is number i in a `MemoryCache`.
    """
    return [module for module in model.modules() if isinstance(module, ControlledMemory)]


def memories(model: nn.Module) -> list[ControlledMemory]:
    """The memory layers of any network, in its order; a cell with `memory="none"` does not count."""
    return [layer for layer in recurrent_layers(model) if layer.memory.actions]


def memory_states(layer: ControlledMemory, actions: Mapping[str, Any]) -> Iterator[Any]:
    """The states of a layer's memory after each step, from the actions that it took from its start [B, T, ...].

    A scan drops dead elements now and then; here each keeps its position.
    """
    memory, first = layer.memory, actions[layer.memory.actions[0].name]
    state = layer.empty(first.shape[0]).memory
    for step in range(first.shape[1]):
        done = {field.name: actions[field.name][:, step] for field in memory.actions}
        state, _ = memory.update(state, memory.action_type(**done))
        yield state


def draw_noise(model: nn.Module, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Noise:
    """The noise of a network's layers, [*shape, ...] by the layer's number and a name: the action's or "dropout".

    The noise of dropout is only that between controller layers in training mode.

    Args:
        model: any network.
        shape: the shape of the steps.
        generator: a generator of random numbers; None is torch's own.
    """
    return {
        f"{i}.{name}": noise
        for i, layer in enumerate(recurrent_layers(model))
        for name, noise in layer.draw_noise(shape, generator).items()
    }


def noise_of(noise: Noise, number: int) -> Noise:
    """Select one layer's noise from the result of `draw_noise`, by the action's name."""
    start = f"{number}."
    return {name.removeprefix(start): part for name, part in noise.items() if name.startswith(start)}


@contextmanager
def with_noise(model: nn.Module, noise: Noise | None) -> Iterator[None]:
    """Context manager: give the layers of a network this noise, from `draw_noise`; None changes nothing."""
    with ExitStack() as stack:
        for i, layer in enumerate(recurrent_layers(model)):
            stack.enter_context(layer.controls.with_noise(None if noise is None else noise_of(noise, i)))
        yield


def strengths_of(layer: ControlledMemory) -> dict[str, Emission]:
    """The strengths among a memory's actions, by name, with the emission of each, or of one head."""
    fields = (field for field in layer.memory.actions if isinstance(field, Strength))
    return {field.name: layer.controls.emission(field.name).of_one for field in fields}


def operation_labels(layer: ControlledMemory) -> dict[str, list[str]]:
    """Names of the S O operations of a memory's S stacks, for each of its choices by the action's name."""
    return {
        field.name: [f"{o} {s + 1}" if field.groups > 1 else o for s in range(field.groups) for o in field.operations]
        for field in layer.memory.actions
        if isinstance(field, Choice)
    }


def actions_by_layer(actions: Actions | Sequence[Actions] | None) -> Sequence[Mapping[str, Any]]:
    """The actions of each memory layer, from a model's `actions`, which for one layer are not in a sequence."""
    if actions is None:
        return ()
    # A cell without a memory has no actions, and is not a memory layer.
    return (actions,) if isinstance(actions, Mapping) else [of_layer for of_layer in actions if of_layer]
