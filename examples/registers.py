"""A memory of numbered registers: at each step all fade, one is written and one is read."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from stack_lm.memory import Choice, Memory, Strength, Value, control_settings, register_memory


class RegisterState(NamedTuple):
    """The contents of the registers [B, N, D]."""

    values: Tensor


class RegisterActions(NamedTuple):
    """One step's actions.

    The vector to write [B, D], how much all registers fade [B], and where to write and to read [B, 1, N], each a
    distribution.
    """

    push_value: Tensor
    decay_strength: Tensor
    write: Tensor
    read: Tensor


@register_memory("registers")
class Registers(Memory[RegisterState, RegisterActions]):
    """N registers of one vector each. With w and q the weights of writing and reading, v the vector to write and d the
    strength of the decay:

        register n:  V_n <- (1 - w_n) exp(-d) V_n + w_n v
        reading:     r = sum_n q_n V_n

    The reading sees what has just been written.

    Args:
        size: size of a register, D.
        number: how many registers, N.
    """

    settings = {  # noqa: RUF012 - declared as a class variable by `Memory`
        "memory_size": 16,
        "memory_depth": 8,
        **control_settings("decay", "sigmoid"),
        "push_value_activation": "tanh",
        "operation_control": "softmax",
        "temperature": 1.0,
        "evaluation_noise": False,
        "evaluation_argmax": False,
    }
    action_type = RegisterActions
    state_type = RegisterState

    def __init__(self, size: int, number: int) -> None:
        self.size, self.number, self.reading_size = size, number, size
        names = tuple(f"register_{n}" for n in range(number))
        self.actions = (
            Value("push_value", size),
            Strength("decay"),
            Choice("write", names),
            Choice("read", names),
        )

    @classmethod
    def from_config(cls, config) -> Registers:
        return cls(config.memory_size, config.memory_depth)

    def initial_state(self, batch_size, length=None, *, device=None, dtype=None) -> RegisterState:
        return RegisterState(torch.zeros(batch_size, self.number, self.size, device=device, dtype=dtype))

    def update(self, state: RegisterState, actions: RegisterActions) -> tuple[RegisterState, Tensor]:
        write, read = (choice.to(state.values.dtype) for choice in (actions.write, actions.read))
        weights = write.transpose(1, 2)  # [B, N, 1]
        kept = torch.exp(-actions.decay_strength).to(state.values.dtype).view(-1, 1, 1)
        values = (1 - weights) * kept * state.values + weights * actions.push_value.unsqueeze(1)
        return RegisterState(values), torch.bmm(read, values).squeeze(1)

    def hold(self, active: Tensor, new: RegisterState, old: RegisterState) -> RegisterState:
        return RegisterState(torch.where(active.view(-1, 1, 1), new.values, old.values))

    def after(self, state: RegisterState, steps: int) -> RegisterState:
        return RegisterState(torch.zeros_like(state.values))  # as large as before, however many the steps

    def measure(self, state: RegisterState) -> dict[str, Tensor]:
        """`norm` [B]: the Euclidean norm of the contents of all registers."""
        return {"norm": state.values.flatten(1).norm(dim=1).float()}
