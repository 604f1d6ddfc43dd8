"""The most probable run of a nondeterministic stack (Viterbi): definite moves, where the reading is a mixture.

The recurrences are those of the papers, with the greatest weight in place of the sum (DuSell & Chiang 2023):

    inner[i -> j][qx -> ry] = log weight of the best partial run from time i, state q and top x, to time j, in which y
                              lies directly over x and the stack up to x is untouched
    best[j][ry]             = max over i, q, x of best[i][qx] + inner[i -> j][qx -> ry]

The moves are found backwards: at each step the alternatives are compared again, so no back-pointers are kept. `tables`
defines the two; `kernels.cpu.viterbi` fills the same tables in compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InputError
from ..core.trace import MOVES, StackRun
from .nondeterministic import ZERO, NondeterministicStack
from .room import check_room

PUSH, REPLACE, POP = range(3)
# Numbers compared at once: the times below the top are processed in parts of about this size.
_AT_ONCE = 2**22

# From a memory and its weights over T steps, push and replace [T, P, P] and pop [T, P, Q], to `inner` and `best`.
Tables = Callable[[NondeterministicStack, Tensor, Tensor, Tensor], tuple[np.ndarray, np.ndarray]]


@torch.no_grad()
def tables(memory: NondeterministicStack, push: Tensor, replace: Tensor, pop: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The greatest weights of partial runs over T steps, and of whole runs up to each time.

    Args:
        memory: a memory of P = Q * S pairs of a state and a symbol.
        push: log weights [T, P, P], float64; minus infinity for impossible moves.
        replace: likewise.
        pop: likewise [T, P, Q].

    Returns:
        `inner` [T + 1, T + 1, P, P], of times i and j at [i + 1, j], and `best` [T + 2, P], of time j at [j + 1].
    """
    steps, pairs = push.shape[:2]
    split = (memory.states, memory.symbols)
    inner = push.new_full((steps + 1, steps + 1, pairs, pairs), -math.inf)
    best = push.new_full((steps + 2, pairs), -math.inf)
    best[:2, 0] = 0
    if memory.bottom == "open":
        inner[0, 0, 0, 0] = 0
    for j in range(1, steps + 1):
        first = 0 if memory.window is None else max(0, j + 1 - memory.window)  # of the times below, plus 1
        column = inner[first:j, j]
        before = inner[first:j, j - 1]  # [i, qx, sz]; none where i = j - 1
        column.copy_((before.unsqueeze(-1) + replace[j - 1]).amax(2))
        if first < j - 1:
            # The top revealed by a pop, u and y at time k, in a state r: [k, u, y, r], k from `first`.
            popped = (inner[first + 1 : j, j - 1].unsqueeze(-1) + pop[j - 1]).amax(2).unflatten(1, split)
            below = inner[first : j - 1, first : j - 1].unflatten(3, split)  # [i, k, qx, u, y]
            rows = max(1, _AT_ONCE // (below[0].numel() * memory.states))
            for start in range(0, len(below), rows):
                some = below[start : start + rows].unsqueeze(-1)
                revealed = (some + popped[:, None]).amax((1, 3))  # [i, qx, y, r]
                into = column[start : start + len(some)]
                torch.maximum(into, revealed.transpose(2, 3).flatten(2), out=into)
        inner[j, j] = push[j - 1]
        best[j + 1] = (best[first : j + 1].unsqueeze(-1) + inner[first : j + 1, j]).amax((0, 1))
    return inner.numpy(), best.numpy()


@torch.no_grad()
def best_runs(
    memory: NondeterministicStack,
    actions: Any,
    lengths: Sequence[int] | None = None,
    *,
    names: Sequence[str] | None = None,
    fill: Tables = tables,
) -> list[StackRun]:
    """The run of greatest weight of each sequence, whatever its end; one of them if several are equal.

    Each step is a word of the run.

    Args:
        memory: sets the sizes, normalisation, bottom and window.
        actions: the log weights of its moves, by name or as its actions: `push_weight` and `replace_weight`
            [B, T, Q, S, Q, S] and `pop_weight` [B, T, Q, S, Q]. Vectors are ignored.
        lengths: the lengths of the sequences, at most T; None takes T for all.
        names: the names of the sequences, for messages; None counts them from 1.
        fill: `tables`, or the choice of `kernels.runs.tables_for` for many or long sequences.

    Raises:
        InputError: for a sequence without any run, or with a table that does not fit in memory.
    """
    named = actions if isinstance(actions, dict) else actions._asdict()
    parts = [torch.as_tensor(named[f"{name}_weight"]).detach().cpu().double() for name in MOVES]
    lengths = [parts[0].shape[1]] * len(parts[0]) if lengths is None else lengths
    names = [f"sequence {number}" for number in range(1, len(lengths) + 1)] if names is None else names
    runs = []
    for row, (length, name) in enumerate(zip(lengths, names, strict=True)):
        size = 8 * (length + 1) ** 2 * memory.pairs**2
        check_room(size, None, f"the most probable run over {length:,} steps", "shorter sequences need less")
        # The memory's own view of the weights, with each step as a sequence.
        weights = [
            part.masked_fill(part <= ZERO / 2, -math.inf)
            for part in memory.weights([part[row, :length] for part in parts], torch.float64)
        ]
        found = fill(memory, *weights)
        runs.append(_Backwards(memory, *found, [part.numpy() for part in weights], name).run(length))
    return runs


class _Backwards:
    """The moves of one sequence, from its tables."""

    def __init__(
        self, memory: NondeterministicStack, inner: np.ndarray, best: np.ndarray, weights: list[np.ndarray], name: str
    ) -> None:
        self.memory, self.inner, self.best, self.name = memory, inner, best, name
        self.push, self.replace, self.pop = weights

    def run(self, length: int) -> StackRun:
        """The most probable run of the first `length` steps; raises InputError if there is none."""
        top = int(self.best[length + 1].argmax())
        weight = float(self.best[length + 1, top])
        if weight == -math.inf:
            raise InputError(
                f"{self.name} has no run: the weights of all moves that its runs could make are 0 "
                "(log weights of minus infinity)"
            )
        moves, tops = np.zeros(length, dtype=np.int8), np.zeros(length + 1, dtype=np.int64)
        time = length
        while time > 0:  # the element that is the top at this time, then the element below it
            values = self.best[: time + 1] + self.inner[: time + 1, time, :, top]
            i, under = np.unravel_index(values.argmax(), values.shape)
            self._partial(int(i), time, int(under), top, moves, tops)
            time, top = int(i) - 1, int(under)
        return _run(moves, *np.divmod(tops[1:], self.memory.symbols), weight)

    def _partial(self, i: int, j: int, under: int, top: int, moves: np.ndarray, tops: np.ndarray) -> None:
        """The moves of the partial run from time i - 1 to time j."""
        pending = [(i, j, under, top)]
        while pending:
            i, j, under, top = pending.pop()
            if j == 0:  # the bottom at the start
                continue
            tops[j] = top
            if i == j:
                moves[j - 1] = PUSH
                continue
            replaced = self.inner[i, j - 1, under] + self.replace[j - 1, :, top]
            k, revealed, popped, value = self._popped(i, j, under, top)
            if value > replaced.max():
                moves[j - 1] = POP
                pending += ((i, k, under, revealed), (k + 1, j - 1, revealed, popped))
            else:
                moves[j - 1] = REPLACE
                pending.append((i, j - 1, under, int(replaced.argmax())))

    def _popped(self, i: int, j: int, under: int, top: int) -> tuple[int, int, int, float]:
        """The best pop at time j: the time k and the top that it reveals, the popped element, the weight."""
        if i > j - 2:
            return 0, 0, 0, -math.inf
        state, symbol = divmod(top, self.memory.symbols)
        revealed = np.arange(self.memory.states) * self.memory.symbols + symbol  # in any state
        times = np.arange(i, j - 1)
        below = self.inner[i, times[:, None], under, revealed]  # [k, u]
        above = self.inner[i + 1 : j, j - 1][:, revealed] + self.pop[j - 1, :, state]  # [k, u, sz]
        values = below[:, :, None] + above
        k, u, popped = np.unravel_index(values.argmax(), values.shape)
        return i + int(k), int(revealed[u]), int(popped), float(values[k, u, popped])


def _run(moves: np.ndarray, states: np.ndarray, symbols: np.ndarray, weight: float) -> StackRun:
    """The run, with the stack after each move."""
    pushed_at, stack = [-1], [0]
    elements, stacks = [], []
    for step, (move, symbol) in enumerate(zip(moves.tolist(), symbols.tolist(), strict=True)):
        if move == PUSH:
            pushed_at.append(step)
            stack.append(symbol)
        elif move == POP:
            pushed_at.pop()
            stack.pop()
        else:
            stack[-1] = symbol
        elements.append(pushed_at[-1])
        stacks.append(tuple(stack))
    depths = np.array([len(symbols) - 1 for symbols in stacks], dtype=int)
    names = tuple(MOVES[move] for move in moves)
    return StackRun(names, states, symbols, np.array(elements, dtype=int), depths, stacks, weight)
