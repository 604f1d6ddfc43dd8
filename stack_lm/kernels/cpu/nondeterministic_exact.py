"""The nondeterministic stack in logarithms: safe for any weights, but slower because of the exponentials."""

from __future__ import annotations

import math as python_math

import numpy as np

from .compilation import compiled
from .math import exp
from .nondeterministic_table import (
    ZERO,
    Nondeterministic,
    NondeterministicGrad,
    column,
    first_time,
    log_sum,
    put_total,
)
from .rows import clear


@compiled
def begin(memory: Nondeterministic, row: int) -> None:
    """Take over the state of a sequence on entry again."""
    pairs, width = memory.states * memory.symbols, memory.size + 1
    for c in range(memory.given):
        for ry in range(pairs):
            below = memory.tables[row][column(memory, c, ry)]
            for i in range(c + 1):
                for qx in range(pairs):
                    for j in range(width):
                        below[(i * pairs + qx) * width + j] = memory.first[row, i, c, qx, ry, j]


@compiled
def _add_terms(below: np.ndarray, more: float, width: int, target: np.ndarray, sums: np.ndarray) -> None:
    """Add terms to sums of exponentials; `target` holds the largest term, and `sums` the sum relative to it."""
    if more <= ZERO / 2:
        return
    for e in range(below.shape[0] // width):
        place = e * width
        if below[place] <= ZERO / 2:
            continue
        term = below[place] + more
        if term > target[place]:
            factor = exp(target[place] - term)
            sums[e] = sums[e] * factor + 1
            target[place] = term
            for j in range(1, width):
                target[place + j] = target[place + j] * factor + below[place + j]
        else:
            factor = exp(term - target[place])
            sums[e] += factor
            for j in range(1, width):
                target[place + j] += below[place + j] * factor


@compiled
def _reveal(memory: Nondeterministic, row: int, k: int, c: int) -> None:
    """Compute the log weights of the states and tops that pops reveal, for every time."""
    states, pairs, width = memory.states, memory.states * memory.symbols, memory.size + 1
    tops, pops = memory.tops[row, c - 1], memory.moves[row, k, 2 * pairs * pairs :]
    first, before = first_time(memory, c), first_time(memory, c - 1)
    start, logs = (first + 1 - before) * pairs * width, memory.logs[:pairs]
    for place in range((c - 1 - first) * pairs):
        for r in range(states):
            for sz in range(pairs):
                below = memory.tables[row][column(memory, c - 1, sz)][start + place * width]
                logs[sz] = below + (tops[sz] + pops[sz * states + r])
            memory.revealed[place * states + r] = log_sum(logs)


@compiled
def move(memory: Nondeterministic, row: int, k: int, c: int) -> None:
    """Compute the column of a new time."""
    states, symbols, width = memory.states, memory.symbols, memory.size + 1
    pairs, table = states * symbols, memory.tables[row]
    tops, total, moves = memory.tops[row, c - 1], memory.totals[row, c], memory.moves[row, k]
    first, before = first_time(memory, c), first_time(memory, c - 1)
    n = (c + 1 - first) * pairs
    kept, end = (n - pairs) * width, (first - before) * pairs * width
    _reveal(memory, row, k, c)
    for ry in range(pairs):
        target, sums = table[column(memory, c, ry)], memory.sums[:n]
        r, y = ry // symbols, ry % symbols
        clear(sums)
        clear(target)
        for e in range(n):
            target[e * width] = ZERO
        for sz in range(pairs):
            more = tops[sz] + moves[(pairs + sz) * pairs + ry]
            _add_terms(table[column(memory, c - 1, sz)][end : end + kept], more, width, target[:kept], sums)
            target[kept + sz * width] = tops[sz] + moves[sz * pairs + ry]
            sums[n - pairs + sz] = 1
            for j in range(1, width):
                target[kept + sz * width + j] = memory.vectors[row, k, j - 1]
        for time in range(first, c - 1):
            start, size = (first - first_time(memory, time)) * pairs * width, (time - first + 1) * pairs * width
            for u in range(states):
                uy = u * symbols + y
                below = table[column(memory, time, uy)][start : start + size]
                more = memory.revealed[((time - first) * pairs + uy) * states + r]
                _add_terms(below, more, width, target[:size], sums)
        for e in range(n):
            if target[e * width] <= ZERO / 2:
                target[e * width] = ZERO
                sums[e] = ZERO
                for j in range(1, width):
                    target[e * width + j] = 0
                continue
            for j in range(1, width):
                target[e * width + j] /= sums[e]
            sums[e] = target[e * width] + python_math.log(sums[e])
            target[e * width] = sums[e]
        total[ry] = log_sum(sums)
        if total[ry] <= ZERO / 2:
            total[ry] = ZERO
        for e in range(n):
            if not target[e * width] <= ZERO / 2:
                target[e * width] -= total[ry]
    put_total(memory, row, c)


@compiled
def _terms_backward(
    below: np.ndarray,
    more: float,
    width: int,
    new: np.ndarray,
    grad_new: np.ndarray,
    grad_below: np.ndarray,
) -> float:
    """Backpropagate through `_add_terms`; returns the gradient of `more`, from which the new total is subtracted."""
    change = more * 0
    for place in range(0, below.shape[0], width):
        if below[place] <= ZERO / 2 or new[place] <= ZERO / 2:
            continue
        share = exp(below[place] + more - new[place])
        of_term = grad_new[place]
        for j in range(1, width):
            of_term += grad_new[place + j] * (below[place + j] - new[place + j])
            grad_below[place + j] += share * grad_new[place + j]
        grad_below[place] += share * of_term
        change += share * of_term
    return change


@compiled
def move_backward(memory: Nondeterministic, grad: NondeterministicGrad, row: int, k: int, c: int) -> None:
    """Backpropagate through `move`: from the gradients of the column and of `grad.totals` to those of all before it."""
    states, symbols, width = memory.states, memory.symbols, memory.size + 1
    pairs, table, of_table = states * symbols, memory.tables[row], grad.tables[row]
    tops, total, moves = memory.tops[row, c - 1], memory.totals[row, c], memory.moves[row, k]
    first, before = first_time(memory, c), first_time(memory, c - 1)
    kept, end = (c - first) * pairs * width, (first - before) * pairs * width
    _reveal(memory, row, k, c)
    for ry in range(pairs):
        new, of_new = table[column(memory, c, ry)], of_table[column(memory, c, ry)]
        _normalised_backward(new, width, grad.totals[ry], of_new)
        for sz in range(pairs):
            place = (pairs + sz) * pairs + ry
            grad.moves[place] = _terms_backward(
                table[column(memory, c - 1, sz)][end : end + kept],
                tops[sz] + moves[place] - total[ry],
                width,
                new[:kept],
                of_new[:kept],
                of_table[column(memory, c - 1, sz)][end : end + kept],
            )
            pushed = kept + sz * width
            grad.moves[sz * pairs + ry] = of_new[pushed]
            for j in range(1, width):
                grad.vector[j - 1] += of_new[pushed + j]
    for time in range(first, c - 1):
        start, size = (first - first_time(memory, time)) * pairs * width, (time - first + 1) * pairs * width
        for uy in range(pairs):
            for r in range(states):
                ry, place = r * symbols + uy % symbols, ((time - first) * pairs + uy) * states + r
                change = _terms_backward(
                    table[column(memory, time, uy)][start : start + size],
                    memory.revealed[place] - total[ry],
                    width,
                    table[column(memory, c, ry)][:size],
                    of_table[column(memory, c, ry)][:size],
                    of_table[column(memory, time, uy)][start : start + size],
                )
                _reveal_backward(memory, grad, row, k, c, (time - first) * pairs + uy, r, change)


@compiled
def _normalised_backward(new: np.ndarray, width: int, grad_total: float, grad_new: np.ndarray) -> None:
    """Turn the gradients of the logarithms of a column's shares, and of that of its total, into those of the sums."""
    more = grad_total
    for place in range(0, new.shape[0], width):
        more -= grad_new[place]
    for place in range(0, new.shape[0], width):
        if new[place] <= ZERO / 2:
            grad_new[place] = 0
        else:
            grad_new[place] += more * exp(new[place])


@compiled
def _reveal_backward(
    memory: Nondeterministic,
    grad: NondeterministicGrad,
    row: int,
    k: int,
    c: int,
    place: int,
    r: int,
    change: float,
) -> None:
    """Backpropagate through `_reveal`, at one place."""
    states, pairs, width = memory.states, memory.states * memory.symbols, memory.size + 1
    tops, pops = memory.tops[row, c - 1], memory.moves[row, k, 2 * pairs * pairs :]
    start = (first_time(memory, c) + 1 - first_time(memory, c - 1)) * pairs * width + place * width
    revealed = memory.revealed[place * states + r]
    if revealed <= ZERO / 2:
        return
    for sz in range(pairs):
        below = memory.tables[row][column(memory, c - 1, sz)][start]
        share = change * exp(below + (tops[sz] + pops[sz * states + r]) - revealed)
        grad.tables[row][column(memory, c - 1, sz)][start] += share
        grad.moves[2 * pairs * pairs + sz * states + r] += share
