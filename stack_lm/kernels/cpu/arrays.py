"""What the compiled code works in, as NumPy arrays: memories and buffers of some rows of a batch; their gradients.

The first dimension of all arrays is that of several models, before those that the named tuples say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...controls import Control, ExpectedValue, Fixed, OperationChoice
from ...memory import (
    BabyNTM,
    MultipopSuperpositionStack,
    NeuralDeque,
    NeuralQueue,
    NeuralStack,
    NoMemory,
    StackState,
    SuperpositionStack,
)
from . import emission
from .buffer import InputBuffer, InputBufferGrad
from .elements import DEQUE, QUEUE, STACK, Elements, ElementsGrad
from .rows import SIGMOID, TANH
from .superposition import NO_LIMIT, Superposition, SuperpositionGrad, history_size

if TYPE_CHECKING:
    from ...layers.cell import StackRNNCell

_ELEMENTS = {NoMemory: STACK, NeuralStack: STACK, NeuralQueue: QUEUE, NeuralDeque: DEQUE}  # NoMemory: of nothing
_SUPERPOSITIONS = (SuperpositionStack, MultipopSuperpositionStack, BabyNTM)
MEMORIES = (*_ELEMENTS, *_SUPERPOSITIONS)


def array(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers as a contiguous array, shared if it is contiguous."""
    tensor = tensor.detach()
    numbers: np.ndarray = (tensor if tensor.is_contiguous() else tensor.contiguous()).numpy()
    return numbers


class Part(NamedTuple):
    """What a thread runs: some models, and some rows of the batch; all of at least one of the two, as arrays of both
    have to be contiguous."""

    models: slice
    rows: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of models and of rows."""
        return self.models.stop - self.models.start, self.rows.stop - self.rows.start


def _control(setting: Control, first: int, which: int, controls: np.ndarray, fixed: np.ndarray) -> int:
    """Fill in a row for a control whose logits begin at `first`; returns where they end."""
    if isinstance(setting, Fixed):
        kind, fixed[:, which] = emission.FIXED, setting.value
    else:
        kind = emission.EXPECTED_VALUE if isinstance(setting, ExpectedValue) else emission.SIGMOID
    controls[:, which] = kind, first, first + setting.width
    return first + setting.width


class ElementArrays:
    """For stack, queue, deque and no memory."""

    counts_losses = False

    def __init__(self, cell: StackRNNCell, models: int, steps: int, dtype: np.dtype, noise: None) -> None:
        memory = cell.memory
        self.kind, self.steps, self.dtype = _ELEMENTS[type(memory)], steps, dtype
        self.n_ends = 2 if self.kind == DEQUE else 1
        n_strengths = 3 * self.n_ends
        self.controls, self.fixed = np.zeros((models, n_strengths, 3), np.int64), np.zeros((models, n_strengths), dtype)
        place = memory.reading_size  # as large as all pushed values
        for which, field in enumerate(field for field in memory.actions if field.kind == "strength"):
            place = _control(cell.controls.strengths[field.name], place, which, self.controls, self.fixed)
        self.value_kind = _value_kind(cell)

    @staticmethod
    def first(state: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        """The tensors of a state."""
        if isinstance(state, StackState):
            return state.values.to(like.dtype), state.strengths.to(like.dtype)
        return like.new_zeros(state.empty.shape[0], 0, 0), like.new_zeros(state.empty.shape[0], 0)

    @staticmethod
    def last(state: Any, values: Tensor, strengths: Tensor) -> Any:
        """The state of tensors."""
        return StackState(values, strengths) if isinstance(state, StackState) else state

    def results(self, values: np.ndarray, strengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Arrays for the last state, with the first in its place."""
        *leading, given, depth = values.shape
        n = given + self.n_ends * self.steps
        results = np.empty((*leading, n, depth), self.dtype), np.empty((*leading, n), self.dtype)
        start = (self.n_ends - 1) * self.steps
        self.of_given = slice(start, start + given)
        for result, part in zip(results, (values, strengths), strict=True):
            result[:, :, self.of_given] = part
        return results

    def block(self, results: tuple[np.ndarray, ...], part: Part, kept: bool) -> Elements:
        """What the compiled code works in for a part."""
        values, strengths = (result[part] for result in results)
        m, n, total = strengths.shape
        pops = total + self.n_ends * self.steps
        return Elements(
            self.kind,
            self.controls[part.models],
            self.fixed[part.models],
            self.value_kind,
            self.steps,
            values,
            strengths,
            np.empty((m, self.steps, n, 3 * self.n_ends), self.dtype),
            np.empty((m, n, pops), np.int32),
            np.empty((m, n, pops), self.dtype),
            np.empty((m, self.steps, n, self.n_ends), np.int64),
            np.zeros((m, self.steps, n, self.n_ends, 2), np.bool_),
            np.empty((m, n, total), np.int32),
            np.empty((m, n, total), self.dtype),
            np.empty((m, n, 2), np.int64),
            np.zeros((m, n), np.int64),
            np.zeros((m, n), np.bool_),
        )

    @staticmethod
    def again(memory: Elements) -> Elements:
        """For another pass backwards: without what is worked in."""
        line = {name: getattr(memory, name).copy() for name in ("line_index", "line_strength", "line_ends")}
        return memory._replace(**line)

    def grad(self, of_results: list[np.ndarray], memory: Elements, part: Part) -> ElementsGrad:
        """Gradients of a part, of the last state on entry and then of the first."""
        values, strengths = (result[part] for result in of_results)
        m, _, total = strengths.shape
        working = np.empty((m, 3 * self.n_ends), self.dtype), np.empty((m, total), np.bool_)
        return ElementsGrad(values, strengths, *working)

    def of_first(self, of_results: list[np.ndarray]) -> list[np.ndarray | None]:
        """The gradients of the first state in those that `grad` was made of."""
        return [part[:, :, self.of_given] for part in of_results]


class SuperpositionArrays:
    """For superposition stack, multipop superposition stack and Baby-NTM."""

    counts_losses = True

    def __init__(self, cell: StackRNNCell, models: int, steps: int, dtype: np.dtype, noise: np.ndarray | None) -> None:
        memory = cell.memory
        assert isinstance(memory, _SUPERPOSITIONS)
        (choice,) = cell.controls.choices.values()
        assert isinstance(choice, OperationChoice)
        self.steps, self.dtype, self.size = steps, dtype, memory.size
        self.value_kind = _value_kind(cell)
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
                shifts, self.first_filled = [-1, 1, 0][: len(memory.actions[1].operations)], 0
            else:
                shifts, self.first_filled = list(range(-1, memory.max_pop)), 1
        self.shifts = np.tile(np.array(shifts, np.int64), (models, 1))
        self.empty_value = np.full((models, 1), empty_value, dtype)

    @staticmethod
    def first(state: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        """The tensors of a state; a tape loses nothing that is counted."""
        lost = state.lost if hasattr(state, "lost") else like.new_zeros(len(state.cells))
        return state.cells.to(like.dtype), lost.to(like.dtype)

    @staticmethod
    def last(state: Any, cells: Tensor, lost: Tensor) -> Any:
        """The state of tensors."""
        return type(state)(*(cells, lost)[: len(state)])

    def results(self, cells: np.ndarray, lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Arrays for the last state, with the first in its place."""
        *leading, self.given, width = cells.shape
        results = np.empty((*leading, min(self.given + self.steps, self.limit), width), self.dtype)
        results[..., : self.given, :] = cells
        return results, lost.copy()

    def block(self, results: tuple[np.ndarray, ...], part: Part, kept: bool) -> Superposition:
        """What the compiled code works in for a part."""
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

    @staticmethod
    def again(memory: Superposition) -> Superposition:
        """For another pass backwards: without what is worked in."""
        return memory._replace(steps=memory.steps.copy())

    def grad(self, of_results: list[np.ndarray], memory: Superposition, part: Part) -> SuperpositionGrad:
        """Gradients of a part, of the last state on entry and then of the first."""
        cells = of_results[0][part].reshape(memory.cells.shape)
        n_operations = max(5, self.shifts.shape[1])
        return SuperpositionGrad(cells, np.empty_like(cells), np.empty((len(cells), n_operations), self.dtype))

    def of_first(self, of_results: list[np.ndarray]) -> list[np.ndarray | None]:
        """The gradients of the first state in those that `grad` was made of."""
        return [of_results[0][..., : self.given, :], None]


class BufferArrays:
    """For an input buffer.

    Args:
        control: of its pop strength.
        first_logit: where that control's logits begin.
        values: [M, B, N, E].
        held: False at padding [M, B, N]; or None.
        steps: how many are taken.
    """

    def __init__(
        self, control: Control, first_logit: int, values: np.ndarray, held: np.ndarray | None, steps: int
    ) -> None:
        models, batch_size = values.shape[:2]
        self.values, self.steps, self.dtype = values, steps, values.dtype
        self.controls, self.fixed = np.zeros((models, 1, 3), np.int64), np.zeros((models, 1), self.dtype)
        _control(control, first_logit, 0, self.controls, self.fixed)
        self.held = np.empty((models, batch_size, 0), np.bool_) if held is None else held

    def block(self, part: Part) -> InputBuffer:
        """What the compiled code works in for a part."""
        values = self.values[part]
        m, n, size, _ = values.shape
        return InputBuffer(
            values,
            self.held[part],
            self.controls[part.models, 0],
            self.fixed[part.models],
            np.empty((m, self.steps, n), self.dtype),
            np.zeros((m, n), self.dtype),
            np.empty((m, n, size + self.steps), np.int32),
            np.empty((m, n, size + self.steps), self.dtype),
            np.empty((m, self.steps, n, 2), np.int64),
            np.zeros((m, self.steps, n, 2), np.bool_),
            np.empty((m, n, size), np.int32),
            np.empty((m, n, size), self.dtype),
            np.empty((m, n, 2), np.int64),
        )

    @staticmethod
    def again(buffer: InputBuffer) -> InputBuffer:
        """For another pass backwards: without what is worked in."""
        line = {name: getattr(buffer, name).copy() for name in ("line_index", "line_strength", "line_ends")}
        return buffer._replace(**line)

    def grad(self, of_values: np.ndarray, part: Part) -> InputBufferGrad:
        """Gradients of a part, zeros."""
        values = of_values[part]
        m, n, size, _ = values.shape
        return InputBufferGrad(values, np.empty((m, n, size), self.dtype), np.empty((m, n), self.dtype))


def _value_kind(cell: StackRNNCell) -> int:
    return int(TANH if cell.controls.value_activation is torch.tanh else SIGMOID)
