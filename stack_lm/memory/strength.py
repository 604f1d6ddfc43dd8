"""Memories whose elements have strengths: the neural stack of Grefenstette et al. (2015).

This is the dense definition, differentiable and without a loop over elements. With strengths s_1 .. s_N from bottom
to top and above_i = sum_{j > i} s_j, in elements:

    pop u:     s_i <- relu(s_i - relu(u - above_i))
    push d, v: append v with strength d
    read rho:  r = sum_i min(s_i, relu(rho - above_i)) v_i

Ties follow Grefenstette et al. (2015), footnote 1: `min` sends its whole gradient to its left argument s_i, and
relu'(0) = 0. (`torch.minimum` would split the gradient in halves.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import ActionField, Memory, register_memory

if TYPE_CHECKING:
    from ..configuration_stack_rnn import StackRNNConfig


class StackState(NamedTuple):
    """The elements pushed so far, from bottom to top: values [B, N, D] and strengths [B, N], each >= 0."""

    values: Tensor
    strengths: Tensor


class StackActions(NamedTuple):
    """One step's actions: the vector pushed [B, D], and three strengths [B] in elements, each >= 0."""

    push_value: Tensor
    push_strength: Tensor
    pop_strength: Tensor
    read_strength: Tensor


def _remaining(strength: Tensor, strengths: Tensor) -> Tensor:
    """What is left of a strength [B] for each element [B, N] after all elements above it took their part."""
    # The sum runs over the elements above only. Summing all and subtracting the element itself would round, and
    # an element that uses a strength up exactly would no longer be seen as a tie.
    above = F.pad(strengths[:, 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)
    return torch.relu(strength.unsqueeze(-1) - above)


@register_memory("stack")
class NeuralStack(Memory):
    """The neural stack: pop, then push, then read.

    Implements Grefenstette et al. (2015), eqs. 1-3, with read strengths as in Merrill et al. (2019), section 2.1;
    the pop comes first, as in Hao et al. (2018), section 2.1.

    Args:
        size: size of one element, D.
    """

    action_type = StackActions

    def __init__(self, size: int) -> None:
        self.reading_size = size
        self.actions = (
            ActionField("push_value", "value", size),
            ActionField("push_strength", "strength", 1),
            ActionField("pop_strength", "strength", 1),
            ActionField("read_strength", "strength", 1),
        )

    @classmethod
    def from_config(cls, config: StackRNNConfig) -> NeuralStack:
        return cls(config.memory_size)

    def initial_state(
        self, batch_size: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> StackState:
        """An empty stack: N = 0."""
        dtype = dtype or torch.get_default_dtype()
        return StackState(
            values=torch.zeros(batch_size, 0, self.reading_size, device=device, dtype=dtype),
            # Strengths add up over a sequence, so they need float32 even where the values do without.
            strengths=torch.zeros(batch_size, 0, device=device, dtype=torch.promote_types(dtype, torch.float32)),
        )

    def step(self, state: StackState, actions: StackActions) -> tuple[StackState, Tensor]:
        """Pop, push, then read.

        Args:
            state: values [B, N, D] and strengths [B, N].
            actions: the strengths [B] in elements and the pushed value [B, D].

        Returns:
            The next state, with N + 1 elements, and the reading [B, D]: zeros where the stack is empty.

        Raises:
            ValueError: if the pushed value's size is not the stack's.
        """
        values, strengths = state
        if actions.push_value.shape[-1] != self.reading_size:
            raise ValueError(
                f"push_value has size {actions.push_value.shape[-1]}; the stack's elements have {self.reading_size}"
            )
        strengths = torch.relu(strengths - _remaining(actions.pop_strength, strengths))
        strengths = torch.cat((strengths, actions.push_strength.unsqueeze(-1)), dim=-1)
        values = torch.cat((values, actions.push_value.unsqueeze(1)), dim=1)
        rest = _remaining(actions.read_strength, strengths)
        weights = torch.where(strengths <= rest, strengths, rest)
        reading = torch.bmm(weights.to(values.dtype).unsqueeze(1), values).squeeze(1)
        return StackState(values, strengths), reading

    def hold(self, active: Tensor, new: StackState, old: StackState) -> StackState:
        # Where a sequence did not take the step, its new top element has strength 0: such an element is dead.
        kept = F.pad(old.strengths, (0, 1))
        return StackState(new.values, torch.where(active.unsqueeze(-1), new.strengths, kept))

    def measure(self, state: StackState) -> dict[str, Tensor]:
        """`total_strength` [B]: the sum of all strengths on the stack, in elements."""
        return {"total_strength": state.strengths.sum(-1)}
