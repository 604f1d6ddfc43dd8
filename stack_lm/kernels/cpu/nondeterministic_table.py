"""The table of a nondeterministic stack: its columns, one per time."""

from __future__ import annotations

import math as python_math
from typing import NamedTuple

import numpy as np

from .compilation import compiled
from .math import exp
from .rows import squash

ZERO = -1e30  # the logarithm of 0, as in `memory.nondeterministic`


class Nondeterministic(NamedTuple):
    """Nondeterministic stacks of R sequences; P = Q * S, C times in all, W = m + 1, A logits of moves.

    Times count from the first of the given state. Column c has P blocks, one for each state and top at time c, with W
    numbers for each time i from `first_time` to c and each state and top at the time before i.

    Attributes:
        states, symbols, size: Q, S, m.
        window: D, or a number larger than C.
        normalize, read_states: as in `memory.nondeterministic`.
        given: times on entry.
        value_kind: the activation of the vector.
        first: the table on entry, as logarithms and vectors [R, N_0, N_0, P, P, W].
        starts: of the columns in a table [C + 1].
        steps: number of steps taken by each sequence [R]; zeros on entry, then counted.
        risky: whether a sequence may have lost runs that matter [R].
        lost: the logarithm of the fraction of all runs that may have been lost [R].
        tables: probabilities, and vectors times probabilities [R, starts[C]].
        tops: log probabilities of state and top at each time [R, C, P]; written.
        totals: their logarithms before they were normalised [R, C, P]; likewise.
        moves, vectors: of the steps taken [R, T, A] and [R, T, m]; likewise.
        popping, revealed, scales, logs, sums: workspace: [P * Q], [C * P * Q], [2, P], [2 P + Q + 1], [C * P].
        zero: [1], of the type used for all computation.
        under, top: the last state, of [R, N, N, P, P, W] and [R, P]; `top` is the first on entry.
    """

    states: int
    symbols: int
    size: int
    window: int
    normalize: bool
    read_states: bool
    given: int
    value_kind: int
    first: np.ndarray
    starts: np.ndarray
    steps: np.ndarray
    risky: np.ndarray
    lost: np.ndarray
    tables: np.ndarray
    tops: np.ndarray
    totals: np.ndarray
    moves: np.ndarray
    vectors: np.ndarray
    popping: np.ndarray
    revealed: np.ndarray
    scales: np.ndarray
    logs: np.ndarray
    sums: np.ndarray
    zero: np.ndarray
    under: np.ndarray
    top: np.ndarray


class NondeterministicGrad(NamedTuple):
    """Gradients of the stacks of R sequences.

    Attributes:
        under, top: of the last state on entry, of the first on return, in the first places.
        tables: of the probabilities and vectors [R, starts[C]].
        tops: of the log probabilities of state and top [R, P].
        totals, moves, vector: workspace [P], [A], [m].
    """

    under: np.ndarray
    top: np.ndarray
    tables: np.ndarray
    tops: np.ndarray
    totals: np.ndarray
    moves: np.ndarray
    vector: np.ndarray


@compiled
def count(memory: Nondeterministic, c: int) -> int:
    """The number of times in a column."""
    return min(c + 1, memory.window)


@compiled
def first_time(memory: Nondeterministic, c: int) -> int:
    """The first time in a column."""
    return c + 1 - min(c + 1, memory.window)


@compiled
def column(memory: Nondeterministic, c: int, ry: int) -> slice:
    """The index in a table of the numbers for a state and top at a time."""
    size = count(memory, c) * memory.states * memory.symbols * (memory.size + 1)
    start = memory.starts[c] + ry * size
    return slice(start, start + size)


@compiled
def log_sum(logs: np.ndarray) -> float:
    """log(sum(exp(logs)))."""
    largest = logs[0]
    for i in range(1, logs.shape[0]):
        largest = max(largest, logs[i])
    total = largest * 0
    for i in range(logs.shape[0]):
        total += exp(logs[i] - largest)
    return largest + python_math.log(total)


@compiled
def row_total(memory: Nondeterministic, moves: np.ndarray, sz: int) -> float:
    """The logarithm of the sum of the weights of all moves from a state and top."""
    states, pairs, logs = memory.states, memory.states * memory.symbols, memory.logs
    for ry in range(pairs):
        logs[ry], logs[pairs + ry] = moves[sz * pairs + ry], moves[(pairs + sz) * pairs + ry]
    for r in range(states):
        logs[2 * pairs + r] = moves[2 * pairs * pairs + sz * states + r]
    return log_sum(logs[: 2 * pairs + states])


@compiled
def load_moves(memory: Nondeterministic, row: int, k: int, own: np.ndarray) -> bool:
    """Load a step's log weights and its vector from their logits; returns whether no weight is 0 or NaN."""
    states, pairs = memory.states, memory.states * memory.symbols
    moves = memory.moves[row, k]
    possible = True
    for place in range(moves.shape[0]):
        move = own[place] + memory.zero[0]
        possible = possible and move > ZERO / 2
        moves[place] = ZERO if move < ZERO else move
    if memory.normalize:
        for sz in range(pairs):
            total = row_total(memory, moves, sz)
            for ry in range(pairs):
                moves[sz * pairs + ry] -= total
                moves[(pairs + sz) * pairs + ry] -= total
            for r in range(states):
                moves[2 * pairs * pairs + sz * states + r] -= total
    vector = memory.vectors[row, k]
    for j in range(memory.size):
        vector[j] = own[moves.shape[0] + j]
    if memory.size > 0:
        squash(vector, memory.value_kind)
    return possible


@compiled
def put_total(memory: Nondeterministic, row: int, c: int) -> float:
    """Normalise the totals of a time to probabilities; returns the logarithm of their sum."""
    total, tops = memory.totals[row, c], memory.tops[row, c]
    all_runs = log_sum(total)
    for ry in range(total.shape[0]):
        tops[ry] = ZERO if total[ry] <= ZERO / 2 else total[ry] - all_runs
    return all_runs


@compiled
def take_first(memory: Nondeterministic, grad: NondeterministicGrad, row: int) -> None:
    """Convert the gradients of the columns to those of the state on entry, in the state's form."""
    pairs, width = memory.states * memory.symbols, memory.size + 1
    for ry in range(pairs):
        grad.top[row, ry] = grad.tops[row, ry]
    for c in range(memory.given):
        for ry in range(pairs):
            below, of_below = memory.tables[row][column(memory, c, ry)], grad.tables[row][column(memory, c, ry)]
            for i in range(memory.given):
                for qx in range(pairs):
                    target, place = grad.under[row, i, c, qx, ry], (i * pairs + qx) * width
                    if i > c:
                        for j in range(width):
                            target[j] = 0
                        continue
                    change = of_below[place] * below[place]
                    for j in range(1, width):
                        change += of_below[place + j] * below[place + j]
                        target[j] = of_below[place + j] * below[place]
                    target[0] = change
