"""The nondeterministic stack, a step of one sequence forwards and backwards, in real numbers where that is safe.

See `stack_lm.memory.nondeterministic` for the definition. A column of the table holds the probabilities of a time's
`under`: for each state and top of that time those of what is below, by the time of it, in a row of numbers; the vectors
follow each probability, multiplied by it. So a pop adds multiples of whole rows of older columns to those of the new.

Probabilities below about 1e-290 are lost. That is harmless unless later weights favour what was lost by as much. Let
`lost` be the weight of all runs that may have been lost, as a part of the weight of all. At each step it grows at most
by the largest sum of weights that any state and top has, and all runs by what they do. Where this bound comes near the
precision of float64, the sequence is done again, and to its end, in logarithms (`nondeterministic_exact`).
"""

from __future__ import annotations

import math as python_math

import numpy as np

from . import nondeterministic_exact as exact
from .compilation import compiled
from .math import exp, log
from .nondeterministic_table import (
    Nondeterministic,
    NondeterministicGrad,
    column,
    first_time,
    load_moves,
    log_sum,
    put_total,
    take_first,
)
from .rows import add_multiple, add_two, clear, copy, dot, put_multiple, squash_backward

# Logarithms: of what a step may lose, with what is not worth to be kept; and of the part of all runs that may be lost.
_LOST, _TINY, _MAY_BE_LOST = -640.0, 1e-290, -35.0


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
    memory.lost[row] = _LOST


@compiled
def finish(memory: Nondeterministic, row: int) -> None:
    """Hand the last state of a sequence over."""
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
            if memory.exact[row]:
                _copy_every(logs[: below.shape[0] // width], below, width)
            else:
                _take_logs(logs[: below.shape[0] // width], below, width)
            for slot in range(inside.start, inside.stop):
                for qx in range(pairs):
                    e = (slot + last - n + 1 - first) * pairs + qx
                    target = memory.under[row, slot, place, qx, ry]
                    target[0] = logs[e]
                    for j in range(1, width):
                        value = below[e * width + j]
                        target[j] = value if memory.exact[row] or value == 0 else value / below[e * width]


@compiled
def _hand_nothing_over(target: np.ndarray) -> None:
    for qx in range(target.shape[0]):
        for ry in range(target.shape[1]):
            clear(target[qx, ry])
            target[qx, ry, 0] = exact.ZERO


@compiled
def _copy_every(target: np.ndarray, source: np.ndarray, width: int) -> None:
    """target = every `width`-th number of source."""
    for e in range(target.shape[0]):
        target[e] = source[e * width]


@compiled
def _take_logs(target: np.ndarray, source: np.ndarray, width: int) -> None:
    """target = log(every `width`-th number of source); NaN stays."""
    for e in range(target.shape[0]):
        share = source[e * width]
        found = log(share) if share > 0 else exact.ZERO
        target[e] = found if share == share else share


@compiled
def step(memory: Nondeterministic, t: int, row: int, own: np.ndarray, reading: np.ndarray) -> None:
    """Make all moves, and read.

    Args:
        own: the logits of the moves and of the vector.
        reading: written.
    """
    k = memory.steps[row]
    memory.steps[row] = k + 1
    c = memory.given + k
    possible = load_moves(memory, row, k, own)
    if not memory.exact[row]:
        if possible:
            _move(memory, row, k, c)
        if not (possible and memory.lost[row] < _MAY_BE_LOST):  # or NaN
            memory.exact[row] = True
            exact.begin(memory, row)
            for before in range(k):
                exact.move(memory, row, before, memory.given + before)
    if memory.exact[row]:
        exact.move(memory, row, k, c)
    _read(memory, row, c, reading)


@compiled
def _scale_pops(memory: Nondeterministic, row: int, k: int, c: int) -> None:
    """The weights of pops from each state and top with their probability, for each state they go to as parts of the
    largest, whose logarithms are the first `scales`; and what they reveal, for every time."""
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
def _move(memory: Nondeterministic, row: int, k: int, c: int) -> None:
    """The column of a new time, and its `lost`."""
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
        memory.scales[1, sz] = _sum(table[column(memory, c - 1, sz)][end : end + kept], width)
    for ry in range(pairs):
        below, scale = table[column(memory, c, ry)], memory.scales[0, ry // symbols]
        of_pops = _sum(below, width)
        total[ry] = _total(memory, moves, tops, ry, of_pops, scale)
        factor = exp(scale - total[ry]) if of_pops > _TINY else of_pops * 0
        put_multiple(below[:kept], below, factor)
        for sz in range(pairs):
            replaced = exp(tops[sz] + moves[(pairs + sz) * pairs + ry] - total[ry])
            add_multiple(below[:kept], table[column(memory, c - 1, sz)][end : end + kept], replaced)
            pushed = exp(tops[sz] + moves[sz * pairs + ry] - total[ry])
            below[kept + sz * width] = pushed
            for j in range(1, width):
                below[kept + sz * width + j] = pushed * memory.vectors[row, k, j - 1]
    all_runs = put_total(memory, row, c)
    highest = memory.scales[0, 0]
    for r in range(1, states):
        highest = max(highest, memory.scales[0, r])
    now = _LOST + max(highest - all_runs, highest * 0)
    then = memory.lost[row] + _largest_row(memory, moves) - all_runs
    memory.lost[row] = max(now, then) + python_math.log1p(exp(-abs(now - then)))


@compiled
def _total(
    memory: Nondeterministic, moves: np.ndarray, tops: np.ndarray, ry: int, of_pops: float, scale: float
) -> float:
    """The logarithm of the weight of all runs that come to a state and top."""
    pairs = tops.shape[0]
    logs = memory.logs
    for sz in range(pairs):
        logs[sz] = tops[sz] + moves[sz * pairs + ry]
        share = memory.scales[1, sz]
        logs[pairs + sz] = tops[sz] + moves[(pairs + sz) * pairs + ry]
        logs[pairs + sz] += python_math.log(share) if share > 0 else exact.ZERO
    logs[2 * pairs] = scale + python_math.log(of_pops) if of_pops > _TINY else exact.ZERO
    return log_sum(logs[: 2 * pairs + 1])


@compiled
def _largest_row(memory: Nondeterministic, moves: np.ndarray) -> float:
    """The logarithm of the largest sum of the weights of the moves from any state and top."""
    states, pairs = memory.states, memory.states * memory.symbols
    largest = moves[0]
    for sz in range(pairs):
        logs = memory.logs
        for ry in range(pairs):
            logs[ry], logs[pairs + ry] = moves[sz * pairs + ry], moves[(pairs + sz) * pairs + ry]
        for r in range(states):
            logs[2 * pairs + r] = moves[2 * pairs * pairs + sz * states + r]
        found = log_sum(logs[: 2 * pairs + states])
        largest = found if sz == 0 else max(largest, found)
    return largest


@compiled(any_order=True)
def _sum(numbers: np.ndarray, width: int) -> float:
    """The sum of every `width`-th number from the first on."""
    total = numbers.dtype.type(0)
    for place in range(0, numbers.shape[0], width):
        total += numbers[place]
    return total


@compiled
def _mean(memory: Nondeterministic, row: int, c: int, ry: int, j: int) -> float:
    """A number of the mean vector of a top."""
    width = memory.size + 1
    below = memory.tables[row][column(memory, c, ry)]
    if not memory.exact[row]:
        return _sum(below[j:], width)
    total = below.dtype.type(0)
    for place in range(0, below.shape[0], width):
        total += exp(below[place]) * below[place + j]
    return total


@compiled
def _read(memory: Nondeterministic, row: int, c: int, reading: np.ndarray) -> None:
    size = max(memory.size, 1)
    clear(reading)
    for ry in range(memory.states * memory.symbols):
        probability = exp(memory.tops[row, c, ry])
        start = (ry if memory.read_states else ry % memory.symbols) * size
        if memory.size == 0:
            reading[start] += probability
        for j in range(memory.size):
            reading[start + j] += probability * _mean(memory, row, c, ry, j + 1)


@compiled
def begin_backward(memory: Nondeterministic, grad: NondeterministicGrad, row: int) -> None:
    """Put the gradients of the last state where the last step looks for them."""
    pairs, width, n = memory.states * memory.symbols, memory.size + 1, grad.under.shape[1]
    last, logs = memory.given + memory.steps[row] - 1, memory.exact[row]
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
                        of_share -= zero_unless(not logs and share > _TINY, change[j] * below[start + j] / share)
                        of_below[start + j] += change[j] if logs else zero_unless(share > _TINY, change[j] / share)
                    of_below[start] += of_share if logs else zero_unless(share > _TINY, of_share / share)
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
    """Backwards through `step`; `memory.steps` is counted back.

    Args:
        own: not looked at.
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
    if memory.exact[row]:
        exact.move_backward(memory, grad, row, k, c)
    else:
        _move_backward(memory, grad, row, k, c)
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
    """From the gradients of the moves to those of their logits, and of the probabilities of the tops they are made
    from: a row's moves all have that as a factor."""
    states, pairs = memory.states, memory.states * memory.symbols
    moves, of_moves = memory.moves[row, k], grad.moves
    copy(grad_logits, of_moves)
    for sz in range(pairs):
        pushes, replacements = (
            slice(sz * pairs, (sz + 1) * pairs),
            slice((pairs + sz) * pairs, (pairs + sz + 1) * pairs),
        )
        pops = slice(2 * pairs * pairs + sz * states, 2 * pairs * pairs + (sz + 1) * states)
        of_row = _sum(of_moves[pushes], 1) + _sum(of_moves[replacements], 1) + _sum(of_moves[pops], 1)
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
    """Backwards through `_read`, to the probabilities of tops and to the column."""
    size, width, logs = max(memory.size, 1), memory.size + 1, memory.exact[row]
    for ry in range(memory.states * memory.symbols):
        probability = exp(memory.tops[row, c, ry])
        start = (ry if memory.read_states else ry % memory.symbols) * size
        if memory.size == 0:
            grad.tops[row, ry] += probability * grad_reading[start]
            continue
        below, of_below = memory.tables[row][column(memory, c, ry)], grad.tables[row][column(memory, c, ry)]
        for j in range(size):
            change = probability * grad_reading[start + j]
            grad.tops[row, ry] += change * _mean(memory, row, c, ry, j + 1)
            for place in range(0, below.shape[0], width):
                if logs:
                    of_share = change * exp(below[place])
                    of_below[place + 1 + j] += of_share
                    of_below[place] += of_share * below[place + 1 + j]
                else:
                    of_below[place + 1 + j] += change


@compiled
def _move_backward(memory: Nondeterministic, grad: NondeterministicGrad, row: int, k: int, c: int) -> None:
    """Backwards through `_move`: from the gradients of the column and of `grad.totals` to those of all before it."""
    states, symbols, width = memory.states, memory.symbols, memory.size + 1
    pairs, table, of_table = states * symbols, memory.tables[row], grad.tables[row]
    tops, total, moves = memory.tops[row, c - 1], memory.totals[row, c], memory.moves[row, k]
    first, before = first_time(memory, c), first_time(memory, c - 1)
    kept, end = (c - first) * pairs * width, (first - before) * pairs * width
    _scale_pops(memory, row, k, c)
    for ry in range(pairs):
        below, of_below = table[column(memory, c, ry)], of_table[column(memory, c, ry)]
        more = grad.totals[ry] - dot(of_below, below)
        for place in range(0, of_below.shape[0], width):
            of_below[place] += more
        memory.scales[1, ry] = exp(memory.scales[0, ry // symbols] - total[ry])
        if memory.scales[1, ry] > 1 / _TINY:
            memory.scales[1, ry] = 0
        for sz in range(pairs):
            of_pushed = of_below[kept + sz * width : kept + (sz + 1) * width]
            pushed = exp(tops[sz] + moves[sz * pairs + ry] - total[ry])
            change = of_pushed[0]
            for j in range(1, width):
                change += of_pushed[j] * memory.vectors[row, k, j - 1]
                grad.vector[j - 1] += pushed * of_pushed[j]
            grad.moves[sz * pairs + ry] = pushed * change
            replaced = exp(tops[sz] + moves[(pairs + sz) * pairs + ry] - total[ry])
            place = (pairs + sz) * pairs + ry
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
    """Backwards through `_scale_pops`, from the gradients of what is revealed, which are where that was."""
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


@compiled
def skip(memory: Nondeterministic, t: int, row: int) -> None:
    """A step that a sequence does not take."""
