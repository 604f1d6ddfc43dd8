"""The most probable run of a nondeterministic stack: the tables of `memory.viterbi`, compiled."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ...memory.nondeterministic import NondeterministicStack
from .compilation import compiled


def tables(memory: NondeterministicStack, push: Tensor, replace: Tensor, pop: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The same as `memory.viterbi.tables`."""
    steps, pairs = push.shape[:2]
    inner = np.full((steps + 1, steps + 1, pairs, pairs), -np.inf)
    best = np.full((steps + 2, pairs), -np.inf)
    best[:2, 0] = 0
    if memory.bottom == "open":
        inner[0, 0, 0, 0] = 0
    window = steps + 2 if memory.window is None else memory.window
    popped = np.empty((steps, pairs, memory.states))
    moves = [part.contiguous().numpy() for part in (push, replace, pop)]
    _fill(inner, best, *moves, popped, memory.symbols, window)
    return inner, best


@compiled(from_python=True)
def _fill(
    inner: np.ndarray,
    best: np.ndarray,
    push: np.ndarray,
    replace: np.ndarray,
    pop: np.ndarray,
    popped: np.ndarray,
    symbols: int,
    window: int,
) -> None:
    steps, pairs, states = pop.shape
    for j in range(1, steps + 1):
        first = max(0, j + 1 - window)
        for k in range(first, j - 1):
            for uy in range(pairs):
                for r in range(states):
                    most = -np.inf
                    for sz in range(pairs):
                        most = max(most, inner[k + 1, j - 1, uy, sz] + pop[j - 1, sz, r])
                    popped[k, uy, r] = most
        for i in range(first, j):
            for qx in range(pairs):
                for ry in range(pairs):
                    most = -np.inf
                    for sz in range(pairs):
                        most = max(most, inner[i, j - 1, qx, sz] + replace[j - 1, sz, ry])
                    r, y = ry // symbols, ry % symbols
                    for k in range(i, j - 1):
                        for u in range(states):
                            uy = u * symbols + y
                            most = max(most, inner[i, k, qx, uy] + popped[k, uy, r])
                    inner[i, j, qx, ry] = most
        for qx in range(pairs):
            for ry in range(pairs):
                inner[j, j, qx, ry] = push[j - 1, qx, ry]
        for i in range(first, j + 1):
            for qx in range(pairs):
                for ry in range(pairs):
                    best[j + 1, ry] = max(best[j + 1, ry], best[i, qx] + inner[i, j, qx, ry])
