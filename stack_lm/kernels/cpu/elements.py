"""Memories of elements with strengths, a step of one sequence forwards and backwards: stack, queue and deque.

A stack and a queue have one end at which they pop and read; a deque has two, the top first, and pushes at both. Its
strengths are (push, push, pop, pop, read, read); its two pushed values are concatenated, and so are its readings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import emission, strength
from .compilation import compiled
from .rows import clear, copy, squash, squash_backward

PUSH, POP, READ = range(3)
STACK, QUEUE, DEQUE = range(3)


class Elements(NamedTuple):
    """The memories of R sequences, with S = 3 strengths and a reading of size D, or 6 and 2 D for a deque.

    N is the number of elements on entry, M = N + T (a deque: N + 2 T) that on return.

    Attributes:
        kind: STACK, QUEUE or DEQUE.
        unread: elements that a step has just pushed at an end and does not read: 1 if it reads before it pushes, or 0.
        controls: of each strength [S, 3]: kind, first logit, and the one behind its last.
        fixed: their strengths where they are fixed [S].
        value_kind: activation of the pushed values.
        steps: T.
        values: [R, M, D]: the first elements on entry, with T places before them for a deque; all on return.
        strengths: [R, M]; likewise.
        actions: the strengths emitted [T, R, S].
        line: the living elements, M at most, with a log of N + 2 S / 3 T places.
        log_end: for each pop where it ends [T, R, S / 3].
        log_flags: and whether an element was shortened or dropped [T, R, S / 3, 2].
        logged: places of the log that are filled [R].
        stepped: whether a sequence has taken its first step [R]; zeros on entry.
    """

    kind: int
    unread: int
    controls: np.ndarray
    fixed: np.ndarray
    value_kind: int
    steps: int
    values: np.ndarray
    strengths: np.ndarray
    actions: np.ndarray
    line: strength.Line
    log_end: np.ndarray
    log_flags: np.ndarray
    logged: np.ndarray
    stepped: np.ndarray


class ElementsGrad(NamedTuple):
    """Gradients of the memories of R sequences: of the last elements on entry, of the first on return.

    Attributes:
        values, strengths: [R, M, D] and [R, M].
        actions: to work in [S].
        living: to work in [M].
    """

    values: np.ndarray
    strengths: np.ndarray
    actions: np.ndarray
    living: np.ndarray


@compiled
def _n_ends(memory: Elements) -> int:
    return 2 if memory.kind == DEQUE else 1


@compiled
def _read_ends(memory: Elements, low: int, high: int) -> tuple[int, int]:
    """The ends of what a step reads, from those after its pushes."""
    return low + memory.unread * (_n_ends(memory) - 1), high - memory.unread


@compiled
def _end(memory: Elements, e: int) -> int:
    """The e-th of the ends at which a memory pops and reads."""
    return strength.BOTTOM if memory.kind == QUEUE or e == 1 else strength.TOP


@compiled
def _pushed(memory: Elements, t: int, e: int) -> int:
    """The index of the element that step t pushes: at the top, or at a deque's bottom."""
    return memory.steps - 1 - t if e == 1 else memory.values.shape[1] - memory.steps + t


@compiled
def begin(memory: Elements, row: int, all_live: bool) -> None:
    """Take over the elements of a sequence on entry."""
    first, last = memory.steps * (_n_ends(memory) - 1), memory.values.shape[1] - memory.steps
    line = strength.line_of(memory.line, row)
    line.ends[0], line.ends[1] = first, last
    for i in range(first, last):
        line.elements[i] = i
        line.strength[i] = memory.strengths[row, i]


@compiled
def finish(memory: Elements, row: int) -> None:
    """Write out the strengths of a sequence's last elements."""
    clear(memory.strengths[row])
    line = strength.line_of(memory.line, row)
    for i in range(line.ends[0], line.ends[1]):
        memory.strengths[row, line.elements[i]] = line.strength[i]


@compiled
def skip(memory: Elements, t: int, row: int) -> None:
    """Skip a step of padding: its element is dead."""
    for e in range(_n_ends(memory)):
        memory.log_end[t, row, e] = memory.logged[row]
        clear(memory.values[row, _pushed(memory, t, e)])


@compiled
def step(memory: Elements, t: int, row: int, own: np.ndarray, reading: np.ndarray) -> None:
    """Run one step of one sequence.

    Args:
        own: the logits of its values and strengths; they become the values, sigmoids and distributions.
        reading: [D or 2 D]; written.
    """
    n_ends, depth = _n_ends(memory), memory.values.shape[2]
    actions, line = memory.actions[t, row], strength.line_of(memory.line, row)
    squash(own[: n_ends * depth], memory.value_kind)
    for which in range(3 * n_ends):
        logits = own[memory.controls[which, 1] : memory.controls[which, 2]]
        actions[which] = emission.strength(memory.controls[which, 0], memory.fixed[which], logits)
    low, high = line.ends[0], line.ends[1]
    for e in range(n_ends):
        low, high, memory.logged[row], memory.log_flags[t, row, e, 0], memory.log_flags[t, row, e, 1] = strength.pop(
            actions[n_ends * POP + e], _end(memory, e), line, low, high, memory.logged[row]
        )
        memory.log_end[t, row, e] = memory.logged[row]
        if not memory.stepped[row]:
            high = strength.drop_empty(line, low, high)
            memory.stepped[row] = True
    for e in range(n_ends):
        low, high, place = (low, high + 1, high) if e == 0 else (low - 1, high, low - 1)
        pushed = _pushed(memory, t, e)
        line.elements[place], line.strength[place] = pushed, actions[n_ends * PUSH + e]
        copy(memory.values[row, pushed], own[e * depth : (e + 1) * depth])
    first, last = _read_ends(memory, low, high)
    for e in range(n_ends):
        part = reading[e * depth : (e + 1) * depth]
        strength.read(actions[n_ends * READ + e], _end(memory, e), line, first, last, memory.values[row], part)
    line.ends[0], line.ends[1] = low, high


@compiled
def begin_backward(memory: Elements, grad: ElementsGrad, row: int) -> None:
    """Clear the gradients of the strengths of dead elements."""
    grad.living[:] = False
    line = strength.line_of(memory.line, row)
    for i in range(line.ends[0], line.ends[1]):
        grad.living[line.elements[i]] = True
    for i in range(grad.living.shape[0]):
        if not grad.living[i]:
            grad.strengths[row, i] = 0


@compiled
def step_backward(
    memory: Elements,
    grad: ElementsGrad,
    t: int,
    row: int,
    own: np.ndarray,
    grad_reading: np.ndarray,
    grad_logits: np.ndarray,
) -> None:
    """Backpropagate through `step`; the living elements are those before the step on return.

    Args:
        own: the values, sigmoids and distributions.
        grad_reading: [D or 2 D]; of no step before this one on return: zeros.
        grad_logits: of the logits of values and strengths; written.
    """
    n_ends, depth = _n_ends(memory), memory.values.shape[2]
    actions, line = memory.actions[t, row], strength.line_of(memory.line, row)
    low, high = line.ends[0], line.ends[1]
    first, last = _read_ends(memory, low, high)
    for e in range(n_ends):
        grad.actions[n_ends * READ + e] = strength.read_backward(
            actions[n_ends * READ + e],
            _end(memory, e),
            line,
            first,
            last,
            memory.values[row],
            grad_reading[e * depth : (e + 1) * depth],
            grad.strengths[row],
            grad.values[row],
        )
    clear(grad_reading)
    for e in range(n_ends):
        low, high = (low, high - 1) if e == 0 else (low + 1, high)
        pushed = _pushed(memory, t, e)
        grad.actions[n_ends * PUSH + e] = grad.strengths[row, pushed]
        of_value = slice(e * depth, (e + 1) * depth)
        squash_backward(own[of_value], memory.value_kind, grad.values[row, pushed], grad_logits[of_value])
    for e in range(n_ends - 1, -1, -1):
        start = memory.log_end[t, row, e - 1] if e > 0 else (memory.log_end[t - 1, row, n_ends - 1] if t > 0 else 0)
        low, high, grad.actions[n_ends * POP + e] = strength.pop_backward(
            _end(memory, e),
            memory.log_flags[t, row, e, 0],
            memory.log_flags[t, row, e, 1],
            line,
            low,
            high,
            start,
            memory.log_end[t, row, e],
            grad.strengths[row],
        )
    line.ends[0], line.ends[1] = low, high
    for which in range(3 * n_ends):
        first, last = memory.controls[which, 1], memory.controls[which, 2]
        emission.strength_backward(
            memory.controls[which, 0], own[first:last], actions[which], grad.actions[which], grad_logits[first:last]
        )
