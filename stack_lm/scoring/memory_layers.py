"""The memory layers of a language model, and the one that is used for parsing and shown."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from transformers import PreTrainedModel

from ..core.errors import InputError
from ..memory import NondeterministicStack, Strength
from ..memory.emission import Emission, Fixed
from ..nn import memories, strengths_of
from ..nn.controlled import ControlledMemory

# The strengths for distances; the first that is not fixed is used.
_PARSED = ("push_strength", "pop_strength")
# The signal of a nondeterministic stack, which has no strengths: the depth of its most probable run.
RUN_DEPTH = "run_depth"


def has_runs(layer: ControlledMemory) -> bool:
    """True if a memory is a nondeterministic stack."""
    return isinstance(layer.memory, NondeterministicStack)


def by_head(layer: ControlledMemory, actions: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The actions of a layer, those of several heads under names of their own, such as push_strength_head_0, and the
    mean of their strengths, which makes trees.

    Args:
        layer: the memory layer.
        actions: by name, [T, ...]; of heads [T, heads, ...].
    """
    split = {}
    for field in layer.memory.actions:
        if isinstance(field, Strength) and field.heads > 1:
            for name in {field.name, field.distribution} & actions.keys():
                split[name] = {f"{name}_head_{i}": actions[name][:, i] for i in range(field.heads)}
                if name == field.name:
                    split[name][name] = actions[name].mean(1)
    names = (split.get(name, {name: values}) for name, values in actions.items())
    return {name: values for part in names for name, values in part.items()}


def _push_and_pop(layer: ControlledMemory) -> dict[str, Emission]:
    """The push and pop strength of a memory that has one of each, else {}."""
    strengths = strengths_of(layer)
    return {name: strengths[name] for name in _PARSED} if set(_PARSED) <= strengths.keys() else {}


def _free_strengths(layer: ControlledMemory) -> list[str]:
    """The signals of a memory for parsing: its push and pop strengths, if it has both, except fixed ones."""
    free = [name for name, strength in _push_and_pop(layer).items() if not isinstance(strength, Fixed)]
    return [RUN_DEPTH] if has_runs(layer) else free


class MemoryLayers:
    """A model, and the memory layer that its traces show.

    Args:
        model: any.
        layer: the number of the memory layer, from 0; None takes the only one, or the only one usable for parsing.

    Attributes:
        memories: the model's memory layers.

    Raises:
        InputError: if there is no such layer.
    """

    def __init__(self, model: PreTrainedModel, layer: int | None = None) -> None:
        self.model = model
        self.memories = memories(model)
        if layer is not None and not 0 <= layer < len(self.memories):
            raise InputError(f"layer must be the number of a memory layer, below {len(self.memories)}; got {layer}")
        self._layer = self._find_layer() if layer is None else layer

    @property
    def layer(self) -> int:
        """The memory layer that is used for parsing and shown.

        Raises:
            InputError: if the model has no memory, or several of which none was named.
        """
        if self._layer is not None:
            return self._layer
        if not self.memories:
            raise self.no_memory(", so it has no push or pop strengths")
        usable = ", ".join(str(i) for i, memory in enumerate(self.memories) if _free_strengths(memory)) or "none"
        found = f"the model has {len(self.memories)} memory layers"
        raise InputError(f"{found}: name one with layer (--layer); with strengths to parse with: {usable}")

    def no_memory(self, reason: str) -> InputError:
        """The error for a model without a memory; `reason` ends its message."""
        memory = getattr(self.model.config, "memory", None)
        what = f"a {type(self.model.config).__name__}" if memory is None else f"memory={memory!r}"
        return InputError(f"the model has no memory ({what}){reason}")

    def _find_layer(self) -> int | None:
        """The only memory layer, or the only one usable for parsing."""
        numbers = range(len(self.memories))
        usable = numbers if len(numbers) == 1 else [i for i in numbers if _free_strengths(self.memories[i])]
        return usable[0] if len(usable) == 1 else None

    def choose_signal(self, name: str | None) -> str:
        """The signal for syntactic distances: the named one, or else `parsing_signal`.

        Raises:
            InputError: as `layer`, and without a name as `parsing_signal`.
        """
        if name is None:
            return self.parsing_signal
        _ = self.layer  # an error if there is none, or if it is ambiguous
        return name

    @property
    def makes_trees(self) -> bool:
        """True if the memory gives syntactic distances: it has one push and one pop strength, or runs.

        Raises:
            InputError: as `layer`.
        """
        layer = self.memories[self.layer]
        return has_runs(layer) or bool(_push_and_pop(layer))

    @property
    def parsing_signal(self) -> str:
        """The signal that syntactic distances come from: the push strength, or the pop strength if the push is fixed
        (Merrill et al. 2019, section 5); the depth of the most probable run of a nondeterministic stack.

        Raises:
            InputError: if the model has no memory, one of another kind, or fixes both strengths; and as `layer`.
        """
        layer = self.memories[self.layer]
        if not self.makes_trees:
            raise InputError(f"memory={layer.memory.name!r} has no single push and pop strength to make trees from")
        free = _free_strengths(layer)
        if not free:
            raise InputError("the model's push and pop strengths are both fixed: they say nothing about structure")
        return free[0]
