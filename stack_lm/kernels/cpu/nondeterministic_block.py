"""The block of the nondeterministic stack."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...memory import NondeterministicStack, NondeterministicState
from ...memory.emission import Activation, LogWeights
from ..protocol import PrecisionAtRisk
from . import nondeterministic
from .blocks import Block, BlockSpec, Part, register_block, value_kind
from .nondeterministic_table import Nondeterministic, NondeterministicGrad

_NO_WINDOW = 2**31


@register_block(NondeterministicStack)
class NondeterministicBlock(Block):
    """The block of the nondeterministic stack, in float64 whatever the type of the scan."""

    kernels, group = nondeterministic, Nondeterministic
    emissions = (Activation, LogWeights)

    def __init__(self, spec: BlockSpec) -> None:
        memory, controls, models, steps, dtype, _ = spec
        assert isinstance(memory, NondeterministicStack)
        self.memory, self.models, self.steps, self.dtype = memory, models, steps, dtype
        self.window = memory.window or _NO_WINDOW
        self.value_kind = value_kind(controls.emission("push_value")) if memory.size else 0

    @staticmethod
    def first(state: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        table = torch.cat((state.under.unsqueeze(-1).to(like.dtype), state.values.to(like.dtype)), dim=-1)
        return table, state.top.to(like.dtype)

    @staticmethod
    def last(state: Any, table: Tensor, top: Tensor) -> Any:
        return NondeterministicState(table[..., 0], top, table[..., 1:])

    def results(self, table: np.ndarray, top: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m, n, self.given, _, *rest = table.shape
        times = min(self.given + self.steps, max(self.given, self.window - 1))
        self.table = table
        return np.empty((m, n, times, times, *rest), self.dtype), top.copy()

    @property
    def _starts(self) -> np.ndarray:
        pairs = self.memory.pairs
        counts = np.minimum(np.arange(1, self.given + self.steps + 1), self.window)
        return np.concatenate([[0], np.cumsum(counts * pairs * pairs * (self.memory.size + 1))]).astype(np.int64)

    def block(self, results: tuple[np.ndarray, ...], part: Part, kept: bool) -> Nondeterministic:
        under, top = (result[part] for result in results)
        (m, n), memory, times = part.shape, self.memory, self.given + self.steps
        states, pairs, starts = memory.states, memory.pairs, self._starts
        moves = pairs * (2 * pairs + states)
        return Nondeterministic(
            states,
            memory.symbols,
            memory.size,
            self.window,
            memory.normalize,
            memory.read_states,
            self.given,
            self.value_kind,
            self.table[part],
            np.tile(starts, (m, 1)),
            np.zeros((m, n), np.int64),
            np.zeros((m, n), np.bool_),
            np.empty((m, n)),
            np.empty((m, n, starts[-1])),
            np.empty((m, n, times, pairs)),
            np.empty((m, n, times, pairs)),
            np.empty((m, n, self.steps, moves)),
            np.empty((m, n, self.steps, memory.size)),
            np.empty((m, pairs * states)),
            np.empty((m, times * pairs * states)),
            np.empty((m, 2, max(pairs, states))),
            np.empty((m, 2 * pairs + states + 1)),
            np.empty((m, times * pairs)),
            np.zeros((m, 1)),
            under,
            top,
        )

    def finish(self, memory: Nondeterministic, results: tuple[np.ndarray, ...], part: Part) -> None:
        if memory.risky.any():
            raise PrecisionAtRisk

    def grad(self, results_grads: list[np.ndarray], memory: Nondeterministic, part: Part) -> NondeterministicGrad:
        under, top = (result[part] for result in results_grads)
        (m, n), pairs, moves = part.shape, self.memory.pairs, memory.moves.shape[3]
        return NondeterministicGrad(
            under,
            top,
            np.empty_like(memory.tables),
            np.empty((m, n, pairs)),
            np.empty((m, pairs)),
            np.empty((m, moves)),
            np.empty((m, self.memory.size)),
        )

    def initial_state_grads(self, results_grads: list[np.ndarray]) -> tuple[np.ndarray | None, np.ndarray | None]:
        under, top = results_grads
        return under[:, :, : self.given, : self.given], top
