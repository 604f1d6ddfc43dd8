"""The input buffer of a buffered network: a queue that is only popped and read, for one sequence at a time.

Hao et al. (2018), section 2.3: before each step the strength emitted at the last one is popped, then one element's
worth is read. See `memory.buffers`, whose `dequeue` this equals.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from . import emission, strength
from .compilation import compiled
from .rows import clear


class InputBuffer(NamedTuple):
    """The input buffers of R sequences, of N elements.

    Attributes:
        values: [R, N, E], from front to back.
        held: [R, N] bool: whether an element is in the buffer at first, with strength 1; or [R, 0], where all are.
        control: of the pop strength [3]: kind, first logit, and the one behind its last.
        fixed: the strength where it is fixed [1].
        emitted: the pop strength that each step emits [T, R].
        pending: the strength to pop at a sequence's next step [R]; zeros.
        log_index, log_strength: the log of pops [R, N + T].
        log_end: where a step's part of it begins and ends [T, R, 2].
        log_flags: see `strength.pop` [T, R, 2].
        line_index, line_strength, line_ends: the living elements, [R, N] and [R, 2].
    """

    values: np.ndarray
    held: np.ndarray
    control: np.ndarray
    fixed: np.ndarray
    emitted: np.ndarray
    pending: np.ndarray
    log_index: np.ndarray
    log_strength: np.ndarray
    log_end: np.ndarray
    log_flags: np.ndarray
    line_index: np.ndarray
    line_strength: np.ndarray
    line_ends: np.ndarray


class InputBufferGrad(NamedTuple):
    """Gradients of the input buffers of R sequences; zeros on entry.

    Attributes:
        values, strengths: [R, N, E] and [R, N].
        pending: of what was popped at the step behind [R].
    """

    values: np.ndarray
    strengths: np.ndarray
    pending: np.ndarray


@cache
def no_buffer(models: int, dtype: np.dtype) -> InputBuffer:
    """The input buffers of no sequences, for scans without one: Numba would compile a version of its own for None."""
    real, index, flag = ((lambda n, kind=kind: np.empty((models, *[0] * n), kind)) for kind in (dtype, np.int64, bool))
    place = np.empty((models, 0, 0), np.int32)
    return InputBuffer(
        values=real(3),
        held=flag(2),
        control=index(1),
        fixed=real(1),
        emitted=real(2),
        pending=real(1),
        log_index=place,
        log_strength=real(2),
        log_end=index(3),
        log_flags=flag(3),
        line_index=place,
        line_strength=real(2),
        line_ends=index(2),
    )


@cache
def no_buffer_grad(models: int, dtype: np.dtype) -> InputBufferGrad:
    """Their gradients."""
    return InputBufferGrad(*(np.empty((models, *[0] * n), dtype) for n in (3, 2, 1)))


@compiled
def begin_buffer(buffer: InputBuffer, row: int) -> None:
    """Fill the buffer of a sequence."""
    n = 0
    for i in range(buffer.values.shape[1]):
        if buffer.held.shape[1] == 0 or buffer.held[row, i]:
            buffer.line_index[row, n] = i
            buffer.line_strength[row, n] = 1
            n += 1
    buffer.line_ends[row, 0], buffer.line_ends[row, 1] = 0, n


@compiled
def dequeue(buffer: InputBuffer, t: int, row: int, logged: int, reading: np.ndarray) -> int:
    """Pop what is pending, then read one element's worth [E]; returns how many places of the log are filled."""
    index, line_strength = buffer.line_index[row], buffer.line_strength[row]
    amount = buffer.pending[row]
    buffer.log_end[t, row, 0] = logged
    low, high, logged, buffer.log_flags[t, row, 0], buffer.log_flags[t, row, 1] = strength.pop(
        amount,
        strength.BOTTOM,
        index,
        line_strength,
        buffer.line_ends[row, 0],
        buffer.line_ends[row, 1],
        buffer.log_index[row],
        buffer.log_strength[row],
        logged,
    )
    buffer.log_end[t, row, 1] = logged
    one = type(amount)(1)
    strength.read(one, strength.BOTTOM, index, line_strength, low, high, buffer.values[row], reading)
    buffer.line_ends[row, 0], buffer.line_ends[row, 1] = low, high
    return logged


@compiled
def emit(buffer: InputBuffer, t: int, row: int, own: np.ndarray) -> None:
    """Emit the strength of the next pop: the logits, those of a step, become its sigmoid or distribution."""
    logits = own[buffer.control[1] : buffer.control[2]]
    amount = emission.strength(buffer.control[0], buffer.fixed[0], logits)
    buffer.emitted[t, row], buffer.pending[row] = amount, amount


@compiled
def emit_backward(
    buffer: InputBuffer, grad: InputBufferGrad, t: int, row: int, own: np.ndarray, grad_logits: np.ndarray
) -> None:
    """Backwards through `emit`."""
    first, last = buffer.control[1], buffer.control[2]
    amount, change = buffer.emitted[t, row], grad.pending[row]
    emission.strength_backward(buffer.control[0], own[first:last], amount, change, grad_logits[first:last])


@compiled
def dequeue_backward(buffer: InputBuffer, grad: InputBufferGrad, t: int, row: int, grad_reading: np.ndarray) -> None:
    """Backwards through `dequeue`; the living elements are those before the step on return."""
    index, line_strength = buffer.line_index[row], buffer.line_strength[row]
    low, high = buffer.line_ends[row, 0], buffer.line_ends[row, 1]
    one = type(buffer.fixed[0])(1)
    strength.read_backward(
        one,
        strength.BOTTOM,
        index,
        line_strength,
        low,
        high,
        buffer.values[row],
        grad_reading,
        grad.strengths[row],
        grad.values[row],
    )
    low, high, grad.pending[row] = strength.pop_backward(
        strength.BOTTOM,
        buffer.log_flags[t, row, 0],
        buffer.log_flags[t, row, 1],
        index,
        line_strength,
        low,
        high,
        buffer.log_index[row],
        buffer.log_strength[row],
        buffer.log_end[t, row, 0],
        buffer.log_end[t, row, 1],
        grad.strengths[row],
    )
    buffer.line_ends[row, 0], buffer.line_ends[row, 1] = low, high


@compiled
def begin_buffer_backward(buffer: InputBuffer, grad: InputBufferGrad, row: int) -> None:
    """No gradient comes from behind the last step."""
    clear(grad.strengths[row])
    grad.pending[row] = 0
