"""The interface of memories: a state, actions, and one step from a state and actions to a reading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..plugins import Registry

if TYPE_CHECKING:
    from ..configuration_stack_rnn import StackRNNConfig

State = TypeVar("State", bound="tuple[Any, ...]")
Actions = TypeVar("Actions", bound="tuple[Any, ...]")
MemoryClass = TypeVar("MemoryClass", bound="type[Memory[Any, Any]]")
MEMORIES: Registry[type[Memory[Any, Any]]] = Registry("memory", "stack_lm.memories")


def under_transform() -> bool:
    """Whether a transform of `torch.func`, such as vmap, is at work, under which nobody may look at numbers."""
    return torch._C._are_functorch_transforms_active()


class ActionField(NamedTuple):
    """One action that a memory takes at each step.

    Attributes:
        name: the field's name in the memory's actions, such as "push_strength".
        kind: "strength" (a number >= 0, in elements), "choice" (a distribution over operations) or "value" (a vector to
            store).
        size: 1 for a strength, the number of operations O for a choice, D for a value.
        groups: how many choices are made side by side, S: one for each stack.
        operations: the names of a choice's operations, in order.
        control: of a strength, which settings say how it is emitted: "push" has `push_control`, `max_push` and
            `push_strength_init` (see `stack_lm.memory.control_settings`).
        distribution: of a strength, under which name its distribution is reported where it is an expected value.
    """

    name: str
    kind: Literal["strength", "choice", "value"]
    size: int
    groups: int = 1
    operations: tuple[str, ...] = ()
    control: str = ""
    distribution: str = ""

    @classmethod
    def strength(cls, control: str, end: str = "") -> ActionField:
        """The strength of a control: "push" makes `push_strength`, and with an end of the memory `push_strength_top`.

        Its distribution is `push_distribution`, or `push_distribution_top`.
        """
        end = end and f"_{end}"
        return cls(
            f"{control}_strength{end}", "strength", 1, control=control, distribution=f"{control}_distribution{end}"
        )

    def shape(self, batch_size: int) -> tuple[int, ...]:
        """The action's shape: strengths [B], choices [B, S, O], values [B, D]."""
        if self.kind == "choice":
            return batch_size, self.groups, self.size
        return (batch_size,) if self.kind == "strength" else (batch_size, self.size)


class Memory(ABC, Generic[State, Actions]):
    """A differentiable memory. It has no parameters and no hidden state: `step` is a function.

    States and actions are NamedTuples of tensors whose first dimension is the batch, so that `map_tensors` serves
    detaching, moving, reordering and repeating alike.

    Attributes:
        name: under which it is registered.
        settings: the fields of `StackRNNConfig` that it has a use for, each with its default; all others are refused.
            For each control of its strengths those of `control_settings`, which may be new ones.
        actions: the fields that `step` takes, in the order of `action_type`.
        action_type: the NamedTuple of its actions.
        state_type: the NamedTuple of its state.
        reading_size: size of the vector it reads out, R.
    """

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]]
    actions: tuple[ActionField, ...]
    action_type: type[Actions]
    state_type: type[State]
    reading_size: int

    @classmethod
    @abstractmethod
    def from_config(cls, config: StackRNNConfig) -> Memory[State, Actions]:
        """The memory that a model's configuration asks for.

        Args:
            config: has `settings` as attributes, all decided; of other fields it may lack any.
        """

    @abstractmethod
    def initial_state(
        self, batch_size: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> State:
        """An empty memory for `batch_size` sequences."""

    def initial_reading(self, state: State) -> Tensor:
        """The reading at the first step, r_0: zeros [B, R] unless a paper defines another."""
        first = next(_tensors(state))
        return first.new_zeros(first.shape[0], self.reading_size)

    def step(self, state: State, actions: Actions) -> tuple[State, Tensor]:
        """Check one step's actions, then apply them. `update` does the same and trusts its arguments.

        The values are looked at, which on a GPU waits for it.

        Args:
            state: as `initial_state` or `step` returned it.
            actions: an `action_type`; strengths [B], choices [B, S, O], values [B, D].

        Returns:
            The next state, and the reading [B, R].

        Raises:
            ValueError: if the state or an action has another type, shape, batch size or device, if a number in them
                is not finite, if a strength is negative, if a choice is no distribution, or if a memory of limited size
                overflows.
        """
        self.check(state, actions)
        new, reading = self.update(state, actions)
        self.check_overflow(new)
        return new, reading

    @abstractmethod
    def update(self, state: State, actions: Actions) -> tuple[State, Tensor]:
        """Apply one step's actions without checking them; scans call this.

        Arguments and results are those of `step`.
        """

    @abstractmethod
    def hold(self, active: Tensor, new: State, old: State) -> State:
        """The state after a step that only some sequences took.

        Args:
            active: [B], True where the sequence took the step.
            new: the state that `update` returned.
            old: the state it was given.

        Returns:
            A state that acts as `new` where `active` and as `old` elsewhere.
        """

    def reset(self, state: State, rows: Tensor) -> State:
        """A state in which some sequences' memories are empty again; the others are as they were.

        Zeros are an empty memory to most, whatever has been pushed; one to which they are not has to override this.

        Args:
            state: any.
            rows: [B], True where the memory is emptied.
        """
        reset: State = map_tensors(lambda part: part.masked_fill(rows.view(-1, *[1] * (part.dim() - 1)), 0), state)
        return reset

    def measure(self, state: State) -> dict[str, Tensor]:
        """Measurements of a state, by name, each [B]: reported with the actions of the step."""
        return {}

    def measure_over(self, state: State, actions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`measure` after each step of a sequence, from the actions alone: [B, T] each.

        For memories that have a compiled scan, which keeps no states between the steps.

        Args:
            state: before the first step.
            actions: by name, [B, T]; zeros at padding.
        """
        return {}

    def compact(self, state: State, steps: int) -> State:
        """A state that acts as this one does, perhaps smaller; the same one where gradients go to it.

        Args:
            steps: how many steps it is about to take, so that the effort is in proportion.
        """
        return state

    def check(self, state: State, actions: Actions) -> None:
        """Find arguments of `step` that cannot be meant; see there."""
        for given, kind, what in ((state, self.state_type, "state"), (actions, self.action_type, "actions")):
            if not isinstance(given, kind):
                raise ValueError(f"the {what} of {type(self).__name__} is a {kind.__name__}; got {_describe(given)}")
        first = next(_tensors(state))
        for name, tensor in _named_tensors(state):
            _check_tensor(f"state.{name}", tensor, (first.shape[0], *tensor.shape[1:]), first.device)
        for field in self.actions:
            action = getattr(actions, field.name)
            _check_tensor(field.name, action, field.shape(first.shape[0]), first.device)
            if field.kind != "value" and bool((action < 0).any()):
                raise ValueError(f"{field.name} must be at least 0; got {float(action.min()):g}")
            if field.kind == "choice":
                off = (action.sum(-1) - 1).flatten()
                if bool((off.abs() > 1e-3).any()):
                    total = 1 + float(off[off.abs().argmax()])
                    raise ValueError(f"{field.name} must sum to 1 over {', '.join(field.operations)}; got {total:g}")

    def check_overflow(self, state: State) -> None:
        """Check whether a memory of limited size has lost an element, if it is set to raise then.

        Raises:
            ValueError: if it has.
        """


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif tree is not None:
        for part in tree:
            yield from _tensors(part)


def _named_tensors(state: Any) -> Iterator[tuple[str, Tensor]]:
    for name, part in zip(state._fields, state, strict=True):
        for tensor in _tensors(part):
            yield name, tensor


def _describe(given: Any) -> str:
    return type(given).__name__


def _check_tensor(name: str, tensor: Any, shape: tuple[int, ...], device: torch.device) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor; got a {_describe(tensor)}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must be {list(shape)} (the state is of {shape[0]}); got {list(tensor.shape)}")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}; the state is on {device}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite; got {float(tensor[~torch.isfinite(tensor)][0])}")


def register_memory(name: str) -> Callable[[MemoryClass], MemoryClass]:
    """Class decorator: make a memory available as `StackRNNConfig(memory=name)`.

    Raises:
        ValueError: if another class has that name.
        TypeError: if the class overrides `step`, which nothing that runs over a sequence would call.
    """

    def register(cls: MemoryClass) -> MemoryClass:
        if cls.step is not Memory.step:
            raise TypeError(f"{cls.__qualname__} overrides step; it must override update, which step and models call")
        MEMORIES.register(name, cls)
        cls.name = name
        return cls

    return register


def memory_names() -> tuple[str, ...]:
    """The names of all registered memories."""
    return tuple(MEMORIES)


def memory_class(name: str) -> type[Memory[Any, Any]]:
    """The class registered under a name.

    Raises:
        InputError: if there is none.
    """
    return MEMORIES.find(name)


def map_tensors(function: Callable[..., Tensor], *trees: Any) -> Any:
    """Apply a function to the corresponding tensors of nested (named) tuples of one structure.

    Args:
        function: takes one tensor from each tree.
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
