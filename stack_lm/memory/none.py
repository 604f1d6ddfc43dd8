"""No memory, so that a plain recurrent network is the same class as a stack RNN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Unpack

import torch
from torch import Tensor

from .base import Memory, Where, register_memory
from .fields import ActionField


class NoState(NamedTuple):
    """The state of no memory: only the batch size, as an empty tensor [B, 0]."""

    empty: Tensor


class NoActions(NamedTuple):
    """The actions of no memory."""


@register_memory("none")
class NoMemory(Memory[NoState, NoActions]):
    """A memory without actions, whose reading has size 0.

    It uses no setting and rejects none, so that a baseline can differ from a model in its memory alone.
    """

    settings: ClassVar[Mapping[str, Any]] = {}
    actions: tuple[ActionField, ...] = ()
    action_type = NoActions
    state_type = NoState
    reading_size = 0

    @classmethod
    def from_config(cls, config: Any) -> NoMemory:
        return cls()

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> NoState:
        return NoState(torch.zeros(batch_size, 0, **where))

    def update(self, state: NoState, actions: NoActions) -> tuple[NoState, Tensor]:
        return state, state.empty

    def after(self, state: NoState, steps: int) -> NoState:
        """Return the state, which never changes."""
        return state

    def hold(self, active: Tensor, new: NoState, old: NoState) -> NoState:
        return old
