"""The block of memories in superposition: stacks of cells, and the Baby-NTM's tape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ...memory import BabyNTM, MultipopSuperpositionStack, SuperpositionStack
from ...memory.emission import Activation, OperationChoice
from . import superposition
from .blocks import Block, BlockSpec, Part, register_block, value_kind
from .superposition import NO_LIMIT, Superposition, SuperpositionGrad, history_size


@register_block(SuperpositionStack, MultipopSuperpositionStack, BabyNTM)
class SuperpositionBlock(Block):
    """The block of superposition stack, multipop superposition stack and Baby-NTM."""

    kernels, group = superposition, Superposition
    emissions = (Activation, OperationChoice)
    counts_losses = True

    def __init__(self, spec: BlockSpec) -> None:
        memory, controls, models, steps, dtype, noise = spec
        assert isinstance(memory, SuperpositionStack | MultipopSuperpositionStack | BabyNTM)
        choice = controls.emission("operation")
        assert isinstance(choice, OperationChoice)
        self.steps, self.dtype, self.size = steps, dtype, memory.size
        self.value_kind = value_kind(controls.emission("push_value"))
        self.hard = bool(choice.evaluation_argmax and not choice.training)
        temperature = 1.0 if choice.temperature is None else choice.temperature.item()
        self.temperature = np.full((models, 1), temperature, dtype)
        self.noise = np.empty((models, 0, 0, 0), dtype)
        if noise is not None:
            self.noise = noise.reshape(*noise.shape[:3], noise.shape[3] * noise.shape[4])
        if isinstance(memory, BabyNTM):
            shifts, self.first_filled = [], 0
            self.width, self.read, self.limit, empty_value = memory.size, 1, memory.cells, 0.0
        else:
            self.width, self.read, empty_value = memory.size + 1, memory.read_depth, memory.empty_value
            self.limit = NO_LIMIT if memory.depth is None else memory.depth
            if isinstance(memory, SuperpositionStack):
                shifts, self.first_filled = [-1, 1, 0] if memory.no_op else [-1, 1], 0
            else:
                shifts, self.first_filled = list(range(-1, memory.max_pop)), 1
        self.shifts = np.tile(np.array(shifts, np.int64), (models, 1))
        self.empty_value = np.full((models, 1), empty_value, dtype)

    @classmethod
    def noise_of(cls, noise: Mapping[str, Tensor]) -> Tensor | None:
        return noise.get("operation")

    @staticmethod
    def first(state: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        lost = state.lost if hasattr(state, "lost") else like.new_zeros(len(state.cells))  # a tape counts none
        return state.cells.to(like.dtype), lost.to(like.dtype)

    @staticmethod
    def last(state: Any, cells: Tensor, lost: Tensor) -> Any:
        return type(state)(*(cells, lost)[: len(state)])

    def results(self, cells: np.ndarray, lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        *leading, self.given, width = cells.shape
        results = np.empty((*leading, min(self.given + self.steps, self.limit), width), self.dtype)
        results[..., : self.given, :] = cells
        return results, lost.copy()

    def block(self, results: tuple[np.ndarray, ...], part: Part, kept: bool) -> Superposition:
        cells, lost = (result[part] for result in results)
        if cells.ndim == 4:  # a tape
            cells = cells[:, :, None]
        m, n, stacks, _, width = cells.shape
        return Superposition(
            self.shifts[part.models],
            self.first_filled,
            self.size,
            width,
            self.read,
            self.limit,
            self.given,
            self.value_kind,
            self.hard,
            self.temperature[part.models],
            self.empty_value[part.models],
            self.noise[part],
            kept,
            np.zeros((m, n), np.int64),
            np.zeros((m, n), np.int64),
            np.empty((m, n, stacks, history_size(self.steps, self.given, self.limit, width, kept)), self.dtype),
            cells,
            lost,
        )

    def grad(self, results_grads: list[np.ndarray], memory: Superposition, part: Part) -> SuperpositionGrad:
        cells = results_grads[0][part].reshape(memory.cells.shape)
        n_operations = max(5, self.shifts.shape[1])
        return SuperpositionGrad(cells, np.empty_like(cells), np.empty((len(cells), n_operations), self.dtype))

    def initial_state_grads(self, results_grads: list[np.ndarray]) -> tuple[np.ndarray | None, np.ndarray | None]:
        return results_grads[0][..., : self.given, :], None
