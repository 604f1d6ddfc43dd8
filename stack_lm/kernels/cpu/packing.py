"""Pack controllers' parameters into matrices, in compiled code: in torch it would take dozens of operations.

A layer's matrix is [from below; from the state; from the reading] by gates, so a parameter [blocks * H, inputs] is
stored as its transpose. A GRU's new-gate rows from the state are a separate block, the last (see `gates`).

All arrays have a leading model dimension, which the descriptions omit. Matrices have a second one, indexed by `place`.
Several threads pack a matrix together: each writes every `shares`-th panel, starting at `share`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..layout import GRU
from .compilation import compiled
from .gemm import ZERO
from .rows import add, copy


class LayerArrays(NamedTuple):
    """A layer's parameters; absent ones are empty.

    Attributes:
        below, state, reading: [gates * H, E], [gates * H, H] and [gates * H, D].
        bias_below, bias_state: [gates * H].
    """

    below: np.ndarray
    state: np.ndarray
    reading: np.ndarray
    bias_below: np.ndarray
    bias_state: np.ndarray


@compiled(from_python=True)
def put(
    transposed: bool, panels: np.ndarray, place: int, weight: np.ndarray, row: int, column: int, share: int, shares: int
) -> None:
    """Write a weight [N, K] or its transpose into a packed matrix, at `row` of K and `column` of N."""
    for model in range(weight.shape[0]):
        _put(transposed, panels[model, place], weight[model], row, column, share, shares)


@compiled
def _put(
    transposed: bool, panels: np.ndarray, weight: np.ndarray, row: int, column: int, share: int, shares: int
) -> None:
    n, k = weight.shape
    across, size = (column, n) if transposed else (row, k)  # the places that panels divide
    width = panels.shape[2]
    for panel in range(across // width + share, (across + size + width - 1) // width, shares):
        low, high = max(0, panel * width - across), min(size, (panel + 1) * width - across)
        place = across + low - panel * width
        if transposed:
            for i in range(k):
                for j in range(low, high):
                    panels[panel, row + i, place + j - low] = weight[j, i]
        else:
            for j in range(n):
                copy(panels[panel, column + j, place : place + high - low], weight[j, low:])


@compiled(from_python=True)
def put_layer(
    kind: int,
    transposed: bool,
    panels: np.ndarray,
    place: int,
    biases: np.ndarray,
    layer: int,
    own: LayerArrays,
    share: int,
    shares: int,
) -> None:
    """Write a layer's parameters into its packed matrix and, if that is transposed, into its bias.

    Args:
        panels: zeros; for [E + H + D, blocks * H].
        biases: zeros [L, blocks * H].
    """
    below, state, reading, bias_below, bias_state = own
    rows, behind = _rows_of_state(kind, state), below.shape[2] + state.shape[2]
    of_state = min(rows, bias_state.shape[1])
    for m in range(panels.shape[0]):
        _put(transposed, panels[m, place], below[m], ZERO, ZERO, share, shares)
        _put(transposed, panels[m, place], state[m, :rows], below.shape[2], ZERO, share, shares)
        _put(transposed, panels[m, place], state[m, rows:], below.shape[2], below.shape[1], share, shares)
        _put(transposed, panels[m, place], reading[m], behind, ZERO, share, shares)
        if share > 0 or not transposed:
            continue
        bias = biases[m, layer]
        add(bias[: bias_below.shape[1]], bias_below[m])
        add(bias[:of_state], bias_state[m])
        add(bias[bias.shape[0] - (bias_state.shape[1] - of_state) :], bias_state[m, of_state:])


@compiled
def _rows_of_state(kind: int, state: np.ndarray) -> int:
    """The number of rows from the state that share blocks with those from below: all but a GRU's new gate."""
    return state.shape[1] // 3 * 2 if kind == GRU else state.shape[1]
