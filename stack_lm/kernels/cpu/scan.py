"""The cell over a whole sequence, in compiled code: forwards, and backwards by hand.

Each thread runs its own rows of the batch through all steps, so threads never wait for each other. A step is the
controller's (`controller`), one product for the logits of all controls, and the memory's (`strength`).

A stack and a queue have one end at which they pop and read; a deque has two, the top first, and pushes at both. Its
strengths are (push, push, pop, pop, read, read), its pushed values and its readings stand side by side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from . import controller
from .math import COMPILE, exp, sigmoid
from .rows import add, clear, copy, squash, squash_backward
from .strength import BOTTOM, TOP, drop_empty, pop, pop_backward, read, read_backward

FIXED, CHOSEN, EXPECTED_VALUE = range(3)
PUSH, POP, READ = range(3)
STACK, QUEUE, DEQUE = range(3)
AHEAD = 256  # rows, of all steps, whose inputs are multiplied at a time


class Settings(NamedTuple):
    """What a cell is made of.

    Attributes:
        kind: of controller, as `layout.CONTROLLERS` numbers them.
        memory: STACK, QUEUE or DEQUE, with S = 3 or 6 strengths and a reading of size D or 2 D.
        controls: of each strength [S, 3]: kind, first logit, and the one behind its last.
        fixed: the strengths that are fixed [S].
        value_kind: activation of the pushed value.
    """

    kind: int
    memory: int
    controls: Any
    fixed: Any
    value_kind: int


class Sequence(NamedTuple):
    """What R sequences are given at each step.

    Attributes:
        inputs: x_t [R, T, E].
        active: [R, T], or [R, 0] where all are.
        dropped: what a layer's output is multiplied with before the next [R, L - 1, T, H], or [R, L - 1, T, 0].
    """

    inputs: Any
    active: Any
    dropped: Any


class Steps(NamedTuple):
    """What the memory did at each step, kept for the way back.

    N elements are there at first, and M = N + T (a deque: N + 2 T) at last.

    Attributes:
        logits: of the controls; pushed values and distributions take their places [T, R, padded(P)].
        strengths: [T, R, S].
        log_index, log_strength: of pops, what each element was that one touched [R, M + T or 2 T].
        log_end: where each pop's part of the log ends [T, R, S / 3].
        log_flags: whether its last element was shortened, and whether its first was dropped [T, R, S / 3, 2].
        line_index, line_strength, line_ends: the living elements at the end [R, M], and their bounds [R, 2].
    """

    logits: Any
    strengths: Any
    log_index: Any
    log_strength: Any
    log_end: Any
    log_flags: Any
    line_index: Any
    line_strength: Any
    line_ends: Any


@njit(**COMPILE)
def _control(kind: int, fixed: Any, logits: Any) -> Any:
    """Emit a strength; the logits become its sigmoid or its distribution, in place."""
    one = type(fixed)(1)
    if kind == FIXED:
        return fixed
    if kind == CHOSEN:
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
    if kind == CHOSEN:
        grad_logits[0] = grad * strength * (one - strength)
    elif kind == EXPECTED_VALUE:
        for i in range(emitted.shape[0]):
            grad_logits[i] = grad * emitted[i] * (i - strength)


@njit(**COMPILE)
def _end(memory: int, e: int) -> int:
    """Where a memory pops and reads: at the e-th of its ends."""
    return BOTTOM if memory == QUEUE or e == 1 else TOP


@njit(**COMPILE)
def _pushed(t: int, e: int, length: int, behind_first: int) -> int:
    """The index of the element that step t pushes: at the top, or at a deque's bottom."""
    return length - 1 - t if e == 1 else behind_first + t


@njit(**COMPILE)
def _remember(t: int, row: int, settings: Any, states: Any, steps: Any, logged: int, starts: bool) -> int:
    """One step of one sequence's memory, from its logits: pop, push, read.

    Args:
        logged: how many places of the log are filled.
        starts: whether it is the sequence's first step.

    Returns:
        How many are filled after it.
    """
    memory, values, reading = settings.memory, states.values[row], states.reading[row]
    length, depth, n_ends = steps.logits.shape[0], values.shape[1], settings.fixed.shape[0] // 3
    behind_first = values.shape[0] - length
    own, strengths = steps.logits[t, row], steps.strengths[t, row]
    squash(own[: n_ends * depth], settings.value_kind)
    for which in range(3 * n_ends):
        emission = own[settings.controls[which, 1] : settings.controls[which, 2]]
        strengths[which] = _control(settings.controls[which, 0], settings.fixed[which], emission)
    index, strength = steps.line_index[row], steps.line_strength[row]
    log_index, log_strength = steps.log_index[row], steps.log_strength[row]
    low, high = steps.line_ends[row, 0], steps.line_ends[row, 1]
    for e in range(n_ends):
        amount, flags = strengths[n_ends * POP + e], steps.log_flags[t, row, e]
        low, high, logged, flags[0], flags[1] = pop(
            amount, _end(memory, e), index, strength, low, high, log_index, log_strength, logged
        )
        steps.log_end[t, row, e] = logged
        if starts and e == 0:
            high = drop_empty(index, strength, low, high)
    for e in range(n_ends):
        low, high, place = (low, high + 1, high) if e == 0 else (low - 1, high, low - 1)
        pushed = _pushed(t, e, length, behind_first)
        index[place], strength[place] = pushed, strengths[n_ends * PUSH + e]
        copy(values[pushed], own[e * depth : (e + 1) * depth])
    for e in range(n_ends):
        amount, into = strengths[n_ends * READ + e], reading[e * depth : (e + 1) * depth]
        read(amount, _end(memory, e), index, strength, low, high, values, into)
    steps.line_ends[row, 0], steps.line_ends[row, 1] = low, high
    return logged


@njit(**COMPILE)
def forward(
    settings: Any, weights: Any, sequence: Any, states: Any, outputs: Any, layers: Any, steps: Any, counts: Any
) -> None:
    """Run some sequences, R of them.

    Args:
        settings: `Settings`.
        weights: `layout.Weights`; matrices as `gemm.pack` makes them of their transposes.
        sequence: `Sequence`.
        states: `layout.States`, updated. Of values [R, M, D] and strengths [R, M] the first elements on entry, with T
            places before them for a deque; all on return.
        outputs: [R, T, H]; written.
        layers, steps: `controller.Layers` and `Steps`; written, for `backward`.
        counts: zeros [R, 2], to work in: how much is logged of each, and whether it has taken a step.
    """
    n_rows, length, n_logits = outputs.shape[0], outputs.shape[1], weights.controls_bias.shape[0]
    n_ends, active, values = settings.fixed.shape[0] // 3, sequence.active, states.values
    masked = active.shape[1] > 0
    before_first, behind_first = length * (n_ends - 1), values.shape[1] - length
    for row in range(n_rows):
        steps.line_ends[row, 0], steps.line_ends[row, 1] = before_first, behind_first
        for i in range(before_first, behind_first):
            steps.line_index[row, i] = i
            steps.line_strength[row, i] = states.strengths[row, i]

    ahead = max(1, AHEAD // n_rows)
    for t in range(length):
        if t % ahead == 0:
            controller.project(t, min(length, t + ahead), weights, sequence.inputs, layers)
        controller.step(t, settings.kind, weights, active, sequence.dropped, states, layers)
        controller.control_logits(t, weights, layers, steps.logits)
        for row in range(n_rows):
            if masked and not active[row, t]:
                clear(outputs[row, t])
                for e in range(n_ends):
                    steps.log_end[t, row, e] = counts[row, 0]
                    clear(values[row, _pushed(t, e, length, behind_first)])
                continue
            copy(outputs[row, t], layers.tops[t, row])
            if n_logits > 0:
                counts[row, 0] = _remember(t, row, settings, states, steps, counts[row, 0], counts[row, 1] == 0)
                counts[row, 1] = 1

    for row in range(n_rows):
        clear(states.strengths[row])
        for i in range(steps.line_ends[row, 0], steps.line_ends[row, 1]):
            states.strengths[row, steps.line_index[row, i]] = steps.line_strength[row, i]


@njit(**COMPILE)
def _remember_backward(
    t: int, row: int, settings: Any, values: Any, steps: Any, grads: Any, grad_logits: Any, grad_strengths: Any
) -> None:
    """Backwards through `_remember`.

    Args:
        values: of the sequence's elements [M, D].
        grads: `layout.States` of gradients.
        grad_logits: of this step and sequence [padded(P)]; written.
        grad_strengths: [S], to work in.
    """
    memory, reading = settings.memory, grads.reading[row]
    length, depth, n_ends = steps.logits.shape[0], values.shape[1], settings.fixed.shape[0] // 3
    behind_first = values.shape[0] - length
    own, strengths = steps.logits[t, row], steps.strengths[t, row]
    index, strength = steps.line_index[row], steps.line_strength[row]
    log_index, log_strength = steps.log_index[row], steps.log_strength[row]
    low, high = steps.line_ends[row, 0], steps.line_ends[row, 1]
    of_elements, of_values = grads.strengths[row], grads.values[row]
    for e in range(n_ends):
        amount, grad = strengths[n_ends * READ + e], reading[e * depth : (e + 1) * depth]
        grad_strengths[n_ends * READ + e] = read_backward(
            amount, _end(memory, e), index, strength, low, high, values, grad, of_elements, of_values
        )
    clear(reading)
    for e in range(n_ends):
        low, high = (low, high - 1) if e == 0 else (low + 1, high)
        pushed, place = _pushed(t, e, length, behind_first), slice(e * depth, (e + 1) * depth)
        grad_strengths[n_ends * PUSH + e] = of_elements[pushed]
        squash_backward(own[place], settings.value_kind, of_values[pushed], grad_logits[place])
    for e in range(n_ends - 1, -1, -1):
        start = steps.log_end[t, row, e - 1] if e > 0 else (steps.log_end[t - 1, row, n_ends - 1] if t > 0 else 0)
        stop, flags = steps.log_end[t, row, e], steps.log_flags[t, row, e]
        low, high, grad_strengths[n_ends * POP + e] = pop_backward(
            _end(memory, e),
            flags[0],
            flags[1],
            index,
            strength,
            low,
            high,
            log_index,
            log_strength,
            start,
            stop,
            of_elements,
        )
    steps.line_ends[row, 0], steps.line_ends[row, 1] = low, high
    for which in range(3 * n_ends):
        kind, first, last = settings.controls[which, 0], settings.controls[which, 1], settings.controls[which, 2]
        grad = grad_strengths[which]
        _control_backward(kind, own[first:last], strengths[which], grad, grad_logits[first:last])


@njit(**COMPILE)
def backward(
    settings: Any,
    weights: Any,
    sequence: Any,
    first_cell: Any,
    values: Any,
    layers: Any,
    steps: Any,
    grad_outputs: Any,
    grads: Any,
    grad_inputs: Any,
    grad_weights: Any,
    room: Any,
    grad_strengths: Any,
    living: Any,
) -> None:
    """Backwards through `forward`, whose arguments of the same names it was given or wrote.

    Args:
        weights: matrices as `gemm.pack` makes them.
        first_cell: before the first step [R, L, H].
        values: of all elements [R, M, D].
        steps: worked in.
        grad_outputs: [R, T, H].
        grads: `layout.States`: of the last states on entry, of the first on return; of values and strengths those of
            the first elements count then.
        grad_inputs: of x_t [R, T, E]; written.
        grad_weights: as in `controller.collect`; added to.
        room: `controller.Grads` for any number of steps, `logits` zeros.
        grad_strengths, living: to work in: [S], and M booleans.
    """
    n_rows, length, active = grad_outputs.shape[0], grad_outputs.shape[1], sequence.active
    n_logits, at_a_time = grad_weights.controls_bias.shape[0], room.gates.shape[1]
    for row in range(n_rows):
        living[:] = False
        for i in range(steps.line_ends[row, 0], steps.line_ends[row, 1]):
            living[steps.line_index[row, i]] = True
        for i in range(living.shape[0]):
            if not living[i]:
                grads.strengths[row, i] = 0

    for t in range(length - 1, -1, -1):
        place = t % at_a_time
        for row in range(n_rows):
            change = room.logits[place, row]
            if n_logits == 0 or (active.shape[1] > 0 and not active[row, t]):
                clear(change)
                continue
            _remember_backward(t, row, settings, values[row], steps, grads, change, grad_strengths)
            add(grad_weights.controls_bias, change)
        controller.step_backward(
            t,
            settings.kind,
            weights,
            active,
            sequence.dropped,
            first_cell,
            layers,
            grad_outputs,
            grads,
            grad_weights,
            room,
        )
        if place == 0:
            stop = min(t + at_a_time, length)
            controller.collect(t, stop, weights, layers, grad_inputs, grad_weights, room)
