"""Several heads of a stack, queue or deque as so many sequences: heads join the batch, as B times heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..memory import Memory, StackState
from ..memory.controls import Controls
from ..memory.emission import Emission
from ..memory.strength import StrengthMemory


def heads_of(memory: Memory[Any, Any]) -> int:
    """The number of heads."""
    return memory.num_heads if isinstance(memory, StrengthMemory) else 1


def one_head(memory: Any) -> StrengthMemory[Any]:
    """The memory of one head."""
    single: StrengthMemory[Any] = type(memory)(memory.size // memory.num_heads, memory.read_order)
    return single


def to_batch(part: Tensor, heads: int) -> Tensor:
    """[B, T, heads, ...] as [B heads, T, ...]."""
    return part.transpose(1, 2).flatten(0, 1)


def repeated(mask: Tensor | None, heads: int) -> Tensor | None:
    """A mask [B, T] for the heads, [B heads, T]."""
    return None if mask is None else mask.repeat_interleave(heads, 0)


def readings_of(readings: Tensor, heads: int, ends: int) -> Tensor:
    """The readings [B heads, T, R / heads] of heads as [B, T, R], those of the top first."""
    split = readings.unflatten(0, (-1, heads)).unflatten(3, (ends, -1))  # [B, heads, T, ends, D]
    return split.permute(0, 2, 3, 1, 4).flatten(2)


def readings_to_batch(reading: Tensor, heads: int, ends: int) -> Tensor:
    """A reading [B, R] of all heads as those of each, [B heads, R / heads]."""
    return reading.unflatten(1, (ends, heads, -1)).transpose(1, 2).flatten(2).flatten(0, 1)


class OneHead:
    """The controls of one head, for the block of a memory.

    Args:
        controls: of all heads.
    """

    def __init__(self, controls: Controls) -> None:
        self.controls, self.heads = controls, heads_of(controls.memory)
        self.memory = one_head(controls.memory)

    def emission(self, name: str) -> Emission:
        """Return the emission of one head's action."""
        return self.controls.emission(name).of_one

    def logits(self, logits: Tensor) -> Tensor:
        """Each head's logits [B heads, T, P / heads], from those of all [B, T, P]."""
        parts = logits.split(self.controls.widths, dim=2)
        of_heads = [part.unflatten(2, (self.heads, -1)) for part in parts if part.shape[2]]
        return to_batch(torch.cat(of_heads, dim=3), self.heads)


def state_to_batch(state: StackState) -> StackState:
    """A state of several heads as one of so many sequences."""
    return StackState(state.values.flatten(0, 1), state.strengths.flatten(0, 1))


def state_from_batch(state: StackState, heads: int) -> StackState:
    """The inverse of `state_to_batch`."""
    return StackState(state.values.unflatten(0, (-1, heads)), state.strengths.unflatten(0, (-1, heads)))
