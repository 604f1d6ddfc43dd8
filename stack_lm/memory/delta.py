"""Memories written by the delta rule: DeltaNet's (Yang et al. 2024), and the stack of DeltaStack (2026) below it.

A matrix M [K, V] stores vectors v under keys k. A write of strength beta replaces what is stored under its key:

    M <- M + beta k (v - k^T M)

and a query q reads q^T M. For unit keys the write has an eigenvalue 1 - beta along k. `update` is this definition.
`scan` runs chunks of steps at once, of which only the matrices between chunks are computed one after the other.

With `convolution_width=4` and `normalize_reading`, a `StackAttention` is the layer of both papers' code: short
convolutions with a SiLU between the linear maps and the memory, and a norm of each head's reading, whose weights the
output's map contains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.checks import Integer, Number, check_of
from ..core.errors import InputError
from .base import Memory, MemoryScan, Where, accurate, map_tensors, newest, numbers_hidden, register_memory
from .fields import Choice, Parts, Setting, Size, Strength, Value, ValueActivation, control_settings
from .superposition import CHOICE_SETTINGS

_CHUNK = 16  # steps
_SHARPNESS = 2.0  # of addresses at the start, before the softplus
_TINY = 1e-6  # so that the gradient of a zero vector's direction is finite

_SETTINGS = {
    "memory_size": Setting(16, Size),
    "push_value_activation": Setting("identity", ValueActivation),
    "num_heads": Setting(1, Parts),
    "negative_eigenvalues": Setting(False, bool),
    "convolution_width": Setting(0, Annotated[int, Integer(0, 100)]),
    "normalize_reading": Setting(False, bool),
    **control_settings("write", "sigmoid"),
    # Above 1 a write may turn what is stored around and enlarge it, and further at each step.
    "write_control": Setting("sigmoid", Literal["sigmoid", "expected_value"] | Annotated[float, Number(0, maximum=1)]),
    "max_write": Setting(1, Annotated[int, Integer(1, 1)]),
}


class DeltaState(NamedTuple):
    """DeltaNet's memory.

    Attributes:
        matrix: of each head [B, heads, K, V].
        window: the inputs of a convolution of width W over time at the last W - 1 steps [B, W - 1, 3D]; or None.
        kernel: its weights, learned [B, W * 3D], at last those of the present step; or None.
    """

    matrix: Tensor
    window: Tensor | None = None
    kernel: Tensor | None = None


class DeltaActions(NamedTuple):
    """One step's actions: vectors [B, D], which the heads share, and the strength of each head's write [B, heads].

    With one head, strengths are [B].
    """

    key: Tensor
    query: Tensor
    push_value: Tensor
    write_strength: Tensor


class DeltaStackState(NamedTuple):
    """A stack of slots below DeltaNet's memory.

    Attributes:
        matrix: DeltaNet's, [B, heads, K, V].
        slots: the stack's [B, heads, S, V].
        pointer: the top's place in the stack [B, heads]; not limited to the slots.
        sharpness: learned, before the softplus and less its initial value [B, 1].
        window, kernel: of a convolution below both memories; see `DeltaState`.
    """

    matrix: Tensor
    slots: Tensor
    pointer: Tensor
    sharpness: Tensor
    window: Tensor | None = None
    kernel: Tensor | None = None


class DeltaStackActions(NamedTuple):
    """One step's actions: as `DeltaActions`, and a distribution over the operations of each head [B, heads, 3]."""

    key: Tensor
    query: Tensor
    push_value: Tensor
    write_strength: Tensor
    operation: Tensor


def write(matrix: Tensor, key: Tensor, value: Tensor, strength: Tensor) -> Tensor:
    """The matrix [..., K, V] after one write of a value [..., V] under a key [..., K], with a strength [...]."""
    change = strength.unsqueeze(-1) * (value - read(matrix, key))
    return matrix + key.unsqueeze(-1) * change.unsqueeze(-2)


def read(matrix: Tensor, query: Tensor) -> Tensor:
    """The reading [..., V] of a query [..., K]."""
    return (query.unsqueeze(-2) @ matrix).squeeze(-2)


def delta_rule(
    matrix: Tensor, keys: Tensor, values: Tensor, strengths: Tensor, queries: Tensor
) -> tuple[Tensor, Tensor]:
    """Write and read for all steps (Yang et al. 2024, section 3).

    Within a chunk, the value that a write adds depends on those of the writes before it through a triangular system.

    Args:
        matrix: before the first step [..., K, V].
        keys: of the W writes of each step, in order [..., T, W, K].
        values: likewise [..., T, W, V].
        strengths: likewise [..., T, W].
        queries: of the reading after each step's writes [..., T, K].

    Returns:
        The readings [..., T, V], and the matrix after the last step.
    """
    steps, writes = strengths.shape[-2:]
    chunk = min(_CHUNK, steps)
    rest = -steps % chunk  # steps of strength 0
    keys, values = (
        F.pad(part, (0, 0, 0, 0, 0, rest)).unflatten(-3, (-1, chunk)).flatten(-3, -2) for part in (keys, values)
    )
    strengths = F.pad(strengths, (0, 0, 0, rest)).unflatten(-2, (-1, chunk)).flatten(-2).unsqueeze(-1)
    queries = F.pad(queries, (0, 0, 0, rest)).unflatten(-2, (-1, chunk))
    system = strengths * (keys @ keys.mT)
    right = strengths * torch.cat((values, keys), dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    of_values, of_keys = solved.split((values.shape[-1], keys.shape[-1]), dim=-1)
    step = torch.arange(chunk, device=matrix.device)
    later = step.repeat_interleave(writes) > step.unsqueeze(-1)
    weights = (queries @ keys.mT).masked_fill(later, 0)
    readings = []
    chunks = (part.unbind(-3) for part in (keys, queries, weights, of_values, of_keys))
    for key, query, weight, of_value, of_key in zip(*chunks, strict=True):
        added = of_value - of_key @ matrix
        readings.append(query @ matrix + weight @ added)
        matrix = matrix + key.mT @ added
    return torch.cat(readings, dim=-2)[..., :steps, :], matrix


def convolve(window: Tensor, kernel: Tensor, inputs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Convolve inputs [B, T, C] with those before them, without the steps that the mask [B, T] skips.

    Returns:
        The outputs [B, T, C], anything at skipped steps, and the window after the last step; see `DeltaState`.
    """
    batch = torch.arange(inputs.shape[0], device=inputs.device).unsqueeze(1)
    if mask is not None:  # the steps that are taken come first
        inputs = inputs[batch, (~mask).long().argsort(dim=1, stable=True)]
    rows, length = torch.cat((window, inputs), dim=1), inputs.shape[1]
    taps = kernel.unflatten(1, (-1, 1, inputs.shape[2])).unbind(1)
    outputs = torch.stack([rows[:, i : i + length] * tap for i, tap in enumerate(taps)]).sum(0)
    if mask is None:
        return outputs, rows[:, length:]
    number = mask.cumsum(1)
    last = number[:, -1:] + torch.arange(window.shape[1], device=rows.device)
    return outputs[batch, (number - 1).clamp(min=0)], rows[batch, last]


def addresses(pointer: Tensor, slots: int, sharpness: Tensor) -> Tensor:
    """The weights [B, ..., S] of a stack's slots: a softmax that falls with their distance from the pointer [B, ...].

    Args:
        pointer: see above.
        slots: S.
        sharpness: see `DeltaStackState` [B, 1].
    """
    place = torch.arange(slots, device=pointer.device, dtype=sharpness.dtype)
    distance = (place - pointer.clamp(0, slots - 1).to(sharpness.dtype).unsqueeze(-1)).abs()
    slope = F.softplus(_SHARPNESS + sharpness).view(-1, *[1] * pointer.dim())
    logits = -slope * distance
    # Weights that rounding would lose are zeros: their products are numbers on which processors are slow.
    least = logits.detach().amax(-1, keepdim=True) + math.log(torch.finfo(logits.dtype).eps)
    return torch.softmax(logits.masked_fill(logits < least, -torch.inf), dim=-1)


@register_memory("deltanet")
class DeltaNet(Memory[Any, Any]):
    """DeltaNet's memory (Yang et al. 2024): heads that each write a vector by the delta rule, then read.

    Keys and queries have the size of values; they pass through a SiLU and have length 1.

    Args:
        size: of the values of all heads together, D.
        num_heads: memories side by side.
        negative_eigenvalues: double the strengths of writes, so that the eigenvalues of writes by a sigmoid are in
            (-1, 1) in place of (0, 1) (Grazzi et al. 2025).
        convolution_width: of short convolutions over time of keys, queries and values, which then pass through a SiLU
            too; 0: none. Their weights are a learned part of the initial state.
        normalize_reading: divide the reading of each head by the root of its mean square.

    Raises:
        InputError: if the heads do not divide the size.
    """

    settings = _SETTINGS
    action_type: type[Any] = DeltaActions
    state_type: type[Any] = DeltaState

    def __init__(
        self,
        size: int,
        num_heads: int = 1,
        negative_eigenvalues: bool = False,
        convolution_width: int = 0,
        normalize_reading: bool = False,
    ) -> None:
        self.size = self.reading_size = size
        self.num_heads = check_of(Parts)("num_heads", num_heads)
        if size % num_heads:
            raise InputError(f"memory_size={size} must be a multiple of num_heads={num_heads}, which share the element")
        self.negative_eigenvalues, self.normalize_reading = negative_eigenvalues, normalize_reading
        self.convolution_width = width = convolution_width
        vectors = (Value(name, size) for name in ("key", "query", "push_value"))
        self.actions = (*vectors, Strength("write", heads=num_heads))
        if width:
            self.learned = (Value("kernel", width * 3 * size, at_start=True, bound=width**-0.5),)

    @classmethod
    def from_config(cls, config: Any, **others: Any) -> DeltaNet:
        names = ("num_heads", "negative_eigenvalues", "convolution_width", "normalize_reading")
        return cls(config.memory_size, **{name: getattr(config, name) for name in names}, **others)

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> Any:
        """A matrix of zeros for each head, and a window of zeros."""
        size, width, inputs = self.size // self.num_heads, self.convolution_width, 3 * self.size
        matrix = torch.zeros(batch_size, self.num_heads, size, size, **accurate(where))
        shapes = ((batch_size, width - 1, inputs), (batch_size, width * inputs)) if width else ()
        return DeltaState(matrix, *map(matrix.new_zeros, shapes))

    def set_learned(self, state: Any, parts: Mapping[str, Tensor], rows: Tensor | None = None) -> Any:
        """Put the kernel, if any, and of `DeltaStack` the sharpness into the state."""
        chosen = {name: part.to(state.matrix.dtype).expand_as(getattr(state, name)) for name, part in parts.items()}
        if rows is not None:
            chosen = {name: torch.where(rows.unsqueeze(1), part, getattr(state, name)) for name, part in chosen.items()}
        return state._replace(**chosen)

    def update(self, state: Any, actions: Any) -> tuple[Any, Tensor]:
        """Write, then read.

        Args:
            state: the matrices [B, heads, K, V].
            actions: of one step.

        Returns:
            The next state and the reading [B, D].
        """
        state, actions = self._convolved(state, actions)
        matrix, reading = self._step(state.matrix, actions)
        return state._replace(matrix=matrix), reading

    def scan(
        self,
        state: Any,
        actions: Any,
        mask: Tensor | None = None,
        *,
        reading: Tensor | None = None,
        measure: bool = False,
    ) -> MemoryScan[Any]:
        """`update` for all steps, in chunks; see `Memory.scan`."""
        first = self.initial_reading(state) if reading is None else reading
        state, readings = self._run(*self._convolved(state, actions, mask), mask)
        readings = masked(readings.to(first.dtype), mask)
        return MemoryScan(state, readings, newest(readings, mask, first), {})

    def after(self, state: Any, steps: int) -> Any:
        """Return the state: its size is fixed."""
        return state

    def hold(self, active: Tensor, new: Any, old: Any) -> Any:
        return map_tensors(lambda a, b: torch.where(active.view(-1, *[1] * (a.dim() - 1)), a, b), new, old)

    def _convolved(self, state: Any, actions: Any, mask: Tensor | None = None) -> tuple[Any, Any]:
        """The state after the convolution of one step's actions or of all, and the actions with its outputs."""
        if state.window is None:
            return state, actions
        inputs = torch.cat(actions[:3], dim=-1).to(state.matrix.dtype)
        steps = inputs.view(inputs.shape[0], -1, inputs.shape[-1])
        outputs, window = convolve(state.window, state.kernel, steps, mask)
        key, query, value = outputs.view_as(inputs).split(self.size, dim=-1)
        actions = actions._replace(key=key, query=query, push_value=F.silu(value))
        return state._replace(window=window), actions

    def _normalized(self, readings: Tensor) -> Tensor:
        """Readings [..., heads, V], of one step or of all, as [..., D]."""
        if self.normalize_reading:
            readings = F.rms_norm(readings, readings.shape[-1:], eps=1e-5)
        return readings.flatten(-2)

    def _vectors(self, actions: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Keys, queries and values [..., heads, V], and strengths [..., heads], of one step or of all."""
        key, query, value = (part.to(dtype).unflatten(-1, (self.num_heads, -1)) for part in actions[:3])
        strength = actions.write_strength.to(dtype).reshape(value.shape[:-1])
        return _unit(F.silu(key)), _unit(F.silu(query)), value, strength * (1 + self.negative_eigenvalues)

    def _step(self, matrix: Tensor, actions: Any, below: Tensor | float = 0) -> tuple[Tensor, Tensor]:
        """The next matrix and the reading of one step, of values less those `below`."""
        key, query, value, strength = self._vectors(actions, matrix.dtype)
        matrix = write(matrix, key, value - below, strength)
        return matrix, self._normalized(read(matrix, query))

    def _run(self, state: Any, actions: Any, mask: Tensor | None) -> tuple[Any, Tensor]:
        """The state after all steps, and the readings [B, T, D], of actions behind the convolution."""
        matrix, readings = self._over_time(state.matrix, actions, mask)
        return state._replace(matrix=matrix), readings

    def _over_time(
        self, matrix: Tensor, actions: Any, mask: Tensor | None, below: Tensor | float = 0
    ) -> tuple[Tensor, Tensor]:
        """The last matrix and the readings [B, T, D] of all steps."""
        key, query, value, strength = self._vectors(actions, matrix.dtype)
        writes = ((value - below).unsqueeze(3), masked(strength, mask).unsqueeze(3))
        readings, matrix = delta_rule(matrix, *_by_head(key.unsqueeze(3), *writes, query))
        return matrix, self._normalized(readings.transpose(1, 2))


@register_memory("deltastack")
class DeltaStack(DeltaNet):
    """DeltaStack's memory: a stack of slots that a soft pointer addresses, below DeltaNet's memory.

    In each head a distribution over push, pop and no-op moves the pointer by push - pop. A write of zeros of strength
    pop erases the place where it was; a write of v_t of strength push stores the vector where it is now. The stack's
    reading is that of the address. DeltaNet's memory stores v_t less the stack's reading before the step, and its
    reading is the memory's. The sharpness of addresses is learned, as a part of the initial state.

    NOTE: between two slots vectors blur, and at depth S the pointer rises alone. The released code
        (github.com/teeann/DeltaStack) divides the stack's reading by the root of S, the default of its delta rule.

    Args:
        *args: those of `DeltaNet`; each head has a stack.
        slots: of each stack, S.
        **kwargs: those of `DeltaNet`.

    Raises:
        InputError: if the heads do not divide the size.
    """

    settings = CHOICE_SETTINGS | _SETTINGS | {"memory_depth": Setting(64, Size)}
    action_type = DeltaStackActions
    state_type = DeltaStackState
    operations = ("push", "pop", "no_op")

    def __init__(self, *args: Any, slots: int = 64, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slots = slots
        self.actions = (*self.actions, Choice("operation", self.operations, self.num_heads))
        self.learned = (Value("sharpness", 1, at_start=True), *self.learned)

    @classmethod
    def from_config(cls, config: Any, **others: Any) -> DeltaNet:
        return super().from_config(config, slots=config.memory_depth, **others)

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> DeltaStackState:
        """Empty slots below a matrix of zeros, and pointers to the first slot."""
        matrix, *convolution = super().initial_state(batch_size, length, **where)
        slots = matrix.new_zeros(batch_size, self.num_heads, self.slots, matrix.shape[-1])
        # Sums of float32 would drift over a sequence.
        precise = torch.float32 if matrix.device.type == "mps" else torch.float64
        pointer = matrix.new_zeros(batch_size, self.num_heads, dtype=precise)
        return DeltaStackState(matrix, slots, pointer, matrix.new_zeros(batch_size, 1), *convolution)

    def update(self, state: DeltaStackState, actions: DeltaStackActions) -> tuple[DeltaStackState, Tensor]:
        """Move the pointer, erase, store, and read, in the stack and then in DeltaNet's memory.

        Args:
            state: before the step.
            actions: of one step.

        Returns:
            The next state and the reading [B, D].
        """
        state, actions = self._convolved(state, actions)
        slots, dtype = state.slots, state.slots.dtype
        push, pop = actions.operation.to(dtype).reshape(-1, self.num_heads, 3)[..., :2].unbind(-1)
        pointer = state.pointer + (push - pop).to(state.pointer.dtype)
        before, now = (addresses(place, self.slots, state.sharpness) for place in (state.pointer, pointer))
        value = actions.push_value.to(dtype).unflatten(1, (self.num_heads, -1))
        below = read(slots, before)
        slots = write(write(slots, before, torch.zeros_like(value), pop), now, value, push)
        matrix, reading = self._step(state.matrix, actions, below)
        return state._replace(matrix=matrix, slots=slots, pointer=pointer), reading

    def _run(
        self, state: DeltaStackState, actions: DeltaStackActions, mask: Tensor | None
    ) -> tuple[DeltaStackState, Tensor]:
        dtype = state.slots.dtype
        moves = masked(actions.operation.to(dtype), mask)
        push, pop = moves[..., :2].unbind(-1)
        first = state.pointer.unsqueeze(1)
        pointer = torch.cat((first, first + (push - pop).to(first.dtype).cumsum(1)), dim=1)
        address = addresses(pointer, self.slots, state.sharpness)  # [B, 1 + T, heads, S]
        # The slots above have no weight, and keep what they have.
        reached = self.slots if numbers_hidden() else int(address.detach().flatten(0, 2).any(0).nonzero().amax()) + 1
        before, now = address[:, :-1, :, :reached], address[:, 1:, :, :reached]
        value = actions.push_value.to(dtype).unflatten(2, (self.num_heads, -1))
        values = torch.stack((torch.zeros_like(value), value), dim=3)
        writes = (torch.stack((before, now), dim=3), values, torch.stack((pop, push), dim=3))
        stack_readings, slots = delta_rule(state.slots[:, :, :reached], *_by_head(*writes, now))
        slots = torch.cat((slots, state.slots[:, :, reached:]), dim=2)
        below = torch.cat((read(state.slots[:, :, :reached], before[:, 0]).unsqueeze(2), stack_readings[:, :, :-1]), 2)
        matrix, readings = self._over_time(state.matrix, actions, mask, below.transpose(1, 2))
        return state._replace(matrix=matrix, slots=slots, pointer=pointer[:, -1]), readings


def _unit(vectors: Tensor) -> Tensor:
    return vectors * torch.rsqrt(vectors.square().sum(-1, keepdim=True) + _TINY)


def _by_head(*parts: Tensor) -> tuple[Tensor, ...]:
    """Parts [B, T, heads, ...] as [B, heads, T, ...]."""
    return tuple(part.transpose(1, 2) for part in parts)


def masked(part: Tensor, mask: Tensor | None) -> Tensor:
    """A part [B, T, ...] with zeros at padding."""
    return part if mask is None else part.masked_fill(~mask.view(*mask.shape, *[1] * (part.dim() - 2)), 0)
