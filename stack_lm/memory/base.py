"""The interface of memories: a state, actions, and a step from these to the next state and a reading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..core.plugins import Registry
from .fields import ActionField

State = TypeVar("State", bound="tuple[Any, ...]")
Actions = TypeVar("Actions", bound="tuple[Any, ...]")
NamedTupleClass = TypeVar("NamedTupleClass", bound="type[tuple[Any, ...]]")
MemoryClass = TypeVar("MemoryClass", bound="type[Memory[Any, Any]]")
MEMORIES: Registry[type[Memory[Any, Any]]] = Registry("memory", "stack_lm.memories")


def under_transform() -> bool:
    """True under a transform of `torch.func`, such as vmap, where code cannot read numbers."""
    return torch._C._are_functorch_transforms_active()


def numbers_hidden() -> bool:
    """True if code cannot read numbers: under a transform, or while torch.compile or torch.export trace."""
    return under_transform() or torch.compiler.is_compiling()


def serializable(cls: NamedTupleClass) -> NamedTupleClass:
    """Class decorator: let `torch.export.save` write trees with NamedTuples of this class."""
    if cls not in pytree.SUPPORTED_NODES:
        pytree._register_namedtuple(cls, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}")
    return cls


class Where(TypedDict, total=False):
    """The device and type of a tensor, as torch takes them."""

    device: torch.device | None
    dtype: torch.dtype | None


class MemoryScan(NamedTuple, Generic[State]):
    """A memory over a sequence.

    Attributes:
        state: after the last step.
        readings: after each step [B, T, R], zeros where a sequence skips it.
        reading: the last of each sequence [B, R].
        measures: `Memory.measure` after each step, by name, [B, T] each, if requested.
    """

    state: State
    readings: Tensor
    reading: Tensor
    measures: dict[str, Tensor]


class Memory(ABC, Generic[State, Actions]):
    """A differentiable memory. It has no parameters and no hidden state: `step` is a function.

    States and actions are NamedTuples of tensors whose first dimension is the batch, so `map_tensors` can detach, move,
    reorder and repeat them.

    Attributes:
        name: the name under which it is registered.
        settings: the fields of `StackRNNConfig` that it uses, and new ones; all others are rejected. Each has a
            `stack_lm.memory.Setting`: its default and the values it allows. A default alone is enough for a setting for
            which another memory has a `Setting`. They must include those that its action fields name (see
            `ActionField.settings`).
        actions: the fields that `step` takes, in the order of `action_type`.
        action_type: the NamedTuple of its actions.
        state_type: the NamedTuple of its state.
        learned: the learned parts of its initial state, as fields: a layer has a parameter for the logits of each, and
            gives the memory the emitted values (see `set_learned`).
        reading_size: size of a reading, R.
        output_size: size of the vector that it offers to a head (see `output_features`), X; 0 for none.
    """

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]]
    actions: tuple[ActionField, ...]
    action_type: type[Actions]
    state_type: type[State]
    learned: tuple[ActionField, ...] = ()
    reading_size: int
    output_size: int = 0

    @classmethod
    @abstractmethod
    def from_config(cls, config: Any) -> Memory[State, Actions]:
        """The memory specified by a model's configuration.

        Args:
            config: an object with all `settings` as attributes, complete; it may lack any other field.
        """

    @abstractmethod
    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> State:
        """An empty memory for `batch_size` sequences.

        Args:
            batch_size: B.
            length: the number of steps ahead, if known: a memory may allocate room for them.
            **where: device and dtype of the stored values; a memory may keep more precise numbers.
        """

    def set_learned(self, state: State, parts: Mapping[str, Tensor], rows: Tensor | None = None) -> State:
        """Put the learned parts of an initial state into a state of empty memories; see `learned`.

        Args:
            state: as `initial_state` or `reset` returned it.
            parts: one for each of `learned`, by name, of its shape.
            rows: [B], True where the memory is empty; None if all are.
        """
        return state

    def initial_reading(self, state: State) -> Tensor:
        """The reading at the first step, r_0: zeros [B, R] unless a paper defines another."""
        first = next(leaves(state))
        return first.new_zeros(first.shape[0], self.reading_size)

    def step(self, state: State, actions: Actions) -> tuple[State, Tensor]:
        """Check one step's actions, then apply them. `update` does the same without checks.

        The checks read values, so they wait for a GPU.

        Args:
            state: as `initial_state` or `step` returned it.
            actions: an `action_type`, with [B, *field.shape] for each field.

        Returns:
            The next state, and the reading [B, R].

        Raises:
            ValueError: if the state or an action has another type, shape, batch size or device, if a state is
                not finite, if a number is not valid for its action (see the fields), or if a memory of limited size
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
        """Return the state after a step that only some sequences took.

        Args:
            active: [B], True where the sequence took the step.
            new: the state that `update` returned.
            old: the state before the step.

        Returns:
            A state that acts as `new` where `active` and as `old` elsewhere.
        """

    def contents(self, state: State) -> dict[str, Tensor]:
        """The parts of a state that traces and figures show, by name [B, N, ...]; by default its tensors."""
        fields = state._asdict()  # type: ignore[attr-defined]
        return {name: part for name, part in fields.items() if isinstance(part, Tensor)}

    def reset(self, state: State, rows: Tensor) -> State:
        """A state in which some sequences' memories are empty again; the others are as they were.

        For most memories zeros are an empty memory, whatever has been pushed; the others must override this.

        Args:
            state: any.
            rows: [B], True where the memory is emptied.
        """
        reset: State = map_tensors(lambda part: part.masked_fill(rows.view(-1, *[1] * (part.dim() - 1)), 0), state)
        return reset

    def scan(
        self,
        state: State,
        actions: Actions,
        mask: Tensor | None = None,
        *,
        reading: Tensor | None = None,
        measure: bool = False,
    ) -> MemoryScan[State]:
        """Apply the actions of a whole sequence, without checking them: `update` step by step, if not overridden.

        Args:
            state: before the first step.
            actions: the actions of all steps, each [B, T, ...] with T of at least 1.
            mask: [B, T] bool; where False, the sequence skips the step.
            reading: [B, R] before the first step; None is the initial one.
            measure: return the measures too.
        """
        reading = self.initial_reading(state) if reading is None else reading
        readings, measures = [], []
        # Unbound at once: the gradient of each slice would be a tensor of zeros as long as the sequence.
        steps = zip(*(action.unbind(1) for action in actions), strict=True)
        for t, of_step in enumerate(steps):
            active = None if mask is None else mask[:, t]
            state, reading = self.advance(state, reading, self.action_type(*of_step), active)
            readings.append(reading if active is None else reading.masked_fill(~active.unsqueeze(-1), 0))
            if measure:
                measures.append(self.measure(state))
        over_time = {name: torch.stack([step[name] for step in measures], dim=1) for name in (measures or [{}])[0]}
        return MemoryScan(state, torch.stack(readings, dim=1), reading, over_time)

    def advance(self, state: State, reading: Tensor, actions: Actions, active: Tensor | None) -> tuple[State, Tensor]:
        """Apply `update` to the sequences that take the step; the others keep their state and reading.

        Args:
            state: before the step.
            reading: [B, R] before the step.
            actions: the actions of the step.
            active: [B], True where the sequence takes it; None if all do.
        """
        new, read = self.update(state, actions)
        read = read.to(reading.dtype)  # a memory of float32 numbers, such as counters, cannot know the model's type
        if active is None:
            return new, read
        return self.hold(active, new, state), torch.where(active.unsqueeze(-1), read, reading)

    def output_features(self, actions: Actions, readings: Tensor) -> Tensor:
        """The vector [B, X] that a head may see beside the controller's output, for memories that have one.

        Args:
            actions: the actions of the step.
            readings: after the step [B, R].
        """
        raise NotImplementedError(f"memory={self.name!r} has no exit for its reading")

    def measure(self, state: State) -> dict[str, Tensor]:
        """Measurements of a state, by name, each [B]: reported with the actions of the step."""
        return {}

    def measure_over(self, state: State, actions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`measure` after each step of a sequence, from the actions alone: [B, T] each.

        For memories with a compiled scan, which keeps no states between the steps.

        Args:
            state: before the first step.
            actions: the actions by name, [B, T]; zeros at padding.
        """
        return {}

    def after(self, state: State, steps: int) -> State | None:
        """An empty state with the shapes and types of a state after some more steps; None if they are unknown.

        `torch.compile` and `torch.export` need it to take a whole scan as one operator.

        Args:
            state: before the first of these steps.
            steps: their number; a symbol under a tracer.
        """
        return None

    def compact(self, state: State, steps: int) -> State:
        """An equivalent state, perhaps smaller; the same state if gradients flow to it.

        Args:
            state: any.
            steps: the number of steps ahead, so that the effort is proportionate.
        """
        return state

    def check(self, state: State, actions: Actions) -> None:
        """Reject invalid arguments of `step`; see there."""
        for given, kind, what in ((state, self.state_type, "state"), (actions, self.action_type, "actions")):
            if not isinstance(given, kind):
                raise ValueError(
                    f"{what} of {type(self).__name__} must be a {kind.__name__}; got a {type(given).__name__}"
                )
        first = next(leaves(state))
        for name, tensor in _named_tensors(state):
            _check_tensor(f"state.{name}", tensor, (first.shape[0], *tensor.shape[1:]), first.device)
            self.check_state_part(name, tensor)
        for field in self.actions:
            action = getattr(actions, field.name)
            _check_tensor(field.name, action, (first.shape[0], *field.shape), first.device)
            field.check(action)

    def check_state_part(self, name: str, part: Tensor) -> None:
        """Refuse numbers that a tensor of the state cannot hold: by default those that are not finite.

        Raises:
            ValueError: with the first such number.
        """
        if not bool(torch.isfinite(part).all()):
            raise ValueError(f"state.{name} must be finite; got {float(part[~torch.isfinite(part)][0])}")

    def check_overflow(self, state: State) -> None:
        """Check that a memory of limited size has lost no element, if it is set to raise an error in that case.

        Raises:
            ValueError: if it has.
        """


def leaves(tree: Any) -> Iterator[Tensor]:
    """The tensors of a state, in the order of `map_tensors`."""
    if isinstance(tree, Tensor):
        yield tree
    elif tree is not None:
        for part in tree:
            yield from leaves(part)


def _named_tensors(state: Any) -> Iterator[tuple[str, Tensor]]:
    for name, part in zip(state._fields, state, strict=True):
        for tensor in leaves(part):
            yield name, tensor


def newest(readings: Tensor, mask: Tensor | None, first: Tensor) -> Tensor:
    """The reading after the last step that each sequence takes [B, R], from those of all steps [B, T, R].

    Args:
        readings: see above.
        mask: [B, T] bool, False where a sequence skips the step; or None.
        first: the reading before the first step [B, R].
    """
    if mask is None:
        return readings[:, -1]
    steps = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, steps, -1).amax(1)
    found = readings[torch.arange(last.shape[0], device=mask.device), last.clamp(min=0)]
    return torch.where((last >= 0).unsqueeze(1), found, first)


def accurate(where: Where) -> Where:
    """The same device with a type of at least float32, for numbers that add up over a sequence."""
    dtype = where.get("dtype") or torch.get_default_dtype()
    return {"device": where.get("device"), "dtype": torch.promote_types(dtype, torch.float32)}


def _check_tensor(name: str, tensor: Any, shape: tuple[int, ...], device: torch.device) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor; got a {type(tensor).__name__}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must be {list(shape)} (the state is of {shape[0]}); got {list(tensor.shape)}")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}; the state is on {device}")


# The other fields of configurations and arguments of layers: a setting of such a name would be theirs for all memories.
TAKEN = frozenset(
    """
    architectures attention_dropout auxiliary_losses batch_first bias bidirectional bos_token_id cell_size controller
    detach device dropout dtype embedding_dropout embedding_size eos_token_id extra_steps first_layer forget_bias
    head_bias hidden_act hidden_dropout hidden_size initialization initializer_range input_encoding input_pop_control
    input_pop_strength_init input_size input_skip_connections inputs intermediate_size layer_norm_epsilon layers
    learn_initial_state max_input_pop max_output_push max_position_embeddings memory model_type num_attention_heads
    num_layers output_delay output_dropout output_push_control output_push_strength_init output_size pad_token_id
    position_encoding prediction_threshold proj_size reading_entry reading_exit scale_embeddings size steps_per_token
    target_vocab_size tie_word_embeddings use_cache vocab_size
    """.split()
)


def register_memory(name: str) -> Callable[[MemoryClass], MemoryClass]:
    """Class decorator: make a memory available as `StackRNNConfig(memory=name)`.

    Raises:
        ValueError: if another class has that name.
        TypeError: if the class overrides `step`, which is not called in runs over a sequence, or has a setting with the
            name of another field (`TAKEN`).
    """

    def register(cls: MemoryClass) -> MemoryClass:
        if cls.step is not Memory.step:
            raise TypeError(f"{cls.__qualname__} overrides step; it must override update, which step and models call")
        if taken := sorted(TAKEN & cls.settings.keys()):
            raise TypeError(
                f"the memory {name!r}, {cls.__qualname__}, has a setting {taken[0]!r}, a name that another field of "
                "configurations has; give it another name"
            )
        MEMORIES.register(name, cls)
        memory: Any = cls
        serializable(memory.state_type)
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
