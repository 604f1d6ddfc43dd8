"""A controller's layers for some sequences of a batch, forwards and backwards.

The first layer receives the reading next to its state, or a state to which the reading was added through a linear map.
A direct controller has no layers and outputs its input and the reading.

A layer's step is the product of its inputs with its weights, then a pointwise part. The contribution of x_t to the
gates does not depend on the state, so one product covers many steps; so do the gradients of weights and inputs. A
layer's inputs at all steps are stored contiguously for these products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..layout import LSTM
from .compilation import compiled
from .gates import pointwise, pointwise_backward
from .gemm import ZERO, multiply_add
from .rows import add, add_product, clear, copy, scale


class Parameters(NamedTuple):
    """A cell's parameters, or their gradients, or the matrices packed for products.

    See `stack_lm.kernels.layout` for the gates. Parts that a cell does not use are empty.

    Attributes:
        inputs: from x_t to the gates of the first layer, or with skip connections of each layer [1 or L, gates * H, E].
        symbols: replaces `inputs` if these are one-hot, [1 or L, gates * H, V].
        entry, entry_bias: from the reading to the state that it is added to, [H, R] and [H].
        first: from h and r to the gates of the first layer [blocks * H, H + R]; without h if the controller has no
            state, without r if that is added to the state.
        rest: from the layer below and h to the gates of each further layer [L - 1, blocks * H, 2 H]; likewise.
        biases: of the gates [L, blocks * H].
        controls, controls_bias: from the controller's output to the logits of all controls, also those of an input
            buffer, [P, H] and [P].
    """

    inputs: np.ndarray
    symbols: np.ndarray
    entry: np.ndarray
    entry_bias: np.ndarray
    first: np.ndarray
    rest: np.ndarray
    biases: np.ndarray
    controls: np.ndarray
    controls_bias: np.ndarray


class Sequence(NamedTuple):
    """The inputs of R sequences at each step.

    Attributes:
        inputs: x_t [R, T, E]; or [R, 0, E] if they come from an input buffer, and in the backward pass.
        ids: of one-hot inputs [R, T]; or [R, 0].
        active: [R, T], or [R, 0] where all are.
        dropped: dropout factors applied to a layer's output before the next [R, L - 1, T, H], or [R, L - 1, T, 0].
    """

    inputs: np.ndarray
    ids: np.ndarray
    active: np.ndarray
    dropped: np.ndarray


class Running(NamedTuple):
    """The controller's part of R sequences' states, or its gradients.

    Attributes:
        hidden: of the layers [R, L, H]; the outputs of a controller without a state.
        cell: of an LSTM's layers [R, L, H]; or [R, L, 0].
        reading: [R, D].
    """

    hidden: np.ndarray
    cell: np.ndarray
    reading: np.ndarray


class Layers(NamedTuple):
    """The inputs and results of the layers of R sequences at each step, kept for the backward pass.

    Attributes:
        inputs: x_t [T, R, E].
        readings: the readings added to the state [T, R, D]; or [T, R, 0].
        first: the first layer's input: state, and the reading unless it was added to it [T, R, H + D].
        rest: the other layers' inputs: layer below and state [L - 1, T, R, 2 H].
        gates: [L, T, R, padded(blocks * H)].
        cells: of an LSTM, after each step [L, T, R, H].
        tops: the last layer's outputs [T, R, H].
        entered: workspace [R, padded(H)].
    """

    inputs: np.ndarray
    readings: np.ndarray
    first: np.ndarray
    rest: np.ndarray
    gates: np.ndarray
    cells: np.ndarray
    tops: np.ndarray
    entered: np.ndarray


class Grads(NamedTuple):
    """Workspace for the gradients of S steps, which are then added to those of the weights.

    Attributes:
        gates: of the sums [L, S, R, padded(blocks * H)].
        logits: of the controls, whose last columns are zeros [S, R, padded(P)].
        states: of the states that the reading was added to [S, R, padded(H)]; or [S, R, 0].
        given: [S * R, padded(largest of E, H + D, 2 H and D)].
        straight: [R, H].
        packing: workspace of `gemm.add_transposed_product`.
    """

    gates: np.ndarray
    logits: np.ndarray
    states: np.ndarray
    given: np.ndarray
    straight: np.ndarray
    packing: np.ndarray


@compiled
def load(start: int, stop: int, sequence: Sequence, layers: Layers) -> None:
    """Store the inputs of steps [start, stop) contiguously; zeros at padding, so that no NaN there meets a weight."""
    for t in range(start, stop):
        for row in range(sequence.inputs.shape[0]):
            if sequence.active.shape[1] == 0 or sequence.active[row, t]:
                copy(layers.inputs[t, row], sequence.inputs[row, t])
            else:
                clear(layers.inputs[t, row])


@compiled
def reached(t: int, active: np.ndarray, n_rows: int) -> int:
    """The number of rows up to the last that is active at a step, which is all that products need.

    A batch of texts of all lengths costs no padding there, if the longest come first.
    """
    if active.shape[1] == 0:
        return n_rows
    rows = n_rows
    while rows > 0 and not active[rows - 1, t]:
        rows -= 1
    return rows


@compiled
def one_product(t: int, stop: int, active: np.ndarray, n_rows: int) -> tuple[int, int]:
    """The end of the steps from t on that one product covers, and their rows: whole steps, and one that is not."""
    rows, first = reached(t, active, n_rows), t * n_rows
    t += 1
    while t < stop and rows == t * n_rows - first:
        rows += reached(t, active, n_rows)
        t += 1
    return t, rows


@compiled
def project(start: int, stop: int, weights: Parameters, sequence: Sequence, layers: Layers) -> None:
    """Begin the sums of the gates at steps [start, stop): biases, and the products with x_t.

    Args:
        weights: `Parameters`, the transposes of the matrices packed.
        sequence: `Sequence`.
        layers: `Layers`, whose inputs are there; `gates` are written.
    """
    n_rows, size = layers.inputs.shape[1], layers.inputs.shape[2]
    n_layers, length, stride = layers.gates.shape[0], layers.gates.shape[1], layers.gates.shape[3]
    width, ids, active = weights.biases.shape[1], sequence.ids, sequence.active
    flat_inputs, flat_gates = layers.inputs.reshape(-1), layers.gates.reshape(-1)
    for t in range(start, stop):
        for row in range(n_rows):
            for layer in range(n_layers):
                copy(layers.gates[layer, t, row, :width], weights.biases[layer])
                clear(layers.gates[layer, t, row, width:])
            if ids.shape[1] > 0 and (active.shape[1] == 0 or active[row, t]):
                for layer in range(weights.symbols.shape[0]):
                    _add_column(layers.gates[layer, t, row], weights.symbols[layer], ids[row, t])
    for layer in range(weights.inputs.shape[0]):
        t = start
        while t < stop:
            first, into = t * n_rows * size, (layer * length + t) * n_rows * stride
            t, rows = one_product(t, stop, active, n_rows)
            multiply_add(flat_inputs, first, size, rows, weights.inputs[layer], flat_gates, into, stride)


@compiled
def _add_column(sums: np.ndarray, matrix: np.ndarray, column: int) -> None:
    for j in range(matrix.shape[0]):
        sums[j] += matrix[j, column]


@compiled
def put_out(t: int, sequence: Sequence, running: Running, layers: Layers) -> None:
    """Run a step of a direct controller, whose output is its input and the reading: [x_t; r_{t-1}]."""
    n_inputs = running.hidden.shape[2] - running.reading.shape[1]
    for row in range(running.hidden.shape[0]):
        if sequence.active.shape[1] == 0 or sequence.active[row, t]:
            top = running.hidden[row, 0]
            if sequence.ids.shape[1] > 0:
                clear(top[:n_inputs])
                top[sequence.ids[row, t]] = 1
            else:
                copy(top[:n_inputs], layers.inputs[t, row])
            copy(top[n_inputs:], running.reading[row])
        copy(layers.tops[t, row], running.hidden[row, 0])


@compiled
def _enter(t: int, rows: int, weights: Parameters, running: Running, layers: Layers) -> None:
    """The first layer's states with the reading added to them, up to a row, in `layers.entered`."""
    n_rows, size, depth = running.hidden.shape[0], running.hidden.shape[2], running.reading.shape[1]
    entered = layers.entered
    for row in range(n_rows):
        copy(entered[row, :size], running.hidden[row, 0])
        add(entered[row, :size], weights.entry_bias)
        clear(entered[row, size:])
        copy(layers.readings[t, row], running.reading[row])
    flat, stride = running.reading.reshape(-1), entered.shape[1]
    multiply_add(flat, ZERO, depth, rows, weights.entry, entered.reshape(-1), ZERO, stride)


@compiled
def _join(
    layer: int, hidden: np.ndarray, reading: np.ndarray, dropped: np.ndarray, entered: np.ndarray, given: np.ndarray
) -> None:
    """Concatenate a layer's inputs of one sequence: [h; r] for the first, [layer below; h] for others.

    Args:
        hidden: [L, H].
        dropped: [H], or empty.
        entered: the first layer's h with the reading added, its only input; or empty.
    """
    if layer == 0 and entered.shape[0] > 0:
        copy(given, entered)
        return
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


@compiled
def step(t: int, kind: int, weights: Parameters, sequence: Sequence, running: Running, layers: Layers) -> None:
    """Run all layers at a step whose sums `project` has begun.

    Args:
        kind: of controller, as `layout` numbers them.
        weights: as in `project`.
        sequence: `Sequence`.
        running: `Running`; `hidden` (the linear controller's outputs) and `cell` are updated.
        layers: `Layers`; written at step t.
    """
    hidden, cell, active = running.hidden, running.cell, sequence.active
    n_rows, n_layers, size_of_state = hidden.shape
    length, stride, width = layers.gates.shape[1], layers.gates.shape[3], weights.biases.shape[1]
    flat_gates, adds, rows = layers.gates.reshape(-1), layers.readings.shape[2] > 0, reached(t, active, n_rows)
    if adds:
        _enter(t, rows, weights, running, layers)
    for layer in range(n_layers):
        for row in range(n_rows):
            given = layers.first[t, row] if layer == 0 else layers.rest[layer - 1, t, row]
            drops = sequence.dropped[row, layer - 1, t] if layer > 0 else hidden[row, 0, :0]
            entered = layers.entered[row, : size_of_state if adds else 0]
            _join(layer, hidden[row], running.reading[row], drops, entered, given)
        into = (layer * length + t) * n_rows * stride
        if layer == 0:
            size, flat = layers.first.shape[2], layers.first.reshape(-1)
            multiply_add(flat, t * n_rows * size, size, rows, weights.first, flat_gates, into, stride)
        else:
            size, flat = layers.rest.shape[3], layers.rest.reshape(-1)
            start, panels = ((layer - 1) * length + t) * n_rows * size, weights.rest[layer - 1]
            multiply_add(flat, start, size, rows, panels, flat_gates, into, stride)
        for row in range(n_rows):
            if active.shape[1] == 0 or active[row, t]:
                before = layers.first[t, row] if layer == 0 else layers.rest[layer - 1, t, row, size_of_state:]
                pointwise(kind, layers.gates[layer, t, row, :width], cell[row, layer], before, hidden[row, layer])
            if kind == LSTM:
                copy(layers.cells[layer, t, row], cell[row, layer])
    for row in range(n_rows):
        copy(layers.tops[t, row], hidden[row, n_layers - 1])


@compiled
def control_logits(t: int, weights: Parameters, sequence: Sequence, layers: Layers, logits: np.ndarray) -> None:
    """The logits of all controls at a step [T, R, padded(P)], from the outputs of the last layer."""
    n_rows, stride, count = logits.shape[1], logits.shape[2], weights.controls_bias.shape[0]
    for row in range(n_rows):
        copy(logits[t, row, :count], weights.controls_bias)
        clear(logits[t, row, count:])
    size, into = layers.tops.shape[2], t * n_rows * stride
    flat_tops, flat_logits, rows = layers.tops.reshape(-1), logits.reshape(-1), reached(t, sequence.active, n_rows)
    multiply_add(flat_tops, t * n_rows * size, size, rows, weights.controls, flat_logits, into, stride)


@compiled
def logits_backward(
    t: int, weights: Parameters, sequence: Sequence, grad_outputs: np.ndarray, grads: Running, room: Grads
) -> None:
    """Backpropagate through `control_logits`: adds to the gradients of the last layer's state.

    Args:
        weights: `Parameters`, the matrices packed as they are.
        grad_outputs: of the last layer's outputs at all steps [R, T, H].
        grads: `Running` of gradients.
        room: `Grads`, whose `logits` are those of this step.
    """
    n_rows, n_layers, _ = grads.hidden.shape
    place, given = t % room.gates.shape[1], room.given
    columns, logits = given.shape[1], room.logits.shape[2]
    used = given.reshape(-1)[: n_rows * columns]
    clear(used)
    rows, flat_logits = reached(t, sequence.active, n_rows), room.logits.reshape(-1)
    multiply_add(flat_logits, place * n_rows * logits, logits, rows, weights.controls, used, ZERO, columns)
    for row in range(n_rows):
        if sequence.active.shape[1] == 0 or sequence.active[row, t]:
            add(grads.hidden[row, n_layers - 1], grad_outputs[row, t])
            add(grads.hidden[row, n_layers - 1], given[row])


@compiled
def put_out_backward(t: int, sequence: Sequence, grads: Running, of_inputs: np.ndarray) -> None:
    """Backpropagate through `put_out`.

    Args:
        grads: `Running` of gradients: `hidden` of the outputs on entry, zeros on return; `reading` is added to.
        of_inputs: of x_t [R, E], or [R, 0] if unused; written.
    """
    n_inputs = grads.hidden.shape[2] - grads.reading.shape[1]
    for row in range(grads.hidden.shape[0]):
        clear(of_inputs[row])
        if sequence.active.shape[1] == 0 or sequence.active[row, t]:
            copy(of_inputs[row], grads.hidden[row, 0, :n_inputs])
            add(grads.reading[row], grads.hidden[row, 0, n_inputs:])
            clear(grads.hidden[row, 0])


@compiled
def step_backward(
    t: int,
    kind: int,
    weights: Parameters,
    sequence: Sequence,
    first_cell: np.ndarray,
    layers: Layers,
    grads: Running,
    grad_weights: Parameters,
    room: Grads,
) -> None:
    """Backpropagate through `step`.

    Args:
        weights: as in `logits_backward`.
        first_cell: before the first step [R, L, H].
        layers: as the way forward left them.
        grads: `Running` of gradients: `hidden` and `cell` of the states after the step on entry, before it on
            return; `reading` of what was read before the step is added to.
        grad_weights: `Parameters` of gradients; the biases are added to.
        room: `Grads`; `gates` and `states` are written.
    """
    n_rows, n_layers, size = grads.hidden.shape
    width, stride, steps = weights.biases.shape[1], layers.gates.shape[3], room.gates.shape[1]
    adds, active, dropped = layers.readings.shape[2] > 0, sequence.active, sequence.dropped
    recurrent = layers.first.shape[2] - (0 if adds else grads.reading.shape[1])  # the size of a layer's own state
    place, masked, given = t % steps, active.shape[1] > 0, room.given
    columns, flat_gates, rows = given.shape[1], room.gates.reshape(-1), reached(t, active, n_rows)
    used = given.reshape(-1)[: n_rows * columns]
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
        multiply_add(flat_gates, start, stride, rows, panels, used, ZERO, columns)
        for row in range(n_rows):
            if masked and not active[row, t]:
                continue
            copy(grads.hidden[row, layer], room.straight[row])
            add(grads.hidden[row, layer, :recurrent], given[row, before:])
            if layer == 0 and not adds:
                add(grads.reading[row], given[row, recurrent:])
            elif layer > 0 and dropped.shape[3] > 0:
                add_product(grads.hidden[row, layer - 1], given[row], dropped[row, layer - 1, t])
            elif layer > 0:
                add(grads.hidden[row, layer - 1], given[row])
    if adds:
        _enter_backward(place, t, rows, weights, sequence, grads, grad_weights, room)


@compiled
def _enter_backward(
    place: int,
    t: int,
    rows: int,
    weights: Parameters,
    sequence: Sequence,
    grads: Running,
    grad_weights: Parameters,
    room: Grads,
) -> None:
    n_rows, _, size = grads.hidden.shape
    states, given, stride, columns = room.states, room.given, room.states.shape[2], room.given.shape[1]
    for row in range(n_rows):
        of_state = states[place, row]
        clear(of_state)
        if sequence.active.shape[1] == 0 or sequence.active[row, t]:
            copy(of_state[:size], grads.hidden[row, 0])
            add(grad_weights.entry_bias, of_state)
    used = given.reshape(-1)[: n_rows * columns]
    clear(used)
    multiply_add(states.reshape(-1), place * n_rows * stride, stride, rows, weights.entry, used, ZERO, columns)
    for row in range(n_rows):
        add(grads.reading[row], given[row])  # zeros at padding
