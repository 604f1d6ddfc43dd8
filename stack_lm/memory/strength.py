"""Memories whose elements have strengths: the neural stack, queue and deque of Grefenstette et al. (2015).

This is the dense definition, differentiable and without a loop over elements. With strengths s_1 .. s_N from bottom
to top and before_i the sum of the strengths that come before element i, in elements, counted from the end at which
the operation works (above_i = sum_{j > i} s_j from the top, below_i = sum_{j < i} s_j from the bottom):

    pop u:     s_i <- relu(s_i - relu(u - before_i))
    push d, v: put v at an end with strength d
    read rho:  r = sum_i min(s_i, relu(rho - before_i)) v_i

A stack works only at the top. A queue pushes at the top, and pops and reads at the bottom. A deque does all at both.
Several heads are memories side by side, each with its own strengths and an equal part of the pushed vector.

Ties follow Grefenstette et al. (2015), footnote 1: `min` sends its whole gradient to its left argument s_i, and
relu'(0) = 0. (`torch.minimum` would split the gradient in halves.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.checks import check_of
from ..core.errors import InputError
from .base import Actions, Memory, Where, accurate, numbers_hidden, register_memory
from .fields import Parts, Setting, Size, Strength, Value, ValueActivation, control_settings

End = Literal["top", "bottom"]
ReadOrder = Literal["after_push", "before_push"]

_COMPACT_EVERY = 32  # elements

STRENGTH_SETTINGS = {
    "memory_size": Setting(16, Size),
    **control_settings("push", "expected_value"),
    **control_settings("pop", 1.0),
    **control_settings("read", "expected_value"),
    "push_value_activation": Setting("tanh", ValueActivation),
    "read_order": Setting("after_push", ReadOrder),
    "num_heads": Setting(1, Parts),
}


class StackState(NamedTuple):
    """The elements pushed so far, from bottom to top: values [B, N, D] and strengths [B, N], each >= 0.

    Of several heads: [B, heads, N, D / heads] and [B, heads, N].
    """

    values: Tensor
    strengths: Tensor


class StackActions(NamedTuple):
    """One step's actions: the vector pushed [B, D], and three strengths [B] in elements, each >= 0."""

    push_value: Tensor
    push_strength: Tensor
    pop_strength: Tensor
    read_strength: Tensor


class DequeActions(NamedTuple):
    """One step's actions at both ends: vectors [B, D], and strengths [B] in elements, each >= 0."""

    push_value_top: Tensor
    push_value_bottom: Tensor
    push_strength_top: Tensor
    push_strength_bottom: Tensor
    pop_strength_top: Tensor
    pop_strength_bottom: Tensor
    read_strength_top: Tensor
    read_strength_bottom: Tensor


def _remaining(strength: Tensor, strengths: Tensor, end: End = "top") -> Tensor:
    """The rest of a strength [...] that reaches each element [..., N]: the elements before it take their part first."""
    # Sum only the elements before each one. Summing all and subtracting the element itself would round, and an element
    # that uses up a strength exactly would no longer count as a tie.
    if end == "top":
        before = F.pad(strengths[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)
    else:
        before = F.pad(strengths[..., :-1], (1, 0)).cumsum(-1)
    return torch.relu(strength.unsqueeze(-1) - before)


def pop_strengths(strengths: Tensor, pop_strength: Tensor, end: End = "top") -> Tensor:
    """The strengths [..., N] after a pop of `pop_strength` [...] elements from one end."""
    return torch.relu(strengths - _remaining(pop_strength, strengths, end))


def read_weights(strengths: Tensor, read_strength: Tensor, end: End = "top") -> Tensor:
    """Return the weight [..., N] of each element in a read of `read_strength` [...] elements from one end."""
    rest = _remaining(read_strength, strengths, end)
    return torch.where(strengths <= rest, strengths, rest)


def _read(values: Tensor, strengths: Tensor, read_strength: Tensor, end: End) -> Tensor:
    weights = read_weights(strengths, read_strength, end)
    return (weights.to(values.dtype).unsqueeze(-2) @ values).flatten(1)


class StrengthMemory(Memory[StackState, Actions]):
    """The base class of memories whose elements have strengths: their state and its measures.

    Args:
        size: size of one element, D.
        read_order: "after_push", as in the papers, or "before_push": a step then reads what the steps before it pushed.
        num_heads: memories side by side, which share the element.

    Raises:
        InputError: if the heads do not divide the size.
    """

    settings = STRENGTH_SETTINGS
    state_type = StackState
    ends: ClassVar[tuple[str, ...]]  # at which it pushes and pops, as the names of its actions say
    pushes_at_bottom: ClassVar[bool] = False

    def __init__(self, size: int, read_order: ReadOrder = "after_push", num_heads: int = 1) -> None:
        self.size, self.read_order = size, check_of(ReadOrder)("read_order", read_order)
        self.num_heads = check_of(Parts)("num_heads", num_heads)
        if size % num_heads:
            raise InputError(f"memory_size={size} must be a multiple of num_heads={num_heads}, which share the element")
        self.reading_size = size * len(self.ends)
        self._heads = (num_heads,) if num_heads > 1 else ()
        values = (f"push_value_{end}" if end else "push_value" for end in self.ends)
        self.actions = (
            *(Value(name, size) for name in values),
            *(self._strength(control, end) for control in ("push", "pop", "read") for end in self.ends),
        )

    @classmethod
    def from_config(cls, config: Any) -> StrengthMemory[Actions]:
        return cls(config.memory_size, config.read_order, config.num_heads)

    def _strength(self, control: str, end: str) -> Strength:
        return Strength(control, end, self.num_heads)

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> StackState:
        """An empty memory: N = 0."""
        # Strengths add up over a sequence, so they need float32 even if the values do not.
        values = torch.zeros(batch_size, *self._heads, 0, self.size // self.num_heads, **where)
        return StackState(values, torch.zeros(batch_size, *self._heads, 0, **accurate(where)))

    def split(self, value: Tensor) -> Tensor:
        """Split a pushed vector [B, D], or those of all steps [B, T, D], among the heads, if there are several."""
        return value.unflatten(-1, (self.num_heads, -1)) if self._heads else value

    def hold(self, active: Tensor, new: StackState, old: StackState) -> StackState:
        # Where a sequence skipped the step, its new elements have strength 0: such elements are dead.
        kept = F.pad(old.strengths, (int(self.pushes_at_bottom), 1))
        active = active.view(-1, *[1] * (kept.dim() - 1))
        return StackState(new.values, torch.where(active, new.strengths, kept))

    def measure(self, state: StackState) -> dict[str, Tensor]:
        """`total_strength` [B]: the sum of all strengths in the memory, in elements; of several heads their mean."""
        return {"total_strength": state.strengths.flatten(1).sum(-1) / self.num_heads}

    def measure_over(self, state: StackState, actions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`total_strength` [B, T]: a pop subtracts as much as it can, a push adds to it."""
        # In float32 the error of a running sum grows: to one element in 100,000 steps, although each element is exact.
        precise = torch.float32 if state.strengths.device.type == "mps" else torch.float64
        total = state.strengths.to(precise).sum(-1)
        pushed, popped = (
            torch.stack([actions[Strength(control, end).name] for end in self.ends]).to(precise).sum(0)
            for control in ("push", "pop")
        )
        totals = []
        for push, pop in zip(pushed.unbind(1), popped.unbind(1), strict=True):
            total = torch.relu(total - pop) + push
            totals.append(total.mean(-1) if self._heads else total)
        return {"total_strength": torch.stack(totals, dim=1).to(state.strengths.dtype)}

    def after(self, state: StackState, steps: int) -> StackState:
        """Each step adds an element at each end where it pushes."""
        *leading, n_elements, size = state.values.shape
        n_elements = n_elements + len(self.ends) * steps
        return StackState(
            state.values.new_empty(*leading, n_elements, size), state.strengths.new_empty(*leading, n_elements)
        )

    def compact(self, state: StackState, steps: int) -> StackState:
        """Keep only living elements, in order, with the top last; sequences with fewer have dead ones below.

        The search waits for a GPU, so single steps search only now and then. In training only the first step of a
        sequence, or after a detached state, can search at all, so there it does.
        """
        n = state.strengths.shape[-1]
        if n < _COMPACT_EVERY or (steps == 1 and n % _COMPACT_EVERY and not torch.is_grad_enabled()):
            return state
        if state.values.requires_grad or state.strengths.requires_grad or numbers_hidden():
            return state
        living = state.strengths != 0
        most = int(living.sum(-1).max())
        order = living.to(torch.int8).argsort(dim=-1, stable=True)[..., n - most :]
        values = state.values.gather(-2, order.unsqueeze(-1).expand(*order.shape, state.values.shape[-1]))
        return StackState(values, state.strengths.gather(-1, order))

    def check(self, state: StackState, actions: Actions) -> None:
        super().check(state, actions)
        if bool((state.strengths < 0).any()):
            raise ValueError(f"state.strengths must be at least 0; got {float(state.strengths.min()):g}")


class _OneEnded(StrengthMemory[StackActions]):
    """A memory that pops and reads at one end, and pushes at the top."""

    action_type = StackActions
    ends = ("",)
    end: ClassVar[End]

    def update(self, state: StackState, actions: StackActions) -> tuple[StackState, Tensor]:
        """Pop, push, then read.

        Args:
            state: values [B, N, D] and strengths [B, N]; the last element is the most recent push.
            actions: the strengths [B] in elements and the pushed value [B, D].

        Returns:
            The next state, with N + 1 elements, and the reading [B, D]: zeros where the memory is empty.
        """
        popped = pop_strengths(state.strengths, actions.pop_strength, self.end)
        strengths = torch.cat((popped, actions.push_strength.unsqueeze(-1)), dim=-1)
        pushed = self.split(actions.push_value).unsqueeze(-2)
        new = StackState(torch.cat((state.values, pushed), dim=-2), strengths)
        seen = new if self.read_order == "after_push" else StackState(state.values, popped)
        return new, _read(*seen, actions.read_strength, self.end)

    def reading_weights(self, state: StackState, read_strength: Tensor) -> Tensor:
        """The weight of each element [B, N], or [B, heads, N], in the reading of the step that `state` follows."""
        if self.read_order == "after_push":
            return read_weights(state.strengths, read_strength, self.end)
        return F.pad(read_weights(state.strengths[..., :-1], read_strength, self.end), (0, 1))


@register_memory("stack")
class NeuralStack(_OneEnded):
    """The neural stack: pop, then push, then read, all at the top.

    Implements Grefenstette et al. (2015), eqs. 1-3, with read strengths as in Merrill et al. (2019), section 2.1;
    the pop comes first, as in Hao et al. (2018), section 2.1.

    Args:
        size: size of one element, D.
    """

    end = "top"

    def __init__(self, size: int, read_order: ReadOrder = "after_push", num_heads: int = 1) -> None:
        super().__init__(size, read_order, num_heads)
        self.output_size = 2 * size

    def output_features(self, actions: StackActions, readings: Tensor) -> Tensor:
        """The pushed element, and the reading below it: `[v_t; b_t]`, [B, 2 D].

        A read after the push takes the pushed element first, so b_t = r_t - min(d_t, rho_t) v_t; before it, b_t = r_t.
        """
        if self.read_order == "before_push":
            return torch.cat((actions.push_value, readings), dim=-1)
        read_whole = actions.push_strength <= actions.read_strength  # a tie is the push's, as in `update`
        taken = torch.where(read_whole, actions.push_strength, actions.read_strength).to(readings.dtype)
        own = (taken.unsqueeze(-1) * self.split(actions.push_value)).flatten(1)
        return torch.cat((actions.push_value, readings - own), dim=-1)


@register_memory("queue")
class NeuralQueue(_OneEnded):
    """The neural queue: pop at the bottom, push at the top, then read at the bottom.

    Implements Grefenstette et al. (2015), eqs. 1, 4 and 5, with read strengths.

    Args:
        size: size of one element, D.
    """

    end = "bottom"


@register_memory("deque")
class NeuralDeque(StrengthMemory[DequeActions]):
    """The neural deque: pop at the top, pop at the bottom, push at both ends, then read at both.

    Implements Grefenstette et al. (2015), eqs. 6-11, with read strengths. Both readings go to the controller, so the
    reading is the one at the top, then the one at the bottom.

    NOTE: the sums of eqs. 7-9 and their conditions end one element too early; here the pops reach all elements, as in
        the text.

    Args:
        size: size of one element, D.
    """

    settings = STRENGTH_SETTINGS | {"bottom_strength_init": Setting(None, float | None)}
    action_type = DequeActions
    ends = ("top", "bottom")
    pushes_at_bottom = True

    def _strength(self, control: str, end: str) -> Strength:
        starts = end == "bottom" and control != "read"
        return Strength(control, end, self.num_heads, "bottom_strength_init" if starts else None)

    def update(self, state: StackState, actions: DequeActions) -> tuple[StackState, Tensor]:
        """Pop at both ends, push at both, then read at both.

        Args:
            state: values [B, N, D] and strengths [B, N], from bottom to top.
            actions: the strengths [B] in elements and the pushed values [B, D].

        Returns:
            The next state, with N + 2 elements, and the readings [B, 2 D] of the top and the bottom.
        """
        popped = pop_strengths(state.strengths, actions.pop_strength_top, "top")
        popped = pop_strengths(popped, actions.pop_strength_bottom, "bottom")
        ends = (actions.push_strength_bottom.unsqueeze(-1), actions.push_strength_top.unsqueeze(-1))
        bottom, top = (self.split(part).unsqueeze(-2) for part in (actions.push_value_bottom, actions.push_value_top))
        values = torch.cat((bottom, state.values, top), dim=-2)
        new = StackState(values, torch.cat((ends[0], popped, ends[1]), dim=-1))
        seen = new if self.read_order == "after_push" else StackState(state.values, popped)
        top = _read(*seen, actions.read_strength_top, "top")
        bottom = _read(*seen, actions.read_strength_bottom, "bottom")
        return new, torch.cat((top, bottom), dim=-1)
