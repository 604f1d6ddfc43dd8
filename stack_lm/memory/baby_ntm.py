"""The Baby-NTM's memory: a tape of fixed size that turns under a fixed head (Suzgun et al. 2019, section 3.3)."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from .base import Memory, Where, accurate, register_memory
from .fields import Choice, Setting, Size, Value
from .mixing import Mixture, Move, mix
from .superposition import CHOICE_SETTINGS, ChoiceActions


class TapeState(NamedTuple):
    """A tape: cells [B, N, D], the first of which is under the head."""

    cells: Tensor


@register_memory("baby_ntm")
class BabyNTM(Memory[TapeState, ChoiceActions]):
    """A tape in superposition over five operations; the new value is then added to the first cell, which is read.

    From [a, b, c, d, e], rotate_left makes [b, c, d, e, a], rotate_right [e, a, b, c, d], pop_right [0, a, b, c, d] and
    pop_left [b, c, d, e, 0]; no_op changes nothing. The tape's size is fixed: an element moved over its end is lost by
    definition, so nothing can overflow.

    Args:
        size: size of one cell, D.
        cells: their number, N.
    """

    settings = CHOICE_SETTINGS | {"memory_depth": Setting(104, Size | None)}
    action_type = ChoiceActions
    state_type = TapeState
    # The order of the released code.
    operations = ("rotate_left", "rotate_right", "no_op", "pop_right", "pop_left")

    def __init__(self, size: int, cells: int = 104) -> None:
        self.size, self.cells, self.reading_size = size, cells, size
        self.actions = (Value("push_value", size), Choice("operation", self.operations))
        left, right = Move(1, 0, cells - 1), Move(0, 1, cells - 1)
        rotations = (left, Move(0, cells - 1, 1)), (right, Move(cells - 1, 0, 1))
        operations = (*rotations, (Move(0, 0, cells),), (right,), (left,))
        self._mixture = Mixture(operations, length=cells, prepend=False)

    @classmethod
    def from_config(cls, config: Any) -> BabyNTM:
        assert config.memory_depth is not None, "the settings have a default"
        return cls(config.memory_size, config.memory_depth)

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> TapeState:
        """A tape of zeros."""
        return TapeState(torch.zeros(batch_size, self.cells, self.size, **accurate(where)))

    def update(self, state: TapeState, actions: ChoiceActions) -> tuple[TapeState, Tensor]:
        """Mix the results of the operations, add the value to the first cell, and read that cell.

        Args:
            state: cells [B, N, D].
            actions: values [B, D], and a distribution over the operations [B, 1, 5].

        Returns:
            The next state and the reading [B, D].
        """
        cells, reading = mix(state.cells, actions.operation, actions.push_value, self._mixture)
        return TapeState(cells), reading.to(actions.push_value.dtype)

    def after(self, state: TapeState, steps: int) -> TapeState:
        """Return the state: the tape's size is fixed."""
        return state

    def hold(self, active: Tensor, new: TapeState, old: TapeState) -> TapeState:
        return TapeState(torch.where(active[:, None, None], new.cells, old.cells))
