"""The nondeterministic stack in real numbers: its steps are sums of rows. See `nondeterministic` for the underflow."""

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
    row_total,
)
from .rows import add_multiple, add_two, clear, dot, put_multiple

# The logarithm of a step's possible loss, and the probability below which nothing is kept.
LOST, TINY = -640.0, 1e-290


@compiled
def _scale_pops(memory: Nondeterministic, row: int, k: int, c: int) -> None:
    """The weights of pops from each state and top with their probability, and of those that they reveal at every time.

    For each state they go to, they are parts of the largest, whose logarithms are the first `scales`."""
    states, pairs, width = memory.states, memory.states * memory.symbols, memory.size + 1
    tops, pops = memory.tops[row, c - 1], memory.moves[row, k, 2 * pairs * pairs :]
    for r in range(states):
        largest = tops[0] + pops[r]
        for sz in range(1, pairs):
            largest = max(largest, tops[sz] + pops[sz * states + r])
        memory.scales[0, r] = largest
        for sz in range(pairs):
            memory.popping[sz * states + r] = exp(tops[sz] + pops[sz * states + r] - largest)
    first, before = first_time(memory, c), first_time(memory, c - 1)
    n = (c - 1 - first) * pairs
    revealed = memory.revealed[: n * states]
    clear(revealed)
    for sz in range(pairs):
        below = memory.tables[row][column(memory, c - 1, sz)][(first + 1 - before) * pairs * width :]
        for place in range(n):
            for r in range(states):
                revealed[place * states + r] += below[place * width] * memory.popping[sz * states + r]


@compiled
def move(memory: Nondeterministic, row: int, k: int, c: int) -> None:
    """Compute the column of a new time, and its `lost`."""
    states, symbols, width = memory.states, memory.symbols, memory.size + 1
    pairs, table = states * symbols, memory.tables[row]
    tops, total, moves = memory.tops[row, c - 1], memory.totals[row, c], memory.moves[row, k]
    first, before = first_time(memory, c), first_time(memory, c - 1)
    _scale_pops(memory, row, k, c)
    for ry in range(pairs):
        clear(table[column(memory, c, ry)])
    for time in range(first, c - 1):
        start, n = (first - first_time(memory, time)) * pairs * width, (time - first + 1) * pairs * width
        revealed = memory.revealed[(time - first) * pairs * states :]
        for y in range(symbols):
            for u in range(0, states - 1, 2):  # two at a time, which takes half of the loads and stores
                one, other = u * symbols + y, (u + 1) * symbols + y
                below, further = table[column(memory, time, one)][start:], table[column(memory, time, other)][start:]
                for r in range(states):
                    target = table[column(memory, c, r * symbols + y)][:n]
                    add_two(target, below, revealed[one * states + r], further, revealed[other * states + r])
            if states % 2 == 1:
                one = (states - 1) * symbols + y
                below = table[column(memory, time, one)][start:]
                for r in range(states):
                    add_multiple(table[column(memory, c, r * symbols + y)][:n], below, revealed[one * states + r])
    kept, end = (c - first) * pairs * width, (first - before) * pairs * width
    for sz in range(pairs):  # how probable it is that the top is over what is remembered
        memory.scales[1, sz] = sum_of(table[column(memory, c - 1, sz)][end : end + kept], width)
    highest = memory.scales[0, 0]  # of what may be lost
    for ry in range(pairs):
        below, scale = table[column(memory, c, ry)], memory.scales[0, ry // symbols]
        highest = max(highest, scale)
        of_pops = sum_of(below, width)
        total[ry] = _total(memory, moves, tops, ry, of_pops, scale)
        factor = exp(scale - total[ry]) if of_pops > TINY else of_pops * 0
        put_multiple(below[:kept], below, factor)
        for sz in range(pairs):
            replaced = tops[sz] + moves[(pairs + sz) * pairs + ry]
            if memory.scales[1, sz] > TINY:
                row_before = table[column(memory, c - 1, sz)][end : end + kept]
                add_multiple(below[:kept], row_before, exp(replaced - total[ry]))
            elif memory.scales[1, sz] > 0:
                highest = max(highest, replaced)
            pushed = exp(tops[sz] + moves[sz * pairs + ry] - total[ry])
            below[kept + sz * width] = pushed
            for j in range(1, width):
                below[kept + sz * width + j] = pushed * memory.vectors[row, k, j - 1]
    all_runs = put_total(memory, row, c)
    now = LOST + max(highest - all_runs, highest * 0)
    then = memory.lost[row] + _largest_row(memory, moves) - all_runs
    memory.lost[row] = max(now, then) + python_math.log1p(exp(-abs(now - then)))


@compiled
def _total(
    memory: Nondeterministic, moves: np.ndarray, tops: np.ndarray, ry: int, of_pops: float, scale: float
) -> float:
    """The logarithm of the weight of all runs that reach a state and top."""
    pairs = tops.shape[0]
    logs = memory.logs
    for sz in range(pairs):
        logs[sz] = tops[sz] + moves[sz * pairs + ry]
        share = memory.scales[1, sz]
        logs[pairs + sz] = tops[sz] + moves[(pairs + sz) * pairs + ry]
        logs[pairs + sz] += python_math.log(share) if share > TINY else ZERO
    logs[2 * pairs] = scale + python_math.log(of_pops) if of_pops > TINY else ZERO
    return log_sum(logs[: 2 * pairs + 1])


@compiled
def _largest_row(memory: Nondeterministic, moves: np.ndarray) -> float:
    """The logarithm of the largest sum of the weights of the moves from any state and top."""
    largest = row_total(memory, moves, 0)
    for sz in range(1, memory.states * memory.symbols):
        largest = max(largest, row_total(memory, moves, sz))
    return largest


@compiled(any_order=True)
def sum_of(numbers: np.ndarray, width: int) -> float:
    """The sum of every `width`-th number from the first on."""
    total = numbers.dtype.type(0)
    for place in range(0, numbers.shape[0], width):
        total += numbers[place]
    return total


@compiled
def move_backward(memory: Nondeterministic, grad: NondeterministicGrad, row: int, k: int, c: int) -> None:
    """Backpropagate through `move`: from the gradients of the column and of `grad.totals` to those of all before it."""
    states, symbols, width = memory.states, memory.symbols, memory.size + 1
    pairs, table, of_table = states * symbols, memory.tables[row], grad.tables[row]
    tops, total, moves = memory.tops[row, c - 1], memory.totals[row, c], memory.moves[row, k]
    first, before = first_time(memory, c), first_time(memory, c - 1)
    kept, end = (c - first) * pairs * width, (first - before) * pairs * width
    _scale_pops(memory, row, k, c)
    for sz in range(pairs):
        memory.logs[sz] = sum_of(table[column(memory, c - 1, sz)][end : end + kept], width)
    for ry in range(pairs):
        below, of_below = table[column(memory, c, ry)], of_table[column(memory, c, ry)]
        more = grad.totals[ry] - dot(of_below, below)
        for place in range(0, of_below.shape[0], width):
            of_below[place] += more
        memory.scales[1, ry] = exp(memory.scales[0, ry // symbols] - total[ry])
        if memory.scales[1, ry] > 1 / TINY:
            memory.scales[1, ry] = 0
        for sz in range(pairs):
            of_pushed = of_below[kept + sz * width : kept + (sz + 1) * width]
            pushed = exp(tops[sz] + moves[sz * pairs + ry] - total[ry])
            change = of_pushed[0]
            for j in range(1, width):
                change += of_pushed[j] * memory.vectors[row, k, j - 1]
                grad.vector[j - 1] += pushed * of_pushed[j]
            grad.moves[sz * pairs + ry] = pushed * change
            place = (pairs + sz) * pairs + ry
            if memory.logs[sz] <= TINY:
                grad.moves[place] = 0
                continue
            replaced = exp(tops[sz] + moves[place] - total[ry])
            grad.moves[place] = replaced * dot(of_below[:kept], table[column(memory, c - 1, sz)][end : end + kept])
            add_multiple(of_table[column(memory, c - 1, sz)][end : end + kept], of_below, replaced)
    for time in range(first, c - 1):
        start, n = (first - first_time(memory, time)) * pairs * width, (time - first + 1) * pairs * width
        revealed, scales = memory.revealed[(time - first) * pairs * states :], memory.scales[1]
        for uy in range(pairs):
            place, y = uy * states, uy % symbols
            below = table[column(memory, time, uy)][start : start + n]
            of_revealed = of_table[column(memory, time, uy)][start : start + n]
            for r in range(0, states - 1, 2):
                one, other = r * symbols + y, (r + 1) * symbols + y
                revealed[place + r], revealed[place + r + 1] = _two_backward(
                    below,
                    of_table[column(memory, c, one)],
                    revealed[place + r] * scales[one],
                    of_table[column(memory, c, other)],
                    revealed[place + r + 1] * scales[other],
                    of_revealed,
                )
            if states % 2 == 1:
                one, place = (states - 1) * symbols + y, place + states - 1
                of_below = of_table[column(memory, c, one)][:n]
                add_multiple(of_revealed, of_below, revealed[place] * scales[one])
                revealed[place] = dot(of_below, below)
            for r in range(states):
                revealed[uy * states + r] *= scales[r * symbols + y]
    _pops_backward(memory, grad, row, c)


@compiled(any_order=True)
def _two_backward(
    source: np.ndarray, of_one: np.ndarray, one: float, of_other: np.ndarray, other: float, grad: np.ndarray
) -> tuple[float, float]:
    """grad += of_one * one + of_other * other; returns the sums of the products of both with `source`."""
    with_one = with_other = one * 0
    for j in range(source.shape[0]):
        with_one += of_one[j] * source[j]
        with_other += of_other[j] * source[j]
        grad[j] += of_one[j] * one + of_other[j] * other
    return with_one, with_other


@compiled
def _pops_backward(memory: Nondeterministic, grad: NondeterministicGrad, row: int, c: int) -> None:
    """Backpropagate through `_scale_pops`, from the gradients of what is revealed, which are where that was."""
    states, pairs, width = memory.states, memory.states * memory.symbols, memory.size + 1
    first, before = first_time(memory, c), first_time(memory, c - 1)
    n, start = (c - 1 - first) * pairs, (first + 1 - before) * pairs * width
    of_pops = grad.moves[2 * pairs * pairs :]
    for sz in range(pairs):
        below = memory.tables[row][column(memory, c - 1, sz)][start:]
        of_below = grad.tables[row][column(memory, c - 1, sz)][start:]
        for r in range(states):
            popping = memory.popping[sz * states + r]
            change = popping * 0
            for place in range(n):
                of_revealed = memory.revealed[place * states + r] * popping
                change += of_revealed * below[place * width]
                of_below[place * width] += of_revealed
            of_pops[sz * states + r] = change
