"""Layers: a memory with its controls, driven by given vectors or by a controller. Which of them a model has."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from .controlled import Actions, ControlledMemory


def recurrent_layers(model: nn.Module) -> list[ControlledMemory]:
    """The layers of a network that carry a state of this package, in order: those of `memories`, and cells without one.

    The state of the i-th is number i in a `MemoryCache`.
    """
    return [module for module in model.modules() if isinstance(module, ControlledMemory)]


def memories(model: nn.Module) -> list[ControlledMemory]:
    """The memory layers of any network, in the order in which it has them; a cell with `memory="none"` is none."""
    return [layer for layer in recurrent_layers(model) if layer.memory.actions]


def actions_by_layer(actions: Actions | Sequence[Actions] | None) -> Sequence[Mapping[str, Any]]:
    """The actions of each memory layer, from the `actions` that a model returns: of one layer they are no sequence."""
    if actions is None:
        return ()
    return (actions,) if isinstance(actions, Mapping) else actions
