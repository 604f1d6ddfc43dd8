"""The nondeterministic stack, a step of one sequence forwards and backwards, in real numbers.

See `stack_lm.memory.nondeterministic` for the definition. A column of the table holds the probabilities of a time's
`under`: for each state and top of that time those of what is below, by the time of it, in a row of numbers; the vectors
follow each probability, multiplied by it. So a pop adds multiples of whole rows of older columns to those of the new.

Probabilities below about 1e-290 are lost. That is harmless unless later weights favour the lost runs by as much. Let
`lost` be the weight of all runs that may have been lost, as a fraction of the total weight. At each step the lost
weight grows at most by the largest sum of weights of any state and top, and the total by its actual factor. When this
bound approaches the precision of float64, the sequence is `risky`: the reference, which computes in logarithms, then
runs its batch.
"""

from __future__ import annotations

import numpy as np

from . import nondeterministic_real as real
from .compilation import compiled
from .math import exp, log
from .nondeterministic_table import (
    ZERO,
    Nondeterministic,
    NondeterministicGrad,
    column,
    first_time,
    load_moves,
    take_first,
)
from .rows import clear, copy, squash_backward

# The logarithm of the fraction of all runs that may be lost.
_MAY_BE_LOST = -35.0


@compiled
def begin(memory: Nondeterministic, row: int, all_live: bool) -> None:
    """Take over the state of a sequence on entry."""
    given, pairs, width = memory.given, memory.states * memory.symbols, memory.size + 1
    for ry in range(pairs):
        memory.tops[row, given - 1, ry] = memory.top[row, ry]
    for c in range(given):
        for ry in range(pairs):
            below = memory.tables[row][column(memory, c, ry)]
            for i in range(c + 1):
                for qx in range(pairs):
                    place, source = (i * pairs + qx) * width, memory.first[row, i, c, qx, ry]
                    share = exp(source[0] + memory.zero[0])
                    below[place] = share
                    for j in range(1, width):
                        below[place + j] = share * source[j]
    memory.lost[row] = real.LOST


@compiled
def finish(memory: Nondeterministic, row: int) -> None:
    """Write out the last state of a sequence."""
    pairs, width = memory.states * memory.symbols, memory.size + 1
    n, last = memory.under.shape[1], memory.given + memory.steps[row] - 1
    for ry in range(pairs):
        memory.top[row, ry] = memory.tops[row, last, ry]
    for place in range(n):
        c = place + last - n + 1
        first = first_time(memory, max(c, 0))
        inside = slice(max(0, first - last + n - 1), place + 1 if c >= 0 else 0)
        for slot in range(n):
            if slot < inside.start or slot >= inside.stop:
                _hand_nothing_over(memory.under[row, slot, place])
        for ry in range(pairs):
            if c < 0:
                break
            below, logs = memory.tables[row][column(memory, c, ry)], memory.sums
            _take_logs(logs[: below.shape[0] // width], below, width)
            for slot in range(inside.start, inside.stop):
                for qx in range(pairs):
                    e = (slot + last - n + 1 - first) * pairs + qx
                    target = memory.under[row, slot, place, qx, ry]
                    target[0] = logs[e]
                    for j in range(1, width):
                        value = below[e * width + j]
                        target[j] = value if value == 0 else value / below[e * width]


@compiled
def _hand_nothing_over(target: np.ndarray) -> None:
    for qx in range(target.shape[0]):
        for ry in range(target.shape[1]):
            clear(target[qx, ry])
            target[qx, ry, 0] = ZERO


@compiled
def _take_logs(target: np.ndarray, source: np.ndarray, width: int) -> None:
    """Write the logarithm of every `width`-th number of source to target; NaN stays."""
    for e in range(target.shape[0]):
        share = source[e * width]
        found = log(share) if share > 0 else ZERO
        target[e] = found if share == share else share


@compiled
def step(memory: Nondeterministic, t: int, row: int, own: np.ndarray, reading: np.ndarray) -> None:
    """Make all moves, and read; nothing once the sequence is risky.

    Args:
        own: the logits of the moves and of the vector.
        reading: written.
    """
    if memory.risky[row]:
        return
    k = memory.steps[row]
    memory.steps[row] = k + 1
    c = memory.given + k
    memory.risky[row] = not load_moves(memory, row, k, own)
    if not memory.risky[row]:
        real.move(memory, row, k, c)
        memory.risky[row] = not memory.lost[row] < _MAY_BE_LOST  # or NaN
        _read(memory, row, c, reading)


@compiled
def _read(memory: Nondeterministic, row: int, c: int, reading: np.ndarray) -> None:
    size, width = max(memory.size, 1), memory.size + 1
    clear(reading)
    for ry in range(memory.states * memory.symbols):
        probability = exp(memory.tops[row, c, ry])
        start = (ry if memory.read_states else ry % memory.symbols) * size
        if memory.size == 0:
            reading[start] += probability
        below = memory.tables[row][column(memory, c, ry)]
        for j in range(memory.size):
            reading[start + j] += probability * real.sum_of(below[j + 1 :], width)


@compiled
def begin_backward(memory: Nondeterministic, grad: NondeterministicGrad, row: int) -> None:
    """Copy the gradients of the last state to where the backward pass of the last step reads them."""
    pairs, width, n = memory.states * memory.symbols, memory.size + 1, grad.under.shape[1]
    last = memory.given + memory.steps[row] - 1
    clear(grad.tables[row])
    for ry in range(pairs):
        grad.tops[row, ry] = grad.top[row, ry]
    for place in range(max(0, n - 1 - last), n):
        c = place + last - n + 1
        first = first_time(memory, c)
        for ry in range(pairs):
            below, of_below = memory.tables[row][column(memory, c, ry)], grad.tables[row][column(memory, c, ry)]
            for i in range(max(first, last - n + 1), c + 1):
                for qx in range(pairs):
                    start = ((i - first) * pairs + qx) * width
                    change = grad.under[row, i - last + n - 1, place, qx, ry]
                    of_share, share = change[0] + memory.zero[0], below[start]
                    for j in range(1, width):
                        of_share -= zero_unless(share > real.TINY, change[j] * below[start + j] / share)
                        of_below[start + j] += zero_unless(share > real.TINY, change[j] / share)
                    of_below[start] += zero_unless(share > real.TINY, of_share / share)
    if memory.steps[row] == 0:
        take_first(memory, grad, row)


@compiled
def zero_unless(condition: bool, number: float) -> float:
    """The number, or 0."""
    return number if condition else type(number)(0)


@compiled
def step_backward(
    memory: Nondeterministic,
    grad: NondeterministicGrad,
    t: int,
    row: int,
    own: np.ndarray,
    grad_reading: np.ndarray,
    grad_logits: np.ndarray,
) -> None:
    """Backpropagate through `step`; `memory.steps` is counted back.

    Args:
        own: unused.
        grad_reading: of no step before this one on return: zeros.
        grad_logits: of the logits of moves and vector; written.
    """
    k = memory.steps[row] - 1
    memory.steps[row] = k
    c, pairs = memory.given + k, memory.states * memory.symbols
    _read_backward(memory, grad, row, c, grad_reading)
    clear(grad_reading)
    clear(grad.moves)
    clear(grad.vector)
    total = grad.tops[row, 0]
    for ry in range(1, pairs):
        total += grad.tops[row, ry]
    for ry in range(pairs):
        grad.totals[ry] = grad.tops[row, ry] - total * exp(memory.tops[row, c, ry])
    real.move_backward(memory, grad, row, k, c)
    n_moves = grad.moves.shape[0]
    _rows_backward(memory, grad, row, k, grad_logits[:n_moves])
    if memory.size > 0:
        squash_backward(memory.vectors[row, k], memory.value_kind, grad.vector, grad_logits[n_moves:])
    if k == 0:
        take_first(memory, grad, row)


@compiled
def _rows_backward(
    memory: Nondeterministic, grad: NondeterministicGrad, row: int, k: int, grad_logits: np.ndarray
) -> None:
    """Turn the gradients of the moves into those of their logits, and of the probabilities of the tops they start from.

    All moves of a row have that probability as a factor."""
    states, pairs = memory.states, memory.states * memory.symbols
    moves, of_moves = memory.moves[row, k], grad.moves
    copy(grad_logits, of_moves)
    for sz in range(pairs):
        pushes, replacements = (
            slice(sz * pairs, (sz + 1) * pairs),
            slice((pairs + sz) * pairs, (pairs + sz + 1) * pairs),
        )
        pops = slice(2 * pairs * pairs + sz * states, 2 * pairs * pairs + (sz + 1) * states)
        of_row = (
            real.sum_of(of_moves[pushes], 1) + real.sum_of(of_moves[replacements], 1) + real.sum_of(of_moves[pops], 1)
        )
        grad.tops[row, sz] = of_row
        if memory.normalize:
            _normalise_backward(moves[pushes], of_row, grad_logits[pushes])
            _normalise_backward(moves[replacements], of_row, grad_logits[replacements])
            _normalise_backward(moves[pops], of_row, grad_logits[pops])


@compiled
def _normalise_backward(moves: np.ndarray, of_row: float, grad_logits: np.ndarray) -> None:
    for place in range(moves.shape[0]):
        grad_logits[place] -= of_row * exp(moves[place])


@compiled
def _read_backward(
    memory: Nondeterministic, grad: NondeterministicGrad, row: int, c: int, grad_reading: np.ndarray
) -> None:
    """Backpropagate through `_read`, to the probabilities of tops and to the column."""
    size, width = max(memory.size, 1), memory.size + 1
    for ry in range(memory.states * memory.symbols):
        probability = exp(memory.tops[row, c, ry])
        start = (ry if memory.read_states else ry % memory.symbols) * size
        if memory.size == 0:
            grad.tops[row, ry] += probability * grad_reading[start]
            continue
        below, of_below = memory.tables[row][column(memory, c, ry)], grad.tables[row][column(memory, c, ry)]
        for j in range(size):
            change = probability * grad_reading[start + j]
            grad.tops[row, ry] += change * real.sum_of(below[j + 1 :], width)
            for place in range(0, of_below.shape[0], width):
                of_below[place + 1 + j] += change


@compiled
def skip(memory: Nondeterministic, t: int, row: int) -> None:
    """Skip a step of padding."""
