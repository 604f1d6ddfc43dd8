"""A controller's layers for some sequences of a batch, forwards and backwards.

A step of a layer is a product of what it is given with its weights, and a pointwise part. What x_t gives to the gates
needs no state, so it is one product for many steps, as are the gradients of weights and inputs. What a layer was given
at each step is kept side by side for them. See `stack_lm.kernels.layout` for the blocks of the gates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from ..layout import ELMAN, GRU, LINEAR, LSTM
from .gemm import add_transposed_product, multiply_add
from .math import COMPILE, tanh
from .rows import SIGMOID, TANH, add, add_product, clear, copy, scale, squash, squash_backward


class Layers(NamedTuple):
    """What the layers of R sequences were given and made at each step, kept for the way back.

    Attributes:
        inputs: x_t [T, R, E].
        first: state and reading, which the first layer was given [T, R, H + D].
        rest: layer below and state, which the others were given [L - 1, T, R, 2 H].
        gates: [L, T, R, padded(blocks * H)].
        cells: of an LSTM, after each step [L, T, R, H].
        tops: the last layer's outputs [T, R, H].
    """

    inputs: Any
    first: Any
    rest: Any
    gates: Any
    cells: Any
    tops: Any


class Grads(NamedTuple):
    """Room for the gradients of S steps, after which those of the weights are added to.

    Attributes:
        gates: of the sums [L, S, R, padded(blocks * H)].
        logits: of the controls, whose last columns are zeros [S, R, padded(P)].
        given: [S * R, padded(largest of E, H + D and 2 H)].
        straight: [R, H].
    """

    gates: Any
    logits: Any
    given: Any
    straight: Any


@njit(**COMPILE)
def _lstm_cell(gates: Any, cell: Any) -> None:
    size = cell.shape[0]
    for j in range(size):
        cell[j] = gates[size + j] * cell[j] + gates[j] * gates[2 * size + j]


@njit(**COMPILE)
def _lstm_hidden(out: Any, cell: Any, hidden: Any) -> None:
    for j in range(cell.shape[0]):
        hidden[j] = tanh(cell[j])
    scale(hidden, out)


@njit(**COMPILE)
def _lstm_hidden_backward(out: Any, cell: Any, grad: Any, grad_cell: Any, grad_out: Any) -> None:
    one = type(grad[0])(1)
    for j in range(cell.shape[0]):
        squashed = tanh(cell[j])
        grad_out[j] = grad[j] * squashed * out[j] * (one - out[j])
        grad_cell[j] += grad[j] * out[j] * (one - squashed * squashed)


@njit(**COMPILE)
def _lstm_cell_backward(gates: Any, cell_before: Any, grad_cell: Any, grad_gates: Any) -> None:
    size = grad_cell.shape[0]
    one = type(grad_cell[0])(1)
    for j in range(size):
        into, forget, new, grad = gates[j], gates[size + j], gates[2 * size + j], grad_cell[j]
        grad_gates[j] = grad * new * into * (one - into)
        grad_gates[size + j] = grad * cell_before[j] * forget * (one - forget)
        grad_gates[2 * size + j] = grad * into * (one - new * new)
        grad_cell[j] = grad * forget


@njit(**COMPILE)
def _gru_new(gates: Any, size: int) -> None:
    for j in range(size):
        gates[2 * size + j] = tanh(gates[2 * size + j] + gates[j] * gates[3 * size + j])


@njit(**COMPILE)
def _gru_hidden(gates: Any, hidden: Any) -> None:
    size = hidden.shape[0]
    for j in range(size):
        new = gates[2 * size + j]
        hidden[j] = new + gates[size + j] * (hidden[j] - new)


@njit(**COMPILE)
def _gru_backward(gates: Any, hidden_before: Any, grad: Any, grad_gates: Any) -> None:
    size = grad.shape[0]
    one = type(grad[0])(1)
    for j in range(size):
        reset, update, new = gates[j], gates[size + j], gates[2 * size + j]
        inside = grad[j] * (one - update) * (one - new * new)
        grad_gates[j] = inside * gates[3 * size + j] * reset * (one - reset)
        grad_gates[size + j] = grad[j] * (hidden_before[j] - new) * update * (one - update)
        grad_gates[2 * size + j] = inside
        grad_gates[3 * size + j] = inside * reset
        grad[j] *= update


@njit(**COMPILE)
def pointwise(kind: int, gates: Any, cell: Any, hidden: Any) -> None:
    """From the gates' sums [blocks * H] to their activations, in place, and to the next state.

    Args:
        cell: [H] of an LSTM, in place.
        hidden: [H]: the previous state on entry, the next on return.
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
        _gru_hidden(gates, hidden)
    else:
        if kind != LINEAR:
            squash(gates, TANH if kind == ELMAN else SIGMOID)
        copy(hidden, gates)


@njit(**COMPILE)
def pointwise_backward(
    kind: int, gates: Any, cell: Any, cell_before: Any, hidden_before: Any, grad: Any, grad_cell: Any, grad_gates: Any
) -> None:
    """Backwards through `pointwise`.

    Args:
        gates: activations [blocks * H].
        cell, cell_before: [H] of an LSTM, after and before the step.
        hidden_before: [H], the state before the step.
        grad: of the next state [H]; on return, what goes straight to the previous state (of a GRU).
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
        if kind != LINEAR:
            squash_backward(gates, TANH if kind == ELMAN else SIGMOID, grad, grad_gates)
        else:
            copy(grad_gates, grad)
        clear(grad)


@njit(**COMPILE)
def project(start: int, stop: int, weights: Any, inputs: Any, layers: Any) -> None:
    """Begin the sums of the gates at steps [start, stop): biases, and what x_t gives.

    Args:
        weights: `layout.Weights`, matrices as `gemm.pack` makes them of their transposes.
        inputs: x_t [R, T, E].
        layers: `Layers`; `inputs` and `gates` are written.
    """
    n_rows, size = inputs.shape[0], inputs.shape[2]
    n_layers, length, stride = layers.gates.shape[0], layers.gates.shape[1], layers.gates.shape[3]
    width = weights.biases.shape[1]
    flat_inputs, flat_gates = layers.inputs.reshape(-1), layers.gates.reshape(-1)
    for t in range(start, stop):
        for row in range(n_rows):
            copy(layers.inputs[t, row], inputs[row, t])
            for layer in range(n_layers):
                copy(layers.gates[layer, t, row, :width], weights.biases[layer])
                clear(layers.gates[layer, t, row, width:])
    for layer in range(weights.inputs.shape[0]):
        first, into = start * n_rows * size, (layer * length + start) * n_rows * stride
        panels, rows = weights.inputs[layer], (stop - start) * n_rows
        multiply_add(flat_inputs, first, size, rows, panels, flat_gates, into, stride)


@njit(**COMPILE)
def _load(layer: int, hidden: Any, reading: Any, dropped: Any, given: Any) -> None:
    """Put side by side what a layer of one sequence is given: [h; r] for the first, [layer below; h] for others.

    Args:
        hidden: [L, H].
        dropped: [H], or empty.
    """
    if layer == 0:
        recurrent = given.shape[0] - reading.shape[0]
        copy(given[:recurrent], hidden[0])
        copy(given[recurrent:], reading)
        return
    size = hidden.shape[1]
    copy(given[:size], hidden[layer - 1])
    if dropped.shape[0] > 0:
        scale(given[:size], dropped)
    copy(given[size:], hidden[layer])


@njit(**COMPILE)
def step(t: int, kind: int, weights: Any, active: Any, dropped: Any, states: Any, layers: Any) -> None:
    """Run all layers at a step that `project` has begun.

    Args:
        kind: of controller, as `layout.CONTROLLERS` numbers them.
        weights: as in `project`.
        active: [R, T], or [R, 0] where all are.
        dropped: what a layer's output is multiplied with before the next [R, L - 1, T, H], or [R, L - 1, T, 0].
        states: `layout.States`; `hidden` (the linear controller's outputs) and `cell` are updated.
        layers: `Layers`; written at step t.
    """
    hidden, cell = states.hidden, states.cell
    n_rows, n_layers = hidden.shape[0], hidden.shape[1]
    length, stride, width = layers.gates.shape[1], layers.gates.shape[3], weights.biases.shape[1]
    flat_gates = layers.gates.reshape(-1)
    for layer in range(n_layers):
        for row in range(n_rows):
            given = layers.first[t, row] if layer == 0 else layers.rest[layer - 1, t, row]
            drops = dropped[row, layer - 1, t] if layer > 0 else hidden[row, 0, :0]
            _load(layer, hidden[row], states.reading[row], drops, given)
        into = (layer * length + t) * n_rows * stride
        if layer == 0:
            size, flat = layers.first.shape[2], layers.first.reshape(-1)
            multiply_add(flat, t * n_rows * size, size, n_rows, weights.first, flat_gates, into, stride)
        else:
            size, flat = layers.rest.shape[3], layers.rest.reshape(-1)
            start, panels = ((layer - 1) * length + t) * n_rows * size, weights.rest[layer - 1]
            multiply_add(flat, start, size, n_rows, panels, flat_gates, into, stride)
        for row in range(n_rows):
            if active.shape[1] == 0 or active[row, t]:
                pointwise(kind, layers.gates[layer, t, row, :width], cell[row, layer], hidden[row, layer])
            if kind == LSTM:
                copy(layers.cells[layer, t, row], cell[row, layer])
    for row in range(n_rows):
        copy(layers.tops[t, row], hidden[row, n_layers - 1])


@njit(**COMPILE)
def control_logits(t: int, weights: Any, layers: Any, logits: Any) -> None:
    """The logits of all controls at a step [T, R, padded(P)], from the outputs of the last layer."""
    n_rows, stride, count = logits.shape[1], logits.shape[2], weights.controls_bias.shape[0]
    for row in range(n_rows):
        copy(logits[t, row, :count], weights.controls_bias)
        clear(logits[t, row, count:])
    size, into = layers.tops.shape[2], t * n_rows * stride
    flat_tops, flat_logits = layers.tops.reshape(-1), logits.reshape(-1)
    multiply_add(flat_tops, t * n_rows * size, size, n_rows, weights.controls, flat_logits, into, stride)


@njit(**COMPILE)
def step_backward(
    t: int,
    kind: int,
    weights: Any,
    active: Any,
    dropped: Any,
    first_cell: Any,
    layers: Any,
    grad_outputs: Any,
    grads: Any,
    grad_weights: Any,
    room: Any,
) -> None:
    """Backwards through `control_logits` and `step`.

    Args:
        weights: as in `project`, but packed as they are.
        first_cell: before the first step [R, L, H].
        layers: as the way forward left them.
        grad_outputs: of the last layer's outputs at all steps [R, T, H].
        grads: `layout.States` of gradients: `hidden` and `cell` of the states after the step on entry, before it on
            return; `reading` of what was read before the step is added to.
        grad_weights: `layout.Weights` of gradients; the biases are added to.
        room: `Grads`. `logits` hold those of this step; `gates` are written.
    """
    n_rows, n_layers, size = grads.hidden.shape
    width, stride, steps = weights.biases.shape[1], layers.gates.shape[3], room.gates.shape[1]
    recurrent = layers.first.shape[2] - grads.reading.shape[1]
    place, masked, given = t % steps, active.shape[1] > 0, room.given
    flat_gates, flat_logits, flat_given = room.gates.reshape(-1), room.logits.reshape(-1), given.reshape(-1)
    used = flat_given[: n_rows * given.shape[1]]
    clear(used)
    logits = room.logits.shape[2]
    multiply_add(flat_logits, place * n_rows * logits, logits, n_rows, weights.controls, used, 0, given.shape[1])
    for row in range(n_rows):
        if not masked or active[row, t]:
            add(grads.hidden[row, n_layers - 1], grad_outputs[row, t])
            add(grads.hidden[row, n_layers - 1], given[row])
    for layer in range(n_layers - 1, -1, -1):
        before = 0 if layer == 0 else size  # where a layer's own state lies in what it was given
        for row in range(n_rows):
            clear(room.gates[layer, place, row, width:])
            if masked and not active[row, t]:
                clear(room.gates[layer, place, row, :width])
                continue
            copy(room.straight[row], grads.hidden[row, layer])
            was_given = layers.first[t, row] if layer == 0 else layers.rest[layer - 1, t, row]
            pointwise_backward(
                kind,
                layers.gates[layer, t, row, :width],
                layers.cells[layer, t, row],
                first_cell[row, layer] if t == 0 else layers.cells[layer, t - 1, row],
                was_given[before : before + recurrent],
                room.straight[row],
                grads.cell[row, layer],
                room.gates[layer, place, row, :width],
            )
            add(grad_weights.biases[layer], room.gates[layer, place, row])
        clear(used)
        start = (layer * steps + place) * n_rows * stride
        panels = weights.first if layer == 0 else weights.rest[layer - 1]
        multiply_add(flat_gates, start, stride, n_rows, panels, used, 0, given.shape[1])
        for row in range(n_rows):
            if masked and not active[row, t]:
                continue
            copy(grads.hidden[row, layer], room.straight[row])
            add(grads.hidden[row, layer, :recurrent], given[row, before:])
            if layer == 0:
                add(grads.reading[row], given[row, recurrent:])
            elif dropped.shape[3] > 0:
                add_product(grads.hidden[row, layer - 1], given[row], dropped[row, layer - 1, t])
            else:
                add(grads.hidden[row, layer - 1], given[row])


@njit(**COMPILE)
def collect(start: int, stop: int, weights: Any, layers: Any, grad_inputs: Any, grad_weights: Any, room: Any) -> None:
    """Backwards through `project`, and the gradients of all matrices, for steps [start, stop) that fill `room`.

    Args:
        weights: as in `step_backward`.
        layers: as the way forward left them.
        grad_inputs: of x_t [R, T, E]; written.
        grad_weights: matrices transposed, [K, padded(N)] where the weights are [N, K]; added to.
        room: `Grads` of the steps.
    """
    n_layers, steps, n_rows, stride = room.gates.shape
    count = (stop - start) * n_rows
    flat_gates, flat_given, columns = room.gates.reshape(-1), room.given.reshape(-1), room.given.shape[1]
    inputs = layers.inputs[start:stop].reshape(count, -1)
    clear(flat_given[: count * columns])
    for layer in range(n_layers):
        grad_gates = room.gates[layer, : stop - start].reshape(count, stride)
        if layer < weights.inputs.shape[0]:
            first = layer * steps * n_rows * stride
            multiply_add(flat_gates, first, stride, count, weights.inputs[layer], flat_given, 0, columns)
            add_transposed_product(inputs, grad_gates, grad_weights.inputs[layer])
        if layer == 0:
            add_transposed_product(layers.first[start:stop].reshape(count, -1), grad_gates, grad_weights.first)
        else:
            given = layers.rest[layer - 1, start:stop].reshape(count, -1)
            add_transposed_product(given, grad_gates, grad_weights.rest[layer - 1])
    for t in range(start, stop):
        for row in range(n_rows):
            copy(grad_inputs[row, t], room.given[(t - start) * n_rows + row])
    grad_logits = room.logits[: stop - start].reshape(count, -1)
    add_transposed_product(layers.tops[start:stop].reshape(count, -1), grad_logits, grad_weights.controls)
