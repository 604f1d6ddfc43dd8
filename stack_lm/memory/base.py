"""What every memory is: a state, the actions it takes, and one step from a state and actions to a reading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..configuration_stack_rnn import StackRNNConfig

MemoryClass = TypeVar("MemoryClass", bound="type[Memory]")
_REGISTRY: dict[str, type[Memory]] = {}


class ActionField(NamedTuple):
    """One action that a memory takes at each step.

    Attributes:
        name: the field's name in the memory's actions, such as "push_strength".
        kind: "strength" (a number >= 0, in elements) or "value" (a vector to store).
        size: 1 for a strength, D for a value.
    """

    name: str
    kind: Literal["strength", "value"]
    size: int


class Memory(ABC):
    """A differentiable memory. It has no parameters and no hidden state: `step` is a function.

    States and actions are NamedTuples of tensors whose first dimension is the batch, so that `map_tensors` serves
    detaching, moving, reordering and repeating alike.

    Attributes:
        name: under which it is registered.
        actions: the fields that `step` takes, in the order of `action_type`.
        action_type: the NamedTuple that holds them.
        reading_size: size of the vector it reads out, D.
    """

    name: ClassVar[str]
    actions: tuple[ActionField, ...]
    action_type: type[Any]
    reading_size: int

    @classmethod
    @abstractmethod
    def from_config(cls, config: StackRNNConfig) -> Memory:
        """The memory that a model's configuration asks for."""

    @abstractmethod
    def initial_state(
        self, batch_size: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> Any:
        """An empty memory for `batch_size` sequences."""

    @abstractmethod
    def step(self, state: Any, actions: Any) -> tuple[Any, Tensor]:
        """Apply one step's actions.

        Args:
            state: as `initial_state` or `step` returned it.
            actions: an `action_type`; strengths [B], values [B, D].

        Returns:
            The next state, and the reading [B, D].
        """

    @abstractmethod
    def hold(self, active: Tensor, new: Any, old: Any) -> Any:
        """The state after a step that only some sequences took.

        Args:
            active: [B], True where the sequence took the step.
            new: the state that `step` returned.
            old: the state it was given.

        Returns:
            A state that acts as `new` where `active` and as `old` elsewhere.
        """

    def measure(self, state: Any) -> dict[str, Tensor]:
        """What can be told of a state, by name, each [B]: reported beside the actions of the step."""
        return {}


def register_memory(name: str) -> Callable[[MemoryClass], MemoryClass]:
    """Class decorator: make a memory available as `StackRNNConfig(memory=name)`.

    Raises:
        ValueError: if another class has that name.
    """

    def register(cls: MemoryClass) -> MemoryClass:
        if _REGISTRY.get(name, cls) is not cls:
            raise ValueError(f"the memory name {name!r} is taken by {_REGISTRY[name].__qualname__}")
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return register


def memory_names() -> tuple[str, ...]:
    """The names of all registered memories."""
    return tuple(_REGISTRY)


def make_memory(config: StackRNNConfig) -> Memory:
    """The memory named by `config.memory`."""
    return _REGISTRY[config.memory].from_config(config)


def map_tensors(function: Callable[..., Tensor], *trees: Any) -> Any:
    """Apply a function to the corresponding tensors of nested (named) tuples of one structure.

    Args:
        function: takes as many tensors as there are trees.
        trees: tensors, or tuples, NamedTuples or Nones nested in any way.

    Returns:
        The same structure with the function's results.
    """
    first = trees[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return function(*trees)
    items = [map_tensors(function, *parts) for parts in zip(*trees, strict=True)]
    return type(first)(*items) if hasattr(first, "_fields") else tuple(items)
