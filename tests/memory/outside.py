"""Memories from outside the package that no built-in one is like: two choices of different sizes, and weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from stack_lm.memory import Choice, Memory, Value, Weights, register_memory

CHOICES = {
    "memory_size": 2,
    "push_value_activation": "tanh",
    "operation_control": "gumbel_softmax",
    "temperature": 1.0,
    "evaluation_noise": False,
    "evaluation_argmax": False,
}


class Cells(NamedTuple):
    """What is stored [B, N, D]."""

    values: Tensor


class _OfCells(Memory):
    """N cells of one vector each; all of it but the update."""

    state_type = Cells
    number = 3

    @classmethod
    def from_config(cls, config):
        return cls(config.memory_size)

    def initial_state(self, batch_size, length=None, *, device=None, dtype=None):
        return Cells(torch.zeros(batch_size, self.number, self.reading_size, device=device, dtype=dtype))

    def hold(self, active, new, old):
        return Cells(torch.where(active.view(-1, 1, 1), new.values, old.values))


class TwoChoicesActions(NamedTuple):
    """A vector [B, D], where to write it [B, 1, N], and whether to read one cell, the mean or nothing [B, 2, 3]."""

    push_value: Tensor
    write: Tensor
    mode: Tensor


@register_memory("two_choices")
class TwoChoices(_OfCells):
    """Writes to a cell that is chosen, and reads in a way that is chosen (twice, and takes the mean)."""

    settings = CHOICES
    action_type = TwoChoicesActions

    def __init__(self, size):
        self.reading_size = size
        self.actions = (
            Value("push_value", size),
            Choice("write", ("first", "second", "third")),
            Choice("mode", ("first", "mean", "nothing", "last"), groups=2),
        )

    def update(self, state, actions):
        where = actions.write.transpose(1, 2).to(state.values.dtype)
        values = (1 - where) * state.values + where * actions.push_value.unsqueeze(1)
        ways = torch.stack((values[:, 0], values.mean(1), torch.zeros_like(values[:, 0]), values[:, -1]), dim=1)
        return Cells(values), torch.bmm(actions.mode.mean(1, keepdim=True).to(values.dtype), ways).squeeze(1)


class WeighedActions(NamedTuple):
    """A vector [B, D], and logarithms of weights with which cells move to cells [B, N, N]."""

    push_value: Tensor
    move_weight: Tensor


@register_memory("weighed")
class Weighed(_OfCells):
    """All cells move with weights that sum to no particular number; then the vector is added to the first one."""

    settings = {name: CHOICES[name] for name in ("memory_size", "push_value_activation")}  # noqa: RUF012
    action_type = WeighedActions

    def __init__(self, size):
        self.reading_size = size
        self.actions = (Value("push_value", size), Weights("move_weight", (self.number, self.number)))

    def update(self, state, actions):
        moved = torch.tanh(torch.bmm(actions.move_weight.exp().to(state.values.dtype), state.values))
        values = torch.cat(((moved[:, 0] + actions.push_value).unsqueeze(1), moved[:, 1:]), dim=1)
        return Cells(values), values[:, 0]

    def measure(self, state):
        return {"norm": state.values.flatten(1).norm(dim=1).float()}
