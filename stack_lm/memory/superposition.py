"""Memories in superposition: their next state is the mean of what each operation would make of them.

Joulin & Mikolov (2015) and Suzgun et al. (2019), section 3.1: with the weights a of the operations, the new element n
and the cells s from the top (0) down,

    s_t(0) = a_push n + a_pop s_{t-1}(1) + a_no-op s_{t-1}(0)
    s_t(i) = a_push s_{t-1}(i - 1) + a_pop s_{t-1}(i + 1) + a_no-op s_{t-1}(i)

Each operation moves all cells by one offset, so a step is one weighted sum of shifted views, however deep the stack is.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .base import ActionField, Memory, register_memory

if TYPE_CHECKING:
    from ..configuration_stack_rnn import StackRNNConfig

CHOICE_SETTINGS = {
    "memory_size": 16,
    "push_value_activation": "sigmoid",
    "operation_control": "softmax",
    "temperature": 1.0,
    "evaluation_noise": False,
    "evaluation_argmax": False,
}
STACK_SETTINGS = CHOICE_SETTINGS | {
    "memory_depth": None,
    "memory_overflow": "raise",
    "num_stacks": 1,
    "read_depth": 1,
    "empty_value": 0.0,
}


def superpose_reference(rows: Tensor, weights: Tensor, offsets: tuple[int, ...], length: int) -> Tensor:
    """What `superpose` computes, in plain operations."""
    parts = [rows.narrow(1, offset, length) for offset in offsets]
    return torch.stack([w[:, None, None] * part for w, part in zip(weights.unbind(1), parts, strict=True)]).sum(0)


class _Superpose(torch.autograd.Function):
    """`superpose_reference` in a few operations, each once over all cells, with a hand-written gradient.

    Autograd would copy every shifted view into a tensor of zeros; this takes less than half the time.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, offsets: tuple[int, ...], length: int) -> Tensor:
        ctx.save_for_backward(rows, weights)
        ctx.offsets = offsets
        batch_size, _, size = rows.shape
        # In two dimensions a shift is one block of memory for each sequence.
        flat = rows.reshape(batch_size, -1)
        mixed = flat.narrow(1, offsets[0] * size, length * size) * weights[:, :1]
        for i, offset in enumerate(offsets[1:], start=1):
            mixed.addcmul_(flat.narrow(1, offset * size, length * size), weights[:, i : i + 1])
        return mixed.view(batch_size, length, size)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weights = ctx.saved_tensors
        batch_size, _, size = rows.shape
        width = gradient.shape[1] * size
        flat, gradient = rows.reshape(batch_size, -1), gradient.reshape(batch_size, -1)
        of_rows, of_weights = torch.zeros_like(flat), torch.empty_like(weights)
        for i, offset in enumerate(ctx.offsets):
            of_rows.narrow(1, offset * size, width).addcmul_(gradient, weights[:, i : i + 1])
            torch.linalg.vecdot(flat.narrow(1, offset * size, width), gradient, out=of_weights[:, i])
        return of_rows.view_as(rows), of_weights, None, None


def superpose(rows: Tensor, weights: Tensor, offsets: tuple[int, ...], length: int) -> Tensor:
    """The weighted sum of shifted views: sum_o weights[o] rows[offsets[o] : offsets[o] + length].

    Args:
        rows: [B, rows, size].
        weights: [B, O].
        offsets: O of them, in rows.
        length: rows of the result.

    Returns:
        [B, length, size].
    """
    mixed: Tensor = _Superpose.apply(rows, weights.to(rows.dtype), offsets, length)
    return mixed


class SuperpositionState(NamedTuple):
    """Stacks side by side.

    Attributes:
        cells: [B, S, N, D + 1] from the top down. The last column is how far a cell is occupied, in [0, 1]; the values
            are weighted by it, so that an empty cell is zeros.
        lost: [B], in elements: what a full stack has lost at its bottom.
    """

    cells: Tensor
    lost: Tensor


class ChoiceActions(NamedTuple):
    """One step's actions: the vectors pushed [B, S * D], and a distribution over the operations [B, S, O]."""

    push_value: Tensor
    operation: Tensor


class _Stacks(Memory):
    """What the stacks in superposition have in common: their state, how it is read, and its limit."""

    action_type = ChoiceActions
    state_type = SuperpositionState

    def __init__(
        self,
        size: int,
        operations: tuple[str, ...],
        *,
        depth: int | None,
        overflow: Literal["raise", "truncate"],
        stacks: int,
        read_depth: int,
        empty_value: float,
    ) -> None:
        if depth is not None and read_depth > depth:
            raise ValueError(f"read_depth={read_depth} does not go with memory_depth={depth}, which is less")
        if depth is None and overflow == "truncate":
            raise ValueError("memory_overflow='truncate' needs a memory_depth: without one a stack is never full")
        self.size, self.depth, self.overflow, self.stacks = size, depth, overflow, stacks
        self.read_depth, self.empty_value = read_depth, empty_value
        self.reading_size = stacks * read_depth * size
        self.actions = (
            ActionField("push_value", "value", stacks * size),
            ActionField("operation", "choice", len(operations), stacks, operations),
        )

    def initial_state(
        self, batch_size: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> SuperpositionState:
        """Empty stacks, of as many cells as are read; each step adds a cell until there are `depth`."""
        # Every step mixes all cells, so rounding adds up over a sequence: float32 at least, as for strengths.
        dtype = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
        shape = (batch_size, self.stacks, self.read_depth, self.size + 1)
        return SuperpositionState(
            cells=torch.zeros(shape, device=device, dtype=dtype),
            lost=torch.zeros(batch_size, device=device, dtype=dtype),
        )

    def initial_reading(self, state: SuperpositionState) -> Tensor:
        """What empty stacks read as."""
        return self._read(state.cells)

    def _read(self, cells: Tensor) -> Tensor:
        top = cells[:, :, : self.read_depth]
        reading = top[..., : self.size]
        if self.empty_value:
            reading = reading + self.empty_value * (1 - top[..., self.size :])
        return reading.flatten(1)

    @abstractmethod
    def _mix(self, cells: Tensor, elements: Tensor, weights: Tensor, length: int) -> Tensor:
        """The next cells [B, length, D + 1] of stacks [B, N, D + 1], new elements [B, 1, D + 1], weights [B, O]."""

    def update(self, state: SuperpositionState, actions: ChoiceActions) -> tuple[SuperpositionState, Tensor]:
        """Mix what the operations would make of the stacks, then read.

        Args:
            state: cells [B, S, N, D + 1] from the top down.
            actions: values [B, S * D], and a distribution over the operations [B, S, O].

        Returns:
            The next state, of N + 1 cells unless the depth is reached, and the reading [B, S * read_depth * D].
        """
        batch_size, stacks, n_cells, width = state.cells.shape
        length = n_cells + 1 if self.depth is None else min(n_cells + 1, self.depth)
        elements = F.pad(actions.push_value.to(state.cells.dtype).view(-1, 1, self.size), (0, 1), value=1.0)
        mixed = self._mix(state.cells.flatten(0, 1), elements, actions.operation.flatten(0, 1), length)
        cells = mixed.view(batch_size, stacks, length, width)
        lost = state.lost
        if length == n_cells:  # The first operation pushes without popping.
            lost = lost + (actions.operation[..., 0] * state.cells[..., -1, -1]).detach().sum(1)
        return SuperpositionState(cells, lost), self._read(cells).to(actions.push_value.dtype)

    def hold(self, active: Tensor, new: SuperpositionState, old: SuperpositionState) -> SuperpositionState:
        kept = F.pad(old.cells, (0, 0, 0, new.cells.shape[2] - old.cells.shape[2]))
        cells = torch.where(active[:, None, None, None], new.cells, kept)
        return SuperpositionState(cells, torch.where(active, new.lost, old.lost))

    def measure(self, state: SuperpositionState) -> dict[str, Tensor]:
        """In elements, over all stacks: `depth` [B], expected to be on them; `lost` [B], at the bottom of full ones."""
        return {"depth": state.cells[..., -1].sum((1, 2)), "lost": state.lost}

    def check_overflow(self, state: SuperpositionState) -> None:
        # No stack of fewer cells than its limit is full, so most sequences need no look at a value.
        if self.overflow == "raise" and state.cells.shape[2] == self.depth and bool((state.lost > 0).any()):
            raise ValueError(
                f"a stack of memory_depth={self.depth} was full and has lost {float(state.lost.max()):.3g} elements at "
                "its bottom; a greater depth, or None, holds more, and memory_overflow='truncate' allows it"
            )


@register_memory("superposition")
class SuperpositionStack(_Stacks):
    """A stack whose next state is the superposition of having pushed, having popped and, if wanted, neither.

    Suzgun et al. (2019), section 3.1, is `SuperpositionStack(size)`. Joulin & Mikolov (2015), section 3.2, read the top
    `read_depth` elements of `stacks` stacks, whose empty cells read as -1, and may do nothing (`no_op`).

    Args:
        size: size of one element, D.
        no_op: whether to do nothing is an operation.
        depth: most elements on a stack; None for no limit.
        overflow: what to do when a full stack loses its bottom element: "raise" or "truncate". Losses are measured.
        stacks: stacks side by side, S, each with its own operations and values.
        read_depth: how many elements are read from the top.
        empty_value: what an empty cell reads as.

    Raises:
        ValueError: if a depth and what is to be done at it do not go together.
    """

    settings = STACK_SETTINGS | {"no_op": False}

    def __init__(
        self,
        size: int,
        *,
        no_op: bool = False,
        depth: int | None = None,
        overflow: Literal["raise", "truncate"] = "raise",
        stacks: int = 1,
        read_depth: int = 1,
        empty_value: float = 0.0,
    ) -> None:
        self._offsets = (0, 2, 1) if no_op else (0, 2)
        super().__init__(
            size,
            ("push", "pop", "no_op")[: len(self._offsets)],
            depth=depth,
            overflow=overflow,
            stacks=stacks,
            read_depth=read_depth,
            empty_value=empty_value,
        )

    @classmethod
    def from_config(cls, config: StackRNNConfig) -> SuperpositionStack:
        return cls(config.memory_size, no_op=config.no_op, **_common_settings(config))

    def _mix(self, cells: Tensor, elements: Tensor, weights: Tensor, length: int) -> Tensor:
        below = cells.new_zeros(cells.shape[0], length + 1 - cells.shape[1], cells.shape[2])
        return superpose(torch.cat((elements, cells, below), dim=1), weights, self._offsets, length)


@register_memory("multipop_superposition")
class MultipopSuperpositionStack(_Stacks):
    """A stack whose next state is the superposition of having popped 0, 1, ... elements, and then pushed one.

    NOTE: "MACS-style": Yogatama et al. (2018) describe a multipop adaptive computation stack in this shape; the
    equations here are ours.

    Args:
        size: size of one element, D.
        max_pop: most elements popped in a step, K.
        depth, overflow, stacks, read_depth, empty_value: as of `SuperpositionStack`.

    Raises:
        ValueError: if a depth and what is to be done at it do not go together.
    """

    settings = STACK_SETTINGS | {"max_pop": 3}

    def __init__(
        self,
        size: int,
        *,
        max_pop: int = 3,
        depth: int | None = None,
        overflow: Literal["raise", "truncate"] = "raise",
        stacks: int = 1,
        read_depth: int = 1,
        empty_value: float = 0.0,
    ) -> None:
        self.max_pop = max_pop
        super().__init__(
            size,
            tuple(f"pop_{i}" for i in range(max_pop + 1)),
            depth=depth,
            overflow=overflow,
            stacks=stacks,
            read_depth=read_depth,
            empty_value=empty_value,
        )

    @classmethod
    def from_config(cls, config: StackRNNConfig) -> MultipopSuperpositionStack:
        return cls(config.memory_size, max_pop=config.max_pop, **_common_settings(config))

    def _mix(self, cells: Tensor, elements: Tensor, weights: Tensor, length: int) -> Tensor:
        rows = F.pad(cells, (0, 0, 0, self.max_pop))
        left = superpose(rows, weights, tuple(range(self.max_pop + 1)), length - 1)
        return torch.cat((elements, left), dim=1)


def _common_settings(config: StackRNNConfig) -> dict[str, Any]:
    return {
        "depth": config.memory_depth,
        "overflow": config.memory_overflow,
        "stacks": config.num_stacks,
        "read_depth": config.read_depth,
        "empty_value": config.empty_value,
    }
