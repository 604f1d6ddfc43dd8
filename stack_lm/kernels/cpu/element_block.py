"""The block of memories of elements with strengths: stack, queue and deque; and of no memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from ...memory import Memory, NeuralDeque, NeuralQueue, NeuralStack, NoMemory, StackState
from ...memory.emission import Activation
from ...memory.strength import StrengthMemory
from . import elements
from .blocks import Block, BlockSpec, Part, fill_control, register_block, value_kind
from .elements import DEQUE, QUEUE, STACK, Elements, ElementsGrad
from .strength import fresh_workspace, new_line

_KINDS: dict[type[Memory[Any, Any]], int] = {
    NoMemory: STACK,  # of nothing
    NeuralStack: STACK,
    NeuralQueue: QUEUE,
    NeuralDeque: DEQUE,
}


@register_block(*_KINDS)
class ElementBlock(Block):
    """The block of stack, queue, deque and no memory."""

    kernels, group = elements, Elements
    emissions = (Activation,)

    def __init__(self, spec: BlockSpec) -> None:
        memory, controls, models, steps, dtype, _ = spec
        self.kind, self.steps, self.dtype = _KINDS[type(memory)], steps, dtype
        self.n_ends = 2 if self.kind == DEQUE else 1
        self.unread = int(isinstance(memory, StrengthMemory) and memory.read_order == "before_push")
        n_strengths = 3 * self.n_ends
        self.controls, self.fixed = np.zeros((models, n_strengths, 3), np.int64), np.zeros((models, n_strengths), dtype)
        place = memory.reading_size  # as large as all pushed values
        for which, field in enumerate(memory.actions[self.n_ends :]):  # the strengths follow the values
            place = fill_control(controls.emission(field.name), place, which, self.controls, self.fixed)
        self.value_kind = value_kind(controls.emission(memory.actions[0].name)) if memory.actions else 0

    @staticmethod
    def first(state: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(state, StackState):
            return state.values.to(like.dtype), state.strengths.to(like.dtype)
        return like.new_zeros(state.empty.shape[0], 0, 0), like.new_zeros(state.empty.shape[0], 0)

    @staticmethod
    def last(state: Any, values: Tensor, strengths: Tensor) -> Any:
        return StackState(values, strengths) if isinstance(state, StackState) else state

    def results(self, values: np.ndarray, strengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        *leading, given, depth = values.shape
        n = given + self.n_ends * self.steps
        results = np.empty((*leading, n, depth), self.dtype), np.empty((*leading, n), self.dtype)
        start = (self.n_ends - 1) * self.steps
        self.given_places = slice(start, start + given)
        for result, part in zip(results, (values, strengths), strict=True):
            result[:, :, self.given_places] = part
        return results

    def block(self, results: tuple[np.ndarray, ...], part: Part, kept: bool) -> Elements:
        values, strengths = (result[part] for result in results)
        m, n, total = strengths.shape
        pops = total + self.n_ends * self.steps
        return Elements(
            self.kind,
            self.unread,
            self.controls[part.models],
            self.fixed[part.models],
            self.value_kind,
            self.steps,
            values,
            strengths,
            np.empty((m, self.steps, n, 3 * self.n_ends), self.dtype),
            new_line((m, n), total, pops, self.dtype),
            np.empty((m, self.steps, n, self.n_ends), np.int64),
            np.zeros((m, self.steps, n, self.n_ends, 2), np.bool_),
            np.zeros((m, n), np.int64),
            np.zeros((m, n), np.bool_),
        )

    @staticmethod
    def fresh_workspace(memory: Elements) -> Elements:
        return memory._replace(line=fresh_workspace(memory.line))

    def grad(self, results_grads: list[np.ndarray], memory: Elements, part: Part) -> ElementsGrad:
        values, strengths = (result[part] for result in results_grads)
        m, _, total = strengths.shape
        working = np.empty((m, 3 * self.n_ends), self.dtype), np.empty((m, total), np.bool_)
        return ElementsGrad(values, strengths, *working)

    def initial_state_grads(self, results_grads: list[np.ndarray]) -> tuple[np.ndarray | None, np.ndarray | None]:
        values, strengths = (part[:, :, self.given_places] for part in results_grads)
        return values, strengths
