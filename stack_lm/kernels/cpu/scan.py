"""The cell over a whole sequence, in compiled code: forwards, and backwards by hand.

Each thread runs its own rows of the batch through all steps, so threads never wait for each other. A step is a product
of `[x_t; h_{t-1}; r_{t-1}]` with the weights for each layer, a pointwise part, the controls and the stack. What a
layer was given at each step is kept side by side, so that the gradient of its weights is a product over many steps.

A layer's gates are laid out in blocks of H: one for the linear and Elman controllers, (input, forget, cell, output) for
an LSTM, and (reset, update, new from below, new from the state) for a GRU, whose last two are kept apart because the
reset gate stands between them.

A stack and a queue have one end at which they pop and read; a deque has two, the top first, and pushes at both. Its
strengths are (push, push, pop, pop, read, read), its pushed values and its readings stand side by side.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from . import strength as numba_stack
from .gemm import add_transposed_product, multiply_add
from .math import COMPILE, exp, sigmoid, tanh

LINEAR, ELMAN, GRU, LSTM = range(4)
FIXED, SIGMOID, EXPECTED_VALUE = range(3)
TANH_VALUES, SIGMOID_VALUES = range(2)
PUSH, POP, READ = range(3)
STACK, QUEUE, DEQUE = range(3)


# The loops over a row stand in functions of their own: LLVM then vectorises every one of them. An assignment to a slice
# would look for overlaps first.


@njit(**COMPILE)
def _copy(target: Any, source: Any) -> None:
    for j in range(target.shape[0]):
        target[j] = source[j]


@njit(**COMPILE)
def _clear(target: Any) -> None:
    for j in range(target.shape[0]):
        target[j] = 0


@njit(**COMPILE)
def _add(target: Any, source: Any) -> None:
    for j in range(target.shape[0]):
        target[j] += source[j]


@njit(**COMPILE)
def _add_product(target: Any, source: Any, factor: Any) -> None:
    for j in range(target.shape[0]):
        target[j] += source[j] * factor[j]


@njit(**COMPILE)
def _scale(target: Any, factor: Any) -> None:
    for j in range(target.shape[0]):
        target[j] *= factor[j]


@njit(**COMPILE)
def _squash(values: Any, kind: int) -> None:
    """tanh or sigmoid, in place."""
    if kind == TANH_VALUES:
        for j in range(values.shape[0]):
            values[j] = tanh(values[j])
    else:
        for j in range(values.shape[0]):
            values[j] = sigmoid(values[j])


@njit(**COMPILE)
def _squash_backward(squashed: Any, kind: int, grad: Any, grad_sums: Any) -> None:
    """Backwards through `_squash`, from its results."""
    one = type(grad[0])(1)
    if kind == TANH_VALUES:
        for j in range(squashed.shape[0]):
            grad_sums[j] = grad[j] * (one - squashed[j] * squashed[j])
    else:
        for j in range(squashed.shape[0]):
            grad_sums[j] = grad[j] * squashed[j] * (one - squashed[j])


@njit(**COMPILE)
def _lstm_cell(gates: Any, cell: Any) -> None:
    size = cell.shape[0]
    for j in range(size):
        cell[j] = gates[size + j] * cell[j] + gates[j] * gates[2 * size + j]


@njit(**COMPILE)
def _lstm_hidden(out: Any, cell: Any, hidden: Any) -> None:
    for j in range(cell.shape[0]):
        hidden[j] = tanh(cell[j])
    _scale(hidden, out)


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
def _pointwise(kind: int, gates: Any, cell: Any, hidden: Any) -> None:
    """From the gates' sums [blocks * H] to their activations, in place, and to the next state.

    Args:
        cell: [H] of an LSTM, in place.
        hidden: [H]: the previous state on entry, the next on return.
    """
    size = hidden.shape[0]
    if kind == LSTM:
        _squash(gates[: 2 * size], SIGMOID_VALUES)
        _squash(gates[2 * size : 3 * size], TANH_VALUES)
        _squash(gates[3 * size :], SIGMOID_VALUES)
        _lstm_cell(gates, cell)
        _lstm_hidden(gates[3 * size :], cell, hidden)
    elif kind == GRU:
        _squash(gates[: 2 * size], SIGMOID_VALUES)
        _gru_new(gates, size)
        _gru_hidden(gates, hidden)
    else:
        if kind == ELMAN:
            _squash(gates, TANH_VALUES)
        _copy(hidden, gates)


@njit(**COMPILE)
def _pointwise_backward(
    kind: int, gates: Any, cell: Any, cell_before: Any, hidden_before: Any, grad: Any, grad_cell: Any, grad_gates: Any
) -> None:
    """Backwards through `_pointwise`.

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
        _clear(grad)
    elif kind == GRU:
        _gru_backward(gates, hidden_before, grad, grad_gates)
    else:
        if kind == ELMAN:
            _squash_backward(gates, TANH_VALUES, grad, grad_gates)
        else:
            _copy(grad_gates, grad)
        _clear(grad)


@njit(**COMPILE)
def _control(kind: int, fixed: Any, logits: Any) -> Any:
    """Emit a strength; the logits become its sigmoid or its distribution, in place."""
    one = type(fixed)(1)
    if kind == FIXED:
        return fixed
    if kind == SIGMOID:
        logits[0] = sigmoid(logits[0])
        return logits[0]
    highest = logits[0]
    for i in range(1, logits.shape[0]):
        if logits[i] > highest or logits[i] != logits[i]:
            highest = logits[i]
    total = one - one
    for i in range(logits.shape[0]):
        logits[i] = exp(logits[i] - highest)
        total += logits[i]
    strength = one - one
    for i in range(logits.shape[0]):
        logits[i] /= total
        strength += i * logits[i]
    return strength


@njit(**COMPILE)
def _control_backward(kind: int, emitted: Any, strength: Any, grad: Any, grad_logits: Any) -> None:
    """Backwards through `_control`: `emitted` is what the logits became."""
    one = type(strength)(1)
    if kind == SIGMOID:
        grad_logits[0] = grad * strength * (one - strength)
    elif kind == EXPECTED_VALUE:
        for i in range(emitted.shape[0]):
            grad_logits[i] = grad * emitted[i] * (i - strength)


@njit(**COMPILE)
def _load_inputs(layer: int, below: Any, hidden: Any, reading: Any, dropped: Any, inputs: Any) -> None:
    """Put side by side what a layer of one sequence is given: [x_t; h; r] for the first, [layer below; h] for others.

    Args:
        below: x_t [E], for the first layer.
        hidden: [L, H].
        dropped: [H], or empty.
    """
    size = hidden.shape[1]
    if layer == 0:
        first, depth = below.shape[0], reading.shape[0]
        recurrent = inputs.shape[0] - first - depth
        _copy(inputs[:first], below)
        _copy(inputs[first : first + recurrent], hidden[0])
        _copy(inputs[first + recurrent :], reading)
        return
    _copy(inputs[:size], hidden[layer - 1])
    if dropped.shape[0] > 0:
        _scale(inputs[:size], dropped)
    _copy(inputs[size:], hidden[layer])


@njit(**COMPILE)
def _end(memory: int, e: int) -> int:
    """Where a memory pops and reads: at the e-th of its ends."""
    return numba_stack.BOTTOM if memory == QUEUE or e == 1 else numba_stack.TOP


@njit(**COMPILE)
def _pushed(t: int, e: int, length: int, behind_first: int) -> int:
    """The index of the element that step t pushes: at the top, or at a deque's bottom."""
    return length - 1 - t if e == 1 else behind_first + t


@njit(**COMPILE)
def forward(
    kind: int,
    memory: int,
    controls: Any,
    fixed: Any,
    value_kind: int,
    panels_first: Any,
    panels_rest: Any,
    panels_controls: Any,
    biases: Any,
    bias_controls: Any,
    inputs: Any,
    active: Any,
    dropped: Any,
    hidden: Any,
    cell: Any,
    reading: Any,
    values: Any,
    strengths: Any,
    outputs: Any,
    given_first: Any,
    given_rest: Any,
    gates: Any,
    cells: Any,
    tops: Any,
    emitted: Any,
    actions: Any,
    log_index: Any,
    log_strength: Any,
    log_end: Any,
    log_flags: Any,
    line_index: Any,
    line_strength: Any,
    line_ends: Any,
    logged: Any,
    stepped: Any,
) -> None:
    """Run some sequences, R of them.

    N is the number of elements in the initial memory, M = N + T (a deque: N + 2 T) in the last.

    Args:
        kind: of controller.
        memory: STACK, QUEUE or DEQUE, with S = 3 or 6 strengths and a reading of size D or 2 D.
        controls: of each strength [S, 3]: kind, first logit, and the one behind its last.
        fixed: their strengths where they are fixed [S].
        value_kind: activation of the pushed value.
        panels_first: packed [E + H + D, blocks * H], from x_t, state and reading (2 D for a deque); the linear
            controller has no state.
        panels_rest: packed [2 H, blocks * H] of each further layer, from the layer below and state; likewise.
        panels_controls: packed [H, P], where P is the pushed values and the logits; P = 0 without a memory.
        biases, bias_controls: [L, blocks * H] and [P].
        inputs: x_t, [R, T, E].
        active: [R, T], or [R, 0] where all are.
        dropped: what a layer's output is multiplied with before the next [R, L - 1, T, H], or [R, L - 1, T, 0].
        hidden: each layer's state, or its output for the linear controller [R, L, H]; updated.
        cell: [R, L, H]; updated by an LSTM.
        reading: [R, D or 2 D]; updated.
        values: [R, M, D]: the first elements on entry, with T places before them for a deque; all on return.
        strengths: [R, M]; likewise.
        outputs: [R, T, H]; written.
        given_first, given_rest, gates, cells, tops, emitted, actions: written, for `backward`: what each layer was
            given [T, R, E + H + D] and [L - 1, T, R, 2 H], its gates [L, T, R, padded(blocks * H)], the cells of an
            LSTM [L, T, R, H], the last layer's outputs [T, R, H], what the controls emitted [T, R, padded(P)], and the
            strengths [T, R, S].
        log_*: likewise, the log of pops: index and strength [R, N + 2 S / 3 T], and for each pop where it ends and
            whether an element was shortened or dropped [T, R, S / 3 (, 2)].
        line_*: likewise, the living elements at the end: index and strength [R, M], and their bounds [R, 2].
        logged, stepped: zeros [R], to work in.
    """
    n_rows, length = outputs.shape[0], outputs.shape[1]
    n_layers, width, stride = biases.shape[0], biases.shape[1], gates.shape[3]
    size, depth = hidden.shape[2], values.shape[2]
    n_logits, logit_stride = bias_controls.shape[0], emitted.shape[2]
    n_ends = 2 if memory == DEQUE else 1
    before_first = length * (n_ends - 1)
    behind_first = values.shape[1] - length
    masked = active.shape[1] > 0
    flat_first, flat_rest, flat_hidden = given_first.reshape(-1), given_rest.reshape(-1), hidden.reshape(-1)
    flat_gates, flat_emitted = gates.reshape(-1), emitted.reshape(-1)
    for row in range(n_rows):
        line_ends[row, 0], line_ends[row, 1] = before_first, behind_first
        for i in range(before_first, behind_first):
            line_index[row, i] = i
            line_strength[row, i] = strengths[row, i]

    for t in range(length):
        for layer in range(n_layers):
            for row in range(n_rows):
                given = given_first[t, row] if layer == 0 else given_rest[layer - 1, t, row]
                drops = dropped[row, layer - 1, t] if layer > 0 else hidden[row, 0, :0]
                _load_inputs(layer, inputs[row, t], hidden[row], reading[row], drops, given)
                _copy(gates[layer, t, row, :width], biases[layer])
                _clear(gates[layer, t, row, width:])
            start = (layer * length + t) * n_rows
            if layer == 0:
                step = given_first.shape[2]
                multiply_add(
                    flat_first, t * n_rows * step, step, n_rows, panels_first, flat_gates, start * stride, stride
                )
            else:
                step = given_rest.shape[3]
                panels, first = panels_rest[layer - 1], (start - length * n_rows) * step
                multiply_add(flat_rest, first, step, n_rows, panels, flat_gates, start * stride, stride)
            for row in range(n_rows):
                if not masked or active[row, t]:
                    _pointwise(kind, gates[layer, t, row, :width], cell[row, layer], hidden[row, layer])
                if kind == LSTM:
                    _copy(cells[layer, t, row], cell[row, layer])
        for row in range(n_rows):
            _copy(tops[t, row], hidden[row, n_layers - 1])
            _copy(emitted[t, row, :n_logits], bias_controls)
            _clear(emitted[t, row, n_logits:])
        top, first = (n_layers - 1) * size, t * n_rows * logit_stride
        multiply_add(flat_hidden, top, n_layers * size, n_rows, panels_controls, flat_emitted, first, logit_stride)
        for row in range(n_rows):
            for e in range(n_ends):
                log_end[t, row, e] = logged[row]
            if masked and not active[row, t]:
                _clear(outputs[row, t])
                for e in range(n_ends):
                    _clear(values[row, _pushed(t, e, length, behind_first)])
                continue
            _copy(outputs[row, t], tops[t, row])
            if n_logits == 0:
                continue
            own = emitted[t, row, :n_logits]
            _squash(own[: n_ends * depth], value_kind)
            for which in range(3 * n_ends):
                logits = own[controls[which, 1] : controls[which, 2]]
                actions[t, row, which] = _control(controls[which, 0], fixed[which], logits)
            index, strength = line_index[row], line_strength[row]
            low, high = line_ends[row, 0], line_ends[row, 1]
            for e in range(n_ends):
                low, high, logged[row], log_flags[t, row, e, 0], log_flags[t, row, e, 1] = numba_stack.pop(
                    actions[t, row, n_ends * POP + e],
                    _end(memory, e),
                    index,
                    strength,
                    low,
                    high,
                    log_index[row],
                    log_strength[row],
                    logged[row],
                )
                log_end[t, row, e] = logged[row]
                if not stepped[row]:
                    high = numba_stack.drop_empty(index, strength, low, high)
                    stepped[row] = True
            for e in range(n_ends):
                low, high, place = (low, high + 1, high) if e == 0 else (low - 1, high, low - 1)
                pushed = _pushed(t, e, length, behind_first)
                index[place], strength[place] = pushed, actions[t, row, n_ends * PUSH + e]
                _copy(values[row, pushed], own[e * depth : (e + 1) * depth])
            for e in range(n_ends):
                numba_stack.read(
                    actions[t, row, n_ends * READ + e],
                    _end(memory, e),
                    index,
                    strength,
                    low,
                    high,
                    values[row],
                    reading[row, e * depth : (e + 1) * depth],
                )
            line_ends[row, 0], line_ends[row, 1] = low, high

    for row in range(n_rows):
        _clear(strengths[row])
        for i in range(line_ends[row, 0], line_ends[row, 1]):
            strengths[row, line_index[row, i]] = line_strength[row, i]


@njit(**COMPILE)
def backward(
    kind: int,
    memory: int,
    controls: Any,
    value_kind: int,
    panels_first: Any,
    panels_rest: Any,
    panels_controls: Any,
    active: Any,
    dropped: Any,
    first_cell: Any,
    values: Any,
    given_first: Any,
    given_rest: Any,
    gates: Any,
    cells: Any,
    tops: Any,
    emitted: Any,
    actions: Any,
    log_index: Any,
    log_strength: Any,
    log_end: Any,
    log_flags: Any,
    line_index: Any,
    line_strength: Any,
    line_ends: Any,
    grad_outputs: Any,
    grad_hidden: Any,
    grad_cell: Any,
    grad_reading: Any,
    grad_values: Any,
    grad_strengths: Any,
    grad_inputs: Any,
    grad_first: Any,
    grad_rest: Any,
    grad_controls: Any,
    grad_biases: Any,
    grad_bias_controls: Any,
    grad_gates: Any,
    grad_logits: Any,
    given: Any,
    straight: Any,
    grad_actions: Any,
    living: Any,
) -> None:
    """Backwards through `forward`, whose arguments of the same names it was given or wrote.

    Args:
        panels_first, panels_rest, panels_controls: packed transposes of the matrices in `forward`.
        first_cell: before the first step [R, L, H].
        grad_outputs: [R, T, H].
        grad_hidden, grad_cell, grad_reading, grad_values, grad_strengths: of the last states on entry, of the first on
            return; of values and strengths those of the first elements count then.
        grad_inputs: of x_t [R, T, E]; written.
        grad_first, grad_rest, grad_controls: of the matrices in `forward`, their columns padded as in `gates` and
            `emitted`; added to.
        grad_biases, grad_bias_controls: [L, blocks * H] and [P]; added to.
        grad_gates, grad_logits, given, straight, grad_actions, living: to work in: like `gates` and `emitted` (zeros),
            but for any number of steps, after which the gradients of the matrices are added to;
            [R, padded(largest of E + H + D and 2 H)], [R, H], [S], and M booleans. `line_*` are worked in, too.
    """
    n_rows, length = grad_outputs.shape[0], grad_outputs.shape[1]
    n_layers, width, stride = grad_biases.shape[0], grad_biases.shape[1], gates.shape[3]
    size, depth = grad_hidden.shape[2], values.shape[2]
    n_logits, logit_stride = grad_bias_controls.shape[0], emitted.shape[2]
    n_ends = 2 if memory == DEQUE else 1
    behind_first, n_inputs = values.shape[1] - length, grad_inputs.shape[2]
    recurrent = given_first.shape[2] - n_inputs - grad_reading.shape[1]
    masked = active.shape[1] > 0
    at_a_time = grad_logits.shape[0]
    flat_logits, flat_gates, flat_given = grad_logits.reshape(-1), grad_gates.reshape(-1), given.reshape(-1)
    for row in range(n_rows):
        living[:] = False
        for i in range(line_ends[row, 0], line_ends[row, 1]):
            living[line_index[row, i]] = True
        for i in range(living.shape[0]):
            if not living[i]:
                grad_strengths[row, i] = 0

    for t in range(length - 1, -1, -1):
        place = t % at_a_time
        for row in range(n_rows):
            if n_logits == 0 or (masked and not active[row, t]):
                _clear(grad_logits[place, row])
                continue
            own, change = emitted[t, row], grad_logits[place, row]
            index, strength = line_index[row], line_strength[row]
            low, high = line_ends[row, 0], line_ends[row, 1]
            for e in range(n_ends):
                grad_actions[n_ends * READ + e] = numba_stack.read_backward(
                    actions[t, row, n_ends * READ + e],
                    _end(memory, e),
                    index,
                    strength,
                    low,
                    high,
                    values[row],
                    grad_reading[row, e * depth : (e + 1) * depth],
                    grad_strengths[row],
                    grad_values[row],
                )
            _clear(grad_reading[row])
            for e in range(n_ends):
                low, high = (low, high - 1) if e == 0 else (low + 1, high)
                pushed = _pushed(t, e, length, behind_first)
                grad_actions[n_ends * PUSH + e] = grad_strengths[row, pushed]
                of_value = slice(e * depth, (e + 1) * depth)
                _squash_backward(own[of_value], value_kind, grad_values[row, pushed], change[of_value])
            for e in range(n_ends - 1, -1, -1):
                start = log_end[t, row, e - 1] if e > 0 else (log_end[t - 1, row, n_ends - 1] if t > 0 else 0)
                low, high, grad_actions[n_ends * POP + e] = numba_stack.pop_backward(
                    _end(memory, e),
                    log_flags[t, row, e, 0],
                    log_flags[t, row, e, 1],
                    index,
                    strength,
                    low,
                    high,
                    log_index[row],
                    log_strength[row],
                    start,
                    log_end[t, row, e],
                    grad_strengths[row],
                )
            line_ends[row, 0], line_ends[row, 1] = low, high
            for which in range(3 * n_ends):
                first, last = controls[which, 1], controls[which, 2]
                emission = own[first:last]
                strength_then = actions[t, row, which]
                _control_backward(controls[which, 0], emission, strength_then, grad_actions[which], change[first:last])
            _add(grad_bias_controls, change)
        _clear(flat_given)
        first = place * n_rows * logit_stride
        multiply_add(flat_logits, first, logit_stride, n_rows, panels_controls, flat_given, 0, given.shape[1])
        for row in range(n_rows):
            if not masked or active[row, t]:
                _add(grad_hidden[row, n_layers - 1], grad_outputs[row, t])
                _add(grad_hidden[row, n_layers - 1], given[row])
        for layer in range(n_layers - 1, -1, -1):
            before = n_inputs if layer == 0 else size  # where a layer's own state stands in what it was given
            for row in range(n_rows):
                _clear(grad_gates[layer, place, row, width:])
                if masked and not active[row, t]:
                    _clear(grad_gates[layer, place, row])
                    continue
                _copy(straight[row], grad_hidden[row, layer])
                was_given = given_first[t, row] if layer == 0 else given_rest[layer - 1, t, row]
                _pointwise_backward(
                    kind,
                    gates[layer, t, row, :width],
                    cells[layer, t, row],
                    first_cell[row, layer] if t == 0 else cells[layer, t - 1, row],
                    was_given[before : before + recurrent],
                    straight[row],
                    grad_cell[row, layer],
                    grad_gates[layer, place, row, :width],
                )
                _add(grad_biases[layer], grad_gates[layer, place, row])
            _clear(flat_given)
            first = (layer * at_a_time + place) * n_rows * stride
            panels = panels_first if layer == 0 else panels_rest[layer - 1]
            multiply_add(flat_gates, first, stride, n_rows, panels, flat_given, 0, given.shape[1])
            for row in range(n_rows):
                if layer == 0:
                    _copy(grad_inputs[row, t], given[row])
                if masked and not active[row, t]:
                    continue
                _copy(grad_hidden[row, layer], straight[row])
                _add(grad_hidden[row, layer, :recurrent], given[row, before:])
                if layer == 0:
                    _add(grad_reading[row], given[row, n_inputs + recurrent :])
                elif dropped.shape[3] > 0:
                    _add_product(grad_hidden[row, layer - 1], given[row], dropped[row, layer - 1, t])
                else:
                    _add(grad_hidden[row, layer - 1], given[row])

        if place == 0:
            last = min(t + at_a_time, length)
            steps = (last - t) * n_rows
            for layer in range(n_layers):
                of_layer = grad_gates[layer, : last - t].reshape(steps, stride)
                if layer == 0:
                    add_transposed_product(given_first[t:last].reshape(steps, -1), of_layer, grad_first)
                else:
                    was_given = given_rest[layer - 1, t:last].reshape(steps, -1)
                    add_transposed_product(was_given, of_layer, grad_rest[layer - 1])
            of_logits = grad_logits[: last - t].reshape(steps, logit_stride)
            add_transposed_product(tops[t:last].reshape(steps, size), of_logits, grad_controls)
