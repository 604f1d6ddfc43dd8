"""The gradients of a controller's inputs and matrices, for many steps at once: products with what the steps kept."""

from __future__ import annotations

import numpy as np

from .compilation import compiled
from .controller import Grads, Layers, Parameters, Running, Sequence
from .gemm import ZERO, add_transposed_product, multiply_add
from .rows import clear


@compiled
def _add_to_column(matrix: np.ndarray, column: int, grad: np.ndarray) -> None:
    for j in range(matrix.shape[0]):
        matrix[j, column] += grad[j]


@compiled
def project_backward(start: int, stop: int, weights: Parameters, room: Grads) -> None:
    """Write the gradients of the inputs of steps [start, stop) to `room.given`; zeros without layers or for symbols.

    Args:
        weights: as in `logits_backward`.
        room: `Grads` of the steps, whose `gates` are there.
    """
    _, steps, n_rows, stride = room.gates.shape
    count, columns = (stop - start) * n_rows, room.given.shape[1]
    flat_gates, flat_given = room.gates.reshape(-1), room.given.reshape(-1)
    clear(flat_given[: count * columns])
    for layer in range(weights.inputs.shape[0]):
        first = (layer * steps + start % steps) * n_rows * stride
        multiply_add(flat_gates, first, stride, count, weights.inputs[layer], flat_given, ZERO, columns)


@compiled
def _add_gradient(grads: Running, stride: int, given: np.ndarray, grad_weight: np.ndarray, room: Grads) -> None:
    """Add to a matrix's gradient [N, padded(K)].

    Args:
        grads: of products with it, flat, a row [N] at every stride.
        given: the other factor of the products [steps, R, K].
    """
    steps, n_rows, columns = given.shape
    n, rows, flat = steps * n_rows, grad_weight.shape[0], given.reshape(-1)
    add_transposed_product(grads, stride, flat, columns, n, rows, columns, grad_weight, room.packing)


@compiled
def collect(start: int, stop: int, sequence: Sequence, layers: Layers, grad_weights: Parameters, room: Grads) -> None:
    """Add up the gradients of all matrices, for steps [start, stop) that fill `room`.

    Args:
        layers: as the way forward left them.
        grad_weights: `Parameters` of gradients, whose matrices have padded rows, but for `symbols`; added to.
        room: `Grads` of the steps.
    """
    n_layers, steps, n_rows, stride = room.gates.shape
    ids, active = sequence.ids, sequence.active
    for layer in range(n_layers):
        grad_gates = room.gates.reshape(-1)[layer * steps * n_rows * stride :]
        if layer < grad_weights.inputs.shape[0]:
            _add_gradient(grad_gates, stride, layers.inputs[start:stop], grad_weights.inputs[layer], room)
        if layer == 0:
            _add_gradient(grad_gates, stride, layers.first[start:stop], grad_weights.first, room)
        else:
            given = layers.rest[layer - 1, start:stop]
            _add_gradient(grad_gates, stride, given, grad_weights.rest[layer - 1], room)
        if layer < grad_weights.symbols.shape[0]:
            for t in range(start, stop):
                for row in range(n_rows):
                    if active.shape[1] == 0 or active[row, t]:
                        _add_to_column(grad_weights.symbols[layer], ids[row, t], room.gates[layer, t - start, row])
    logits, states = room.logits.reshape(-1), room.states.reshape(-1)
    _add_gradient(logits, room.logits.shape[2], layers.tops[start:stop], grad_weights.controls, room)
    if layers.readings.shape[2] > 0:
        _add_gradient(states, room.states.shape[2], layers.readings[start:stop], grad_weights.entry, room)
