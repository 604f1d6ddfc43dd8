"""Memories written by the delta rule: DeltaNet's (Yang et al. 2024), and the stack of DeltaStack (2026) below it.

A matrix M [K, V] stores vectors v under keys k. A write of strength beta replaces what is stored under its key:

    M <- M + beta k (v - k^T M)

and a query q reads q^T M. For unit keys the write has an eigenvalue 1 - beta along k. `update` is this definition.
`scan` runs chunks of steps at once, of which only the matrices between chunks are computed one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.checks import check_of
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
    **control_settings("write", "sigmoid", maximum=1),
}


class DeltaState(NamedTuple):
    """DeltaNet's memory: a matrix for each head [B, heads, K, V]."""

    matrix: Tensor


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
    """

    matrix: Tensor
    slots: Tensor
    pointer: Tensor
    sharpness: Tensor


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

    NOTE: Yang et al. (2024) also have short convolutions below the SiLU and a norm above the reading. A memory has no
        parameters; a layer below may be a convolution.

    Args:
        size: of the values of all heads together, D.
        num_heads: memories side by side.
        negative_eigenvalues: double the strengths of writes, so that the eigenvalues of writes by a sigmoid are in
            (-1, 1) in place of (0, 1) (Grazzi et al. 2025).

    Raises:
        InputError: if the heads do not divide the size.
    """

    settings = _SETTINGS
    action_type: type[Any] = DeltaActions
    state_type: type[Any] = DeltaState

    def __init__(self, size: int, num_heads: int = 1, negative_eigenvalues: bool = False) -> None:
        self.size = self.reading_size = size
        self.num_heads = check_of(Parts)("num_heads", num_heads)
        if size % num_heads:
            raise InputError(f"memory_size={size} must be a multiple of num_heads={num_heads}, which share the element")
        self.negative_eigenvalues = negative_eigenvalues
        vectors = (Value(name, size) for name in ("key", "query", "push_value"))
        self.actions = (*vectors, Strength("write", heads=num_heads))

    @classmethod
    def from_config(cls, config: Any) -> DeltaNet:
        return cls(config.memory_size, config.num_heads, config.negative_eigenvalues)

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> Any:
        """A matrix of zeros for each head."""
        size = self.size // self.num_heads
        return DeltaState(torch.zeros(batch_size, self.num_heads, size, size, **accurate(where)))

    def update(self, state: Any, actions: Any) -> tuple[Any, Tensor]:
        """Write, then read.

        Args:
            state: the matrices [B, heads, K, V].
            actions: of one step.

        Returns:
            The next state and the reading [B, D].
        """
        matrix, reading = self._step(state.matrix, actions)
        return DeltaState(matrix), reading

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
        matrix, readings = self._over_time(state.matrix, actions, mask)
        return self._scanned(DeltaState(matrix), readings, mask, reading)

    def after(self, state: Any, steps: int) -> Any:
        """Return the state: its size is fixed."""
        return state

    def hold(self, active: Tensor, new: Any, old: Any) -> Any:
        return map_tensors(lambda a, b: torch.where(active.view(-1, *[1] * (a.dim() - 1)), a, b), new, old)

    def _vectors(self, actions: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Keys, queries and values [..., heads, V], and strengths [..., heads], of one step or of all."""
        key, query, value = (part.to(dtype).unflatten(-1, (self.num_heads, -1)) for part in actions[:3])
        strength = actions.write_strength.to(dtype).reshape(value.shape[:-1])
        return _unit(F.silu(key)), _unit(F.silu(query)), value, strength * (1 + self.negative_eigenvalues)

    def _step(self, matrix: Tensor, actions: Any, below: Tensor | float = 0) -> tuple[Tensor, Tensor]:
        """The next matrix and the reading of one step, of values less those `below`."""
        key, query, value, strength = self._vectors(actions, matrix.dtype)
        matrix = write(matrix, key, value - below, strength)
        return matrix, read(matrix, query).flatten(1)

    def _over_time(
        self, matrix: Tensor, actions: Any, mask: Tensor | None, below: Tensor | float = 0
    ) -> tuple[Tensor, Tensor]:
        """The last matrix and the readings [B, T, D] of all steps."""
        key, query, value, strength = self._vectors(actions, matrix.dtype)
        writes = ((value - below).unsqueeze(3), masked(strength, mask).unsqueeze(3))
        readings, matrix = delta_rule(matrix, *_by_head(key.unsqueeze(3), *writes, query))
        return matrix, readings.transpose(1, 2).flatten(2)

    def _scanned(self, state: Any, readings: Tensor, mask: Tensor | None, first: Tensor | None) -> MemoryScan[Any]:
        first = self.initial_reading(state) if first is None else first
        readings = masked(readings.to(first.dtype), mask)
        return MemoryScan(state, readings, newest(readings, mask, first), {})


@register_memory("deltastack")
class DeltaStack(DeltaNet):
    """DeltaStack's memory: a stack of slots that a soft pointer addresses, below DeltaNet's memory.

    In each head a distribution over push, pop and no-op moves the pointer by push - pop. A write of zeros of strength
    pop erases the place where it was; a write of v_t of strength push stores the vector where it is now. The stack's
    reading is that of the address. DeltaNet's memory stores v_t less the stack's reading before the step, and its
    reading is the memory's. The sharpness of addresses is learned, as a part of the initial state.

    NOTE: between two slots vectors blur, and at depth S the pointer rises alone. The short convolutions and the norm
        of the paper's layer are left out, as in `DeltaNet`.

    Args:
        size: of the values of all heads together, D.
        num_heads: stacks side by side.
        negative_eigenvalues: see `DeltaNet`.
        slots: of each stack, S.

    Raises:
        InputError: if the heads do not divide the size.
    """

    settings = CHOICE_SETTINGS | _SETTINGS | {"memory_depth": Setting(64, Size)}
    action_type = DeltaStackActions
    state_type = DeltaStackState
    operations = ("push", "pop", "no_op")

    def __init__(self, size: int, num_heads: int = 1, negative_eigenvalues: bool = False, slots: int = 64) -> None:
        super().__init__(size, num_heads, negative_eigenvalues)
        self.slots = slots
        self.actions = (*self.actions, Choice("operation", self.operations, num_heads))
        self.learned = (Value("sharpness", 1, at_start=True),)

    @classmethod
    def from_config(cls, config: Any) -> DeltaStack:
        return cls(config.memory_size, config.num_heads, config.negative_eigenvalues, config.memory_depth)

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> DeltaStackState:
        """Empty slots below a matrix of zeros, and pointers to the first slot."""
        (matrix,) = super().initial_state(batch_size, length, **where)
        slots = matrix.new_zeros(batch_size, self.num_heads, self.slots, matrix.shape[-1])
        # Sums of float32 would drift over a sequence.
        precise = torch.float32 if matrix.device.type == "mps" else torch.float64
        pointer = matrix.new_zeros(batch_size, self.num_heads, dtype=precise)
        return DeltaStackState(matrix, slots, pointer, matrix.new_zeros(batch_size, 1))

    def set_learned(
        self, state: DeltaStackState, parts: Mapping[str, Tensor], rows: Tensor | None = None
    ) -> DeltaStackState:
        sharpness = parts["sharpness"].to(state.sharpness.dtype).expand_as(state.sharpness)
        chosen = sharpness if rows is None else torch.where(rows.unsqueeze(1), sharpness, state.sharpness)
        return state._replace(sharpness=chosen)

    def update(self, state: DeltaStackState, actions: DeltaStackActions) -> tuple[DeltaStackState, Tensor]:
        """Move the pointer, erase, store, and read, in the stack and then in DeltaNet's memory.

        Args:
            state: before the step.
            actions: of one step.

        Returns:
            The next state and the reading [B, D].
        """
        slots, dtype = state.slots, state.slots.dtype
        push, pop = actions.operation.to(dtype).reshape(-1, self.num_heads, 3)[..., :2].unbind(-1)
        pointer = state.pointer + (push - pop).to(state.pointer.dtype)
        before, now = (addresses(place, self.slots, state.sharpness) for place in (state.pointer, pointer))
        value = actions.push_value.to(dtype).unflatten(1, (self.num_heads, -1))
        below = read(slots, before)
        slots = write(write(slots, before, torch.zeros_like(value), pop), now, value, push)
        matrix, reading = self._step(state.matrix, actions, below)
        return DeltaStackState(matrix, slots, pointer, state.sharpness), reading

    def scan(
        self,
        state: DeltaStackState,
        actions: DeltaStackActions,
        mask: Tensor | None = None,
        *,
        reading: Tensor | None = None,
        measure: bool = False,
    ) -> MemoryScan[DeltaStackState]:
        """`update` for all steps, in chunks; see `Memory.scan`."""
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
        last = DeltaStackState(matrix, slots, pointer[:, -1], state.sharpness)
        return self._scanned(last, readings, mask, reading)


def _unit(vectors: Tensor) -> Tensor:
    return vectors * torch.rsqrt(vectors.square().sum(-1, keepdim=True) + _TINY)


def _by_head(*parts: Tensor) -> tuple[Tensor, ...]:
    """Parts [B, T, heads, ...] as [B, heads, T, ...]."""
    return tuple(part.transpose(1, 2) for part in parts)


def masked(part: Tensor, mask: Tensor | None) -> Tensor:
    """A part [B, T, ...] with zeros at padding."""
    return part if mask is None else part.masked_fill(~mask.view(*mask.shape, *[1] * (part.dim() - 2)), 0)
