"""The gradients of a controller's inputs and matrices, for many steps at once: products with what the steps kept."""

from __future__ import annotations

import numpy as np

from .compilation import compiled
from .controller import Grads, Layers, Parameters, Sequence, one_product, reached
from .gemm import add_transposed_product, multiply_add
from .rows import clear, copy


@compiled
def _add_to_column(matrix: np.ndarray, column: int, grad: np.ndarray) -> None:
    for j in range(matrix.shape[0]):
        matrix[j, column] += grad[j]


@compiled
def project_backward(start: int, stop: int, weights: Parameters, active: np.ndarray, room: Grads) -> None:
    """Write the gradients of the inputs of steps [start, stop) to `room.given`; zeros without layers or for symbols.

    Args:
        weights: as in `logits_backward`.
        active: as in `Sequence`.
        room: `Grads` of the steps, whose `gates` are there.
    """
    _, steps, n_rows, stride = room.gates.shape
    count, columns = (stop - start) * n_rows, room.given.shape[1]
    flat_gates, flat_given = room.gates.reshape(-1), room.given.reshape(-1)
    clear(flat_given[: count * columns])
    for layer in range(weights.inputs.shape[0]):
        t = start
        while t < stop:
            first, into = (layer * steps + t % steps) * n_rows * stride, (t - start) * n_rows * columns
            t, rows = one_product(t, stop, active, n_rows)
            multiply_add(flat_gates, first, stride, rows, weights.inputs[layer], flat_given, into, columns)


@compiled
def _gather(parts: np.ndarray, start: int, active: np.ndarray, target: np.ndarray, stride: int) -> None:
    """Put the rows of steps [S, R, K] that are reached one after another: in place, or elsewhere.

    Args:
        target: flat, from row to row the stride.
    """
    place = 0
    for t in range(parts.shape[0]):
        for row in range(reached(start + t, active, parts.shape[1])):
            copy(target[place : place + parts.shape[2]], parts[t, row])
            place += stride


@compiled
def _add_gradient(
    grads: np.ndarray, n: int, given: np.ndarray, grad_weight: np.ndarray, start: int, active: np.ndarray, room: Grads
) -> None:
    """Add to a matrix's gradient [N, padded(K)].

    Args:
        grads: of products with it [S, R, padded(N)], n rows one after another.
        given: the other factor of the products, at these steps [steps, R, K]; of which those n that are reached count.
    """
    columns, rows = given.shape[2], grad_weight.shape[0]
    flat, stride = given.reshape(-1), columns
    if n < given.shape[0] * given.shape[1]:
        flat, stride = room.given.reshape(-1), room.given.shape[1]
        _gather(given, start, active, flat, stride)
    width = grads.shape[2]
    add_transposed_product(grads.reshape(-1), width, flat, stride, n, rows, columns, grad_weight, room.packing)


@compiled
def collect(start: int, stop: int, sequence: Sequence, layers: Layers, grad_weights: Parameters, room: Grads) -> None:
    """Add up the gradients of all matrices, for steps [start, stop) that fill `room`, which is then used up.

    Args:
        layers: as the way forward left them.
        grad_weights: `Parameters` of gradients, whose matrices have padded rows, but for `symbols`; added to.
        room: `Grads` of the steps.
    """
    n_layers, _, n_rows, _ = room.gates.shape
    ids, active, n, adds = sequence.ids, sequence.active, 0, layers.readings.shape[2] > 0
    for t in range(start, stop):
        n += reached(t, active, n_rows)
        for layer in range(grad_weights.symbols.shape[0]):
            for row in range(n_rows):
                if active.shape[1] == 0 or active[row, t]:
                    _add_to_column(grad_weights.symbols[layer], ids[row, t], room.gates[layer, t - start, row])
    if n < (stop - start) * n_rows:
        for layer in range(n_layers):
            gates = room.gates[layer]
            _gather(gates[: stop - start], start, active, gates.reshape(-1), gates.shape[2])
        _gather(room.logits[: stop - start], start, active, room.logits.reshape(-1), room.logits.shape[2])
        if adds:
            _gather(room.states[: stop - start], start, active, room.states.reshape(-1), room.states.shape[2])
    for layer in range(n_layers):
        grads = room.gates[layer]
        if layer < grad_weights.inputs.shape[0]:
            given = layers.inputs[start:stop]
            _add_gradient(grads, n, given, grad_weights.inputs[layer], start, active, room)
        if layer == 0:
            _add_gradient(grads, n, layers.first[start:stop], grad_weights.first, start, active, room)
        else:
            given = layers.rest[layer - 1, start:stop]
            _add_gradient(grads, n, given, grad_weights.rest[layer - 1], start, active, room)
    _add_gradient(room.logits, n, layers.tops[start:stop], grad_weights.controls, start, active, room)
    if adds:
        _add_gradient(room.states, n, layers.readings[start:stop], grad_weights.entry, start, active, room)
