"""Memories in superposition: the next state is the mean of the results of all operations.

Joulin & Mikolov (2015) and Suzgun et al. (2019), section 3.1: with the weights a of the operations, the new element n
and the cells s from the top (0) down,

    s_t(0) = a_push n + a_pop s_{t-1}(1) + a_no-op s_{t-1}(0)
    s_t(i) = a_push s_{t-1}(i - 1) + a_pop s_{t-1}(i + 1) + a_no-op s_{t-1}(i)

Each operation moves all cells by one offset; `mixing.mix` does the arithmetic.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.checks import OneOf, Positive
from .base import Memory, Where, accurate, numbers_hidden, register_memory
from .fields import Choice, Elements, Parts, Setting, Size, Value, ValueActivation
from .mixing import Mixture, Move, mix

CHOICE_CONTROLS = ("softmax", "softmax_temperature", "gumbel_softmax")
CHOICE_SETTINGS = {
    "memory_size": Setting(16, Size),
    "push_value_activation": Setting("sigmoid", ValueActivation),
    "operation_control": Setting("softmax", OneOf(CHOICE_CONTROLS)),
    "temperature": Setting(1.0, Positive),
    "evaluation_noise": Setting(False, bool),
    "evaluation_argmax": Setting(False, bool),
}
STACK_SETTINGS = CHOICE_SETTINGS | {
    "memory_depth": Setting(None, Size | None),
    "memory_overflow": Setting("raise", Literal["raise", "truncate"]),
    "num_stacks": Setting(1, Parts),
    "read_depth": Setting(1, Elements),
    "empty_value": Setting(0.0, float),
}


class SuperpositionState(NamedTuple):
    """Parallel stacks.

    Attributes:
        cells: [B, S, N, D + 1] from the top down. The last column is a cell's occupancy, in [0, 1]; the values are
            weighted by it, so an empty cell is zeros.
        lost: [B], in elements: the mass lost at the bottom of full stacks.
    """

    cells: Tensor
    lost: Tensor


class ChoiceActions(NamedTuple):
    """One step's actions: the pushed vectors [B, S * D], and a distribution over the operations [B, S, O]."""

    push_value: Tensor
    operation: Tensor


class _Stacks(Memory[SuperpositionState, ChoiceActions]):
    """The common part of stacks in superposition: state, reading and depth limit.

    Args:
        size: size of one element, D.
        operations: their names.
        depth: maximum number of elements on a stack; None: no limit.
        overflow: response of a full stack to losing its bottom element.
        stacks: number of parallel stacks, S.
        read_depth: elements read from the top.
        empty_value: reading of an empty cell.
    """

    action_type = ChoiceActions
    state_type = SuperpositionState
    _prepend: ClassVar[bool]  # see Mixture

    def __init__(
        self,
        size: int,
        operations: tuple[str, ...],
        *,
        depth: int | None = None,
        overflow: Literal["raise", "truncate"] = "raise",
        stacks: int = 1,
        read_depth: int = 1,
        empty_value: float = 0.0,
    ) -> None:
        if depth is not None and read_depth > depth:
            raise ValueError(f"read_depth={read_depth} does not go with memory_depth={depth}, which is less")
        if depth is None and overflow == "truncate":
            raise ValueError("memory_overflow='truncate' needs a memory_depth: without one a stack is never full")
        self.size, self.depth, self.overflow, self.stacks = size, depth, overflow, stacks
        self.read_depth, self.empty_value = read_depth, empty_value
        self.reading_size = stacks * read_depth * size
        self.actions = (Value("push_value", stacks * size), Choice("operation", operations, stacks))

    def initial_state(self, batch_size: int, length: int | None = None, **where: Unpack[Where]) -> SuperpositionState:
        """Empty stacks of `read_depth` cells; each step adds a cell up to `depth`."""
        # Every step mixes all cells, so rounding errors add up over a sequence: float32 at least, as for strengths.
        cells = torch.zeros(batch_size, self.stacks, self.read_depth, self.size + 1, **accurate(where))
        return SuperpositionState(cells, torch.zeros(batch_size, **accurate(where)))

    def initial_reading(self, state: SuperpositionState) -> Tensor:
        """Return the reading of empty stacks."""
        return state.cells.new_full((state.cells.shape[0], self.reading_size), self.empty_value)

    @abstractmethod
    def _moves(self, n_cells: int, length: int) -> tuple[tuple[Move, ...], ...]:
        """The moves of each operation on a stack of `n_cells` cells; the next stack has `length`."""

    def update(self, state: SuperpositionState, actions: ChoiceActions) -> tuple[SuperpositionState, Tensor]:
        """Mix the results of the operations, then read.

        Args:
            state: cells [B, S, N, D + 1] from the top down.
            actions: values [B, S * D], and a distribution over the operations [B, S, O].

        Returns:
            The next state, of N + 1 cells unless the depth is reached, and the reading [B, S * read_depth * D].
        """
        n_cells = state.cells.shape[2]
        length = n_cells + 1 if self.depth is None else min(n_cells + 1, self.depth)
        mixture = Mixture(self._moves(n_cells, length), length, self._prepend, self.read_depth, self.empty_value)
        cells, reading = mix(state.cells, actions.operation, actions.push_value, mixture)
        lost = state.lost.detach()  # a measure, not part of the network
        if length == n_cells:
            with torch.no_grad():  # The first operation pushes without popping.
                lost = lost + torch.linalg.vecdot(actions.operation[..., 0].to(lost.dtype), state.cells[..., -1, -1])
        return SuperpositionState(cells, lost), reading.to(actions.push_value.dtype)

    def after(self, state: SuperpositionState, steps: int) -> SuperpositionState:
        """Each step adds a cell until the limit is reached."""
        batch_size, stacks, n_cells, width = state.cells.shape
        n_cells = n_cells + steps
        if self.depth is not None:
            n_cells = torch.sym_min(n_cells, self.depth)
        return SuperpositionState(state.cells.new_empty(batch_size, stacks, n_cells, width), state.lost)

    def hold(self, active: Tensor, new: SuperpositionState, old: SuperpositionState) -> SuperpositionState:
        kept = F.pad(old.cells, (0, 0, 0, new.cells.shape[2] - old.cells.shape[2]))
        cells = torch.where(active[:, None, None, None], new.cells, kept)
        return SuperpositionState(cells, torch.where(active, new.lost, old.lost.detach()))

    def measure(self, state: SuperpositionState) -> dict[str, Tensor]:
        """In elements, over all stacks: the expected `depth` [B], and `lost` [B], at the bottom of full stacks."""
        return {"depth": state.cells[..., -1].sum((1, 2)), "lost": state.lost}

    def measure_over(self, state: SuperpositionState, actions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`measure` after each step: only the cells' occupancy takes the steps, without the values."""
        weights = actions["operation"]
        state = state._replace(cells=state.cells[..., -1:])
        nothing = weights.new_empty(weights.shape[0], 0)
        measured = []
        for of_step in weights.unbind(1):
            new, _ = self.update(state, ChoiceActions(nothing, of_step))
            state = self.hold(of_step.any(-1).any(-1), new, state)  # weights are zeros only at padding
            measured.append(self.measure(state))
        return {name: torch.stack([step[name] for step in measured], dim=1) for name in measured[0]}

    def check_overflow(self, state: SuperpositionState) -> None:
        # No stack of fewer cells than its limit is full, so most sequences need no look at a value.
        # Under vmap the compiled scan looks, which sees all models' numbers.
        full = self.overflow == "raise" and state.cells.shape[2] == self.depth and not numbers_hidden()
        if full and bool((state.lost > 0).any()):
            raise ValueError(
                f"a stack of memory_depth={self.depth} was full and has lost {float(state.lost.max()):.3g} elements at "
                "its bottom; a greater depth, or None, holds more, and memory_overflow='truncate' allows it"
            )


@register_memory("superposition")
class SuperpositionStack(_Stacks):
    """A stack whose next state is the superposition of a push, a pop and, optionally, a no-op.

    Suzgun et al. (2019), section 3.1, is `SuperpositionStack(size)`. Joulin & Mikolov (2015), section 3.2, read the top
    `read_depth` elements of `stacks` stacks, whose empty cells read as -1, with an optional no-op (`no_op`).

    Args:
        size: size of one element, D.
        no_op: whether doing nothing is an operation.
        options: `depth` (maximum number of elements on a stack; None: no limit), `overflow` (response of a full stack
            to losing its bottom element, "raise" or "truncate"), `stacks` (number of parallel stacks, each with its own
            operations and values), `read_depth` (elements read from the top) and `empty_value` (reading of an empty
            cell). Losses are measured.

    Raises:
        ValueError: if depth and overflow do not go together.
    """

    settings = STACK_SETTINGS | {"no_op": Setting(False, bool)}
    _prepend = True

    def __init__(self, size: int, *, no_op: bool = False, **options: Any) -> None:
        self.no_op = no_op
        super().__init__(size, ("push", "pop", "no_op") if no_op else ("push", "pop"), **options)

    @classmethod
    def from_config(cls, config: Any) -> SuperpositionStack:
        return cls(config.memory_size, no_op=config.no_op, **_common_settings(config))

    def _moves(self, n_cells: int, length: int) -> tuple[tuple[Move, ...], ...]:
        rows = n_cells + 1  # the new element, then the cells
        operations = ((Move(0, 0, length),), (Move(2, 0, min(rows - 2, length)),))
        return (*operations, (Move(1, 0, min(rows - 1, length)),)) if self.no_op else operations


@register_memory("multipop_superposition")
class MultipopSuperpositionStack(_Stacks):
    """A stack whose next state is the superposition of popping 0, 1, ... elements and then pushing one.

    NOTE: "MACS-style": Yogatama et al. (2018) describe a multipop adaptive computation stack of this form; the
        equations here are this project's own.

    Args:
        size: size of one element, D.
        max_pop: maximum number of elements popped in a step, K.
        options: as of `SuperpositionStack`.

    Raises:
        ValueError: if depth and overflow do not go together.
    """

    settings = STACK_SETTINGS | {"max_pop": Setting(3, Elements)}
    _prepend = False

    def __init__(self, size: int, *, max_pop: int = 3, **options: Any) -> None:
        self.max_pop = max_pop
        super().__init__(size, tuple(f"pop_{i}" for i in range(max_pop + 1)), **options)

    @classmethod
    def from_config(cls, config: Any) -> MultipopSuperpositionStack:
        return cls(config.memory_size, max_pop=config.max_pop, **_common_settings(config))

    def _moves(self, n_cells: int, length: int) -> tuple[tuple[Move, ...], ...]:
        return tuple((Move(pops, 1, min(n_cells - pops, length - 1)),) for pops in range(self.max_pop + 1))


def _common_settings(config: Any) -> dict[str, Any]:
    return {
        "depth": config.memory_depth,
        "overflow": config.memory_overflow,
        "stacks": config.num_stacks,
        "read_depth": config.read_depth,
        "empty_value": config.empty_value,
    }
