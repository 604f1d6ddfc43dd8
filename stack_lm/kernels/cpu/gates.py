"""The pointwise part of a controller's layer: from the sums of its gates to its next state, and back.

See `stack_lm.kernels.layout` for the blocks of the gates.
"""

from __future__ import annotations

import numpy as np

from ..layout import ELMAN, GRU, LINEAR, LSTM, RELU_ELMAN
from .compilation import compiled
from .math import tanh
from .rows import IDENTITY, RELU, SIGMOID, TANH, clear, copy, scale, squash, squash_backward


@compiled
def _lstm_cell(gates: np.ndarray, cell: np.ndarray) -> None:
    size = cell.shape[0]
    for j in range(size):
        cell[j] = gates[size + j] * cell[j] + gates[j] * gates[2 * size + j]


@compiled
def _lstm_hidden(out: np.ndarray, cell: np.ndarray, hidden: np.ndarray) -> None:
    for j in range(cell.shape[0]):
        hidden[j] = tanh(cell[j])
    scale(hidden, out)


@compiled
def _lstm_hidden_backward(
    out: np.ndarray, cell: np.ndarray, grad: np.ndarray, grad_cell: np.ndarray, grad_out: np.ndarray
) -> None:
    one = grad.dtype.type(1)
    for j in range(cell.shape[0]):
        squashed = tanh(cell[j])
        grad_out[j] = grad[j] * squashed * out[j] * (one - out[j])
        grad_cell[j] += grad[j] * out[j] * (one - squashed * squashed)


@compiled
def _lstm_cell_backward(
    gates: np.ndarray, cell_before: np.ndarray, grad_cell: np.ndarray, grad_gates: np.ndarray
) -> None:
    size = grad_cell.shape[0]
    one = grad_cell.dtype.type(1)
    for j in range(size):
        into, forget, new, grad = gates[j], gates[size + j], gates[2 * size + j], grad_cell[j]
        grad_gates[j] = grad * new * into * (one - into)
        grad_gates[size + j] = grad * cell_before[j] * forget * (one - forget)
        grad_gates[2 * size + j] = grad * into * (one - new * new)
        grad_cell[j] = grad * forget


@compiled
def _gru_new(gates: np.ndarray, size: int) -> None:
    for j in range(size):
        gates[2 * size + j] = tanh(gates[2 * size + j] + gates[j] * gates[3 * size + j])


@compiled
def _gru_hidden(gates: np.ndarray, before: np.ndarray, hidden: np.ndarray) -> None:
    size = hidden.shape[0]
    for j in range(size):
        new = gates[2 * size + j]
        hidden[j] = new + gates[size + j] * (before[j] - new)


@compiled
def _gru_backward(gates: np.ndarray, hidden_before: np.ndarray, grad: np.ndarray, grad_gates: np.ndarray) -> None:
    size = grad.shape[0]
    one = grad.dtype.type(1)
    for j in range(size):
        reset, update, new = gates[j], gates[size + j], gates[2 * size + j]
        inside = grad[j] * (one - update) * (one - new * new)
        grad_gates[j] = inside * gates[3 * size + j] * reset * (one - reset)
        grad_gates[size + j] = grad[j] * (hidden_before[j] - new) * update * (one - update)
        grad_gates[2 * size + j] = inside
        grad_gates[3 * size + j] = inside * reset
        grad[j] *= update


@compiled
def _squashing(kind: int) -> np.int64:
    """The function of a controller with one block of gates."""
    if kind == LINEAR:
        return IDENTITY
    if kind == ELMAN:
        return TANH
    return RELU if kind == RELU_ELMAN else SIGMOID


@compiled
def pointwise(kind: int, gates: np.ndarray, cell: np.ndarray, before: np.ndarray, hidden: np.ndarray) -> None:
    """Turn the gates' sums [blocks * H] into their activations, in place, and compute the next state.

    Args:
        cell: [H] of an LSTM, in place.
        before: the previous state as the gates received it [H], of a GRU.
        hidden: the next state [H]; written.
    """
    size = hidden.shape[0]
    if kind == LSTM:
        squash(gates[: 2 * size], SIGMOID)
        squash(gates[2 * size : 3 * size], TANH)
        squash(gates[3 * size :], SIGMOID)
        _lstm_cell(gates, cell)
        _lstm_hidden(gates[3 * size :], cell, hidden)
    elif kind == GRU:
        squash(gates[: 2 * size], SIGMOID)
        _gru_new(gates, size)
        _gru_hidden(gates, before, hidden)
    else:
        squash(gates, _squashing(kind))
        copy(hidden, gates)


@compiled
def pointwise_backward(
    kind: int,
    gates: np.ndarray,
    cell: np.ndarray,
    cell_before: np.ndarray,
    hidden_before: np.ndarray,
    grad: np.ndarray,
    grad_cell: np.ndarray,
    grad_gates: np.ndarray,
) -> None:
    """Backpropagate through `pointwise`.

    Args:
        gates: activations [blocks * H].
        cell, cell_before: [H] of an LSTM, after and before the step.
        hidden_before: [H], the state before the step.
        grad: of the next state [H]; on return, the direct part for the previous state (of a GRU).
        grad_cell: of the next cell [H]; on return, of the previous.
        grad_gates: of the gates' sums [blocks * H], written.
    """
    size = grad.shape[0]
    if kind == LSTM:
        _lstm_hidden_backward(gates[3 * size :], cell, grad, grad_cell, grad_gates[3 * size :])
        _lstm_cell_backward(gates, cell_before, grad_cell, grad_gates)
        clear(grad)
    elif kind == GRU:
        _gru_backward(gates, hidden_before, grad, grad_gates)
    else:
        squash_backward(gates, _squashing(kind), grad, grad_gates)
        clear(grad)
