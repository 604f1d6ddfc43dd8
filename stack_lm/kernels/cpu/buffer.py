"""The input buffer of a buffered network: a queue that is only popped and read, for one sequence at a time.

Hao et al. (2018), section 2.3: before each step the strength emitted at the last one is popped, then one element's
worth is read. See `memory.buffers`, whose `dequeue` this equals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import emission, strength
from .compilation import compiled


class InputBuffer(NamedTuple):
    """The input buffers of R sequences, of N elements.

    Attributes:
        values: [R, N, E], from front to back.
        held: [R, N] bool: whether an element is in the buffer at first, with strength 1; or [R, 0], where all are.
        control: of the pop strength [3]: kind, first logit, and the one behind its last.
        fixed: the strength where it is fixed [1].
        emitted: the pop strength that each step emits [T, R].
        pending: the strength to pop at a sequence's next step [R]; zeros.
        logged: number of log entries used [R]; zeros.
        line: the living elements, N at most, with a log of N + T places.
        log_end: where a step's part of it begins and ends [T, R, 2].
        log_flags: see `strength.pop` [T, R, 2].
    """

    values: np.ndarray
    held: np.ndarray
    control: np.ndarray
    fixed: np.ndarray
    emitted: np.ndarray
    pending: np.ndarray
    logged: np.ndarray
    line: strength.Line
    log_end: np.ndarray
    log_flags: np.ndarray


class InputBufferGrad(NamedTuple):
    """Gradients of the input buffers of R sequences; zeros on entry.

    Attributes:
        values, strengths: [R, N, E] and [R, N].
        pending: of what was popped at the step behind [R].
    """

    values: np.ndarray
    strengths: np.ndarray
    pending: np.ndarray


@compiled
def begin_buffer(buffer: InputBuffer, row: int) -> None:
    """Fill the buffer of a sequence."""
    line, n = strength.line_of(buffer.line, row), 0
    for i in range(buffer.values.shape[1]):
        if buffer.held.shape[1] == 0 or buffer.held[row, i]:
            line.elements[n] = i
            line.strength[n] = 1
            n += 1
    line.ends[0], line.ends[1] = 0, n


@compiled
def dequeue(buffer: InputBuffer, t: int, row: int, reading: np.ndarray) -> None:
    """Pop the pending strength, then read one element's worth [E]."""
    line = strength.line_of(buffer.line, row)
    amount = buffer.pending[row]
    buffer.log_end[t, row, 0] = buffer.logged[row]
    low, high, buffer.logged[row], buffer.log_flags[t, row, 0], buffer.log_flags[t, row, 1] = strength.pop(
        amount, strength.BOTTOM, line, line.ends[0], line.ends[1], buffer.logged[row]
    )
    buffer.log_end[t, row, 1] = buffer.logged[row]
    one = type(amount)(1)
    strength.read(one, strength.BOTTOM, line, low, high, buffer.values[row], reading)
    line.ends[0], line.ends[1] = low, high


@compiled
def emit(buffer: InputBuffer, t: int, row: int, own: np.ndarray) -> None:
    """Emit the strength of the next pop; a step's logits become its sigmoid or distribution in place."""
    logits = own[buffer.control[1] : buffer.control[2]]
    amount = emission.strength(buffer.control[0], buffer.fixed[0], logits)
    buffer.emitted[t, row], buffer.pending[row] = amount, amount


@compiled
def emit_backward(
    buffer: InputBuffer, grad: InputBufferGrad, t: int, row: int, own: np.ndarray, grad_logits: np.ndarray
) -> None:
    """Backpropagate through `emit`."""
    first, last = buffer.control[1], buffer.control[2]
    amount, change = buffer.emitted[t, row], grad.pending[row]
    emission.strength_backward(buffer.control[0], own[first:last], amount, change, grad_logits[first:last])


@compiled
def dequeue_backward(buffer: InputBuffer, grad: InputBufferGrad, t: int, row: int, grad_reading: np.ndarray) -> None:
    """Backpropagate through `dequeue`; the living elements are those before the step on return."""
    line = strength.line_of(buffer.line, row)
    low, high = line.ends[0], line.ends[1]
    one = type(buffer.fixed[0])(1)
    strength.read_backward(
        one, strength.BOTTOM, line, low, high, buffer.values[row], grad_reading, grad.strengths[row], grad.values[row]
    )
    low, high, grad.pending[row] = strength.pop_backward(
        strength.BOTTOM,
        buffer.log_flags[t, row, 0],
        buffer.log_flags[t, row, 1],
        line,
        low,
        high,
        buffer.log_end[t, row, 0],
        buffer.log_end[t, row, 1],
        grad.strengths[row],
    )
    line.ends[0], line.ends[1] = low, high
