"""One step of the controls and the stack, queue or deque on a GPU, forwards and backwards, one program per sequence.

An element whose strength has reached zero can never come back, so a list of the living ones is enough: their ids and
strengths stand in `index` and `strength` [B, C], in the places [lo, hi) from bottom to top. A pop takes whole elements
off one end and then shortens one; what it touched is logged, with the strength before. Backwards, the log is replayed
from its end. Over a sequence each element is taken off once, so the pops cost O(T) in all; a read costs the elements it
covers. Nothing here waits for the host: logs and lists are as long as they can ever get.

These functions equal the dense definition in memory/strength.py in results and gradients, ties included: an element
whose strength is exactly what is left of a pop or a read counts as taken whole.

An element pushed with strength zero is in the list but has no effect. In the dense definition it still has a gradient,
which its control then multiplies by a slope of zero; here its gradient is arbitrary.
A barrier separates one thread's writes from reads by other threads of the same program.

NOTE: Triton 3.6 fails on a loop that it knows is never entered, so strengths fixed at zero have none (NO_POP, NO_READ).
"""

import triton
import triton.language as tl

from .emission import emit, pushed_value, undo_emit, undo_value
from .pointwise import takes_step


@triton.jit
def _place(k, lo, hi, TOP: tl.constexpr):
    """The place of the k-th element from an end."""
    return hi - 1 - k if TOP else lo + k


@triton.jit
def _pop(amount, index, strength, log_index, log_strength, logged, lo, hi, TOP: tl.constexpr, SKIP: tl.constexpr):
    """Pop `amount` from one end; returns the list's ends, and the number of log entries used.

    The log has each touched element's id and its strength before. A shortened one, which stays in the list, comes last
    and as -1 - id.
    """
    if SKIP:
        return lo, hi, logged
    above = tl.zeros((), tl.float64)  # as torch sums on a CPU
    rest = amount
    going = (lo < hi) & ~(rest <= 0)
    while going:
        place = _place(0, lo, hi, TOP)
        end = tl.load(strength + place)
        which = tl.load(index + place)
        whole = end <= rest
        tl.store(log_index + logged, tl.where(whole, which, -1 - which))
        tl.store(log_strength + logged, end)
        logged += 1
        if whole:
            above += end
            if TOP:
                hi -= 1
            else:
                lo += 1
        else:
            tl.store(strength + place, end - rest)
        # In the precision of the strengths, so that a tie is one here too.
        rest = amount - above.to(amount.dtype)
        going = whole & (lo < hi) & ~(rest <= 0)
    return lo, hi, logged


@triton.jit
def _undo_pop(index, strength, log_index, log_strength, first, logged, grad_strengths, lo, hi, TOP: tl.constexpr):
    """Backpropagate through `_pop`, from the log's places [first, logged).

    Returns:
        The list's ends, the gradient of the shortened element (minus which is the pop's), and that element's id or -1.
    """
    shared = tl.zeros((), strength.dtype.element_ty)
    boundary = tl.full((), -1, tl.int32)
    while logged > first:
        logged -= 1
        entry = tl.load(log_index + logged)
        before = tl.load(log_strength + logged)
        if entry < 0:
            boundary = -1 - entry
            shared = tl.load(grad_strengths + boundary)
            tl.store(strength + _place(0, lo, hi, TOP), before)
        else:
            if TOP:
                hi += 1
            else:
                lo -= 1
            place = _place(0, lo, hi, TOP)
            tl.store(index + place, entry)
            tl.store(strength + place, before)
            # It is gone behind the pop, and counts only in what it left of the pop for the boundary.
            tl.store(grad_strengths + entry, shared)
    tl.debug_barrier()
    return lo, hi, shared, boundary


@triton.jit
def _read(amount, index, strength, values, cols, lo, hi, TOP: tl.constexpr, D: tl.constexpr, SKIP: tl.constexpr):
    """Read the elements at one end whose strengths add up to `amount`."""
    reading = tl.zeros(cols.shape, amount.dtype)
    if SKIP:
        return reading
    above = tl.zeros((), tl.float64)
    rest = amount
    k = lo - lo
    going = (lo < hi) & ~(rest <= 0)
    while going:
        place = _place(k, lo, hi, TOP)
        weight = tl.load(strength + place)
        element = values + tl.load(index + place).to(tl.int64) * D
        whole = weight <= rest
        weight = tl.where(whole, weight, rest)
        reading += weight * tl.load(element + cols, mask=cols < D, other=0.0)
        above += weight
        k += 1
        rest = amount - above.to(amount.dtype)
        going = whole & (lo + k < hi) & ~(rest <= 0)
    return reading


@triton.jit
def _undo_read(
    amount,
    index,
    strength,
    values,
    grad,
    grad_strengths,
    grad_values,
    cols,
    lo,
    hi,
    TOP: tl.constexpr,
    D: tl.constexpr,
    SKIP: tl.constexpr,
):
    """Backpropagate through `_read`, from the reading's gradient; returns the gradient of the amount."""
    if SKIP:
        return tl.zeros((), amount.dtype)
    count = lo - lo
    above = tl.zeros((), tl.float64)
    rest = amount
    change = tl.zeros((), amount.dtype)
    going = (lo < hi) & ~(rest <= 0)
    while going:
        place = _place(count, lo, hi, TOP)
        weight = tl.load(strength + place)
        whole = weight <= rest
        if whole:
            count += 1
            above += weight
            rest = amount - above.to(amount.dtype)
        else:
            at = tl.load(index + place).to(tl.int64) * D + cols
            change = tl.sum(grad * tl.load(values + at, mask=cols < D, other=0.0), axis=0)
            total = tl.load(grad_values + at, mask=cols < D, other=0.0) + rest * grad
            tl.store(grad_values + at, total, mask=cols < D)
        going = whole & (lo + count < hi) & ~(rest <= 0)
    for k in range(count):
        place = _place(k, lo, hi, TOP)
        which = tl.load(index + place)
        at = which.to(tl.int64) * D + cols
        through = tl.sum(grad * tl.load(values + at, mask=cols < D, other=0.0), axis=0) - change
        tl.store(grad_strengths + which, tl.load(grad_strengths + which) + through)
        total = tl.load(grad_values + at, mask=cols < D, other=0.0) + tl.load(strength + place) * grad
        tl.store(grad_values + at, total, mask=cols < D)
    tl.debug_barrier()
    return change


@triton.jit(do_not_specialize=["t", "B", "T", "N", "C", "LOG"])
def forward(
    logits,
    values,
    index,
    strength,
    ends,
    logged,
    log_index,
    log_strength,
    log_starts,
    bias,
    active,
    reading,
    given,
    t,
    B,
    T,
    N,
    C,
    LOG,
    DEQUE: tl.constexpr,
    AT_TOP: tl.constexpr,
    UNREAD: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    PUSH: tl.constexpr,
    POP: tl.constexpr,
    READ: tl.constexpr,
    PUSHED: tl.constexpr,
    POPPED: tl.constexpr,
    READS: tl.constexpr,
    TANH: tl.constexpr,
    GIVEN: tl.constexpr,
    GIVEN_FROM: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Run one step: emit the actions, pop, push, read.

    Args:
        logits: of all controls, without their bias [T, B, P]: values first, then push, pop and read strengths; of a
            deque, each for the top and then for the bottom.
        values: of all elements by id [B, C, D]. The ids run from the bottom to the top of all that could be there.
        index, strength, ends: the living elements [B, C], [B, C] and [B, 2]; updated.
        logged, log_index, log_strength: the log of pops [B], [B, LOG] and [B, LOG]; appended to.
        log_starts: where each pop's part of the log starts [T, B, pops]; row t is written.
        bias: [P].
        active: [T, B], where MASKED; others keep everything.
        reading: [B, R]; updated.
        given: the readings, as the last columns of all that a controller is given, if there is one [T + 1, B, GIVEN];
            this step's goes to row t + 1, from column GIVEN_FROM on.
        T, N, C, LOG: steps, elements in the initial state, capacity of lists and log.
        AT_TOP: whether the one end where it pops and reads is the top; a DEQUE has both.
        UNREAD: elements just pushed at an end that are not read: 1 if it reads before it pushes, or 0.
        PUSH, POP, READ: number of logits of each strength; see `emit`. PUSHED, POPPED, READS: where these are fixed.
    """
    DTYPE: tl.constexpr = strength.dtype.element_ty
    POPS: tl.constexpr = 2 if DEQUE else 1
    NO_POP: tl.constexpr = POP == 0 and POPPED == 0
    NO_READ: tl.constexpr = READ == 0 and READS == 0
    b = tl.program_id(0).to(tl.int64)
    place = t.to(tl.int64) * B + b
    cols = tl.arange(0, BLOCK)
    inside = cols < D
    own = logits + place * P
    next_given = given + (place + B) * GIVEN + GIVEN_FROM
    reading += b * (POPS * D)
    if takes_step(active, place, MASKED):
        values += b * C * D
        index += b * C
        strength += b * C
        log_index += b * LOG
        log_strength += b * LOG
        lo = tl.load(ends + 2 * b)
        hi = tl.load(ends + 2 * b + 1)
        count = tl.load(logged + b)
        pushes: tl.constexpr = POPS * D
        pops: tl.constexpr = pushes + POPS * PUSH
        reads: tl.constexpr = pops + POPS * POP

        tl.store(log_starts + place * POPS, count)
        amount = emit(own, bias, pops, POP, POPPED, DTYPE)
        lo, hi, count = _pop(amount, index, strength, log_index, log_strength, count, lo, hi, AT_TOP, NO_POP)
        if DEQUE:
            tl.debug_barrier()
            tl.store(log_starts + place * POPS + 1, count)
            amount = emit(own, bias, pops + POP, POP, POPPED, DTYPE)
            lo, hi, count = _pop(amount, index, strength, log_index, log_strength, count, lo, hi, False, NO_POP)

        top = N + t + (T if DEQUE else 0)
        tl.store(values + top.to(tl.int64) * D + cols, pushed_value(own, bias, 0, cols, D, TANH, DTYPE), mask=inside)
        tl.store(index + hi, top)
        tl.store(strength + hi, emit(own, bias, pushes, PUSH, PUSHED, DTYPE))
        hi += 1
        if DEQUE:
            bottom = T - 1 - t
            tl.store(
                values + bottom.to(tl.int64) * D + cols, pushed_value(own, bias, D, cols, D, TANH, DTYPE), mask=inside
            )
            lo -= 1
            tl.store(index + lo, bottom)
            tl.store(strength + lo, emit(own, bias, pushes + PUSH, PUSH, PUSHED, DTYPE))
        tl.debug_barrier()

        from_ = lo + (UNREAD if DEQUE else 0)
        to = hi - UNREAD
        amount = emit(own, bias, reads, READ, READS, DTYPE)
        read = _read(amount, index, strength, values, cols, from_, to, AT_TOP, D, NO_READ)
        tl.store(reading + cols, read, mask=inside)
        tl.store(next_given + cols, read, mask=inside)
        if DEQUE:
            amount = emit(own, bias, reads + READ, READ, READS, DTYPE)
            read = _read(amount, index, strength, values, cols, from_, to, False, D, NO_READ)
            tl.store(reading + D + cols, read, mask=inside)
            tl.store(next_given + D + cols, read, mask=inside)
        tl.store(ends + 2 * b, lo)
        tl.store(ends + 2 * b + 1, hi)
        tl.store(logged + b, count)
    else:
        tl.store(next_given + cols, tl.load(reading + cols, mask=inside), mask=inside)
        if DEQUE:
            tl.store(next_given + D + cols, tl.load(reading + D + cols, mask=inside), mask=inside)


@triton.jit(do_not_specialize=["t", "B", "T", "N", "C", "LOG"])
def backward(
    logits,
    values,
    index,
    strength,
    ends,
    logged,
    log_index,
    log_strength,
    log_starts,
    bias,
    active,
    grad_reading,
    grad_values,
    grad_strengths,
    grad_logits,
    first_shared,
    first_boundary,
    grad_given,
    t,
    B,
    T,
    N,
    C,
    LOG,
    DEQUE: tl.constexpr,
    AT_TOP: tl.constexpr,
    UNREAD: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    PUSH: tl.constexpr,
    POP: tl.constexpr,
    READ: tl.constexpr,
    PUSHED: tl.constexpr,
    POPPED: tl.constexpr,
    READS: tl.constexpr,
    TANH: tl.constexpr,
    GIVEN: tl.constexpr,
    GIVEN_FROM: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Backpropagate through `forward`; its arguments are as they were after step t on entry, and before it on return.

    Args:
        grad_reading: of the reading, besides what comes through grad_given [B, R]: behind this step on entry, before it
            on return.
        grad_values, grad_strengths: of all elements by id [B, C, D] and [B, C]; updated.
        grad_logits: row t is written [T, B, P].
        first_shared, first_boundary: what `_undo_pop` returned for the step's first pop [B]; written.
        grad_given: of row t + 1 of `given` [B, GIVEN].
    """
    DTYPE: tl.constexpr = strength.dtype.element_ty
    POPS: tl.constexpr = 2 if DEQUE else 1
    NO_READ: tl.constexpr = READ == 0 and READS == 0
    b = tl.program_id(0).to(tl.int64)
    place = t.to(tl.int64) * B + b
    cols = tl.arange(0, BLOCK)
    inside = cols < D
    own = logits + place * P
    own_grad = grad_logits + place * P
    grad_given += b * GIVEN + GIVEN_FROM
    grad_reading += b * (POPS * D)
    grad = tl.load(grad_reading + cols, mask=inside, other=0.0)
    grad += tl.load(grad_given + cols, mask=inside, other=0.0).to(DTYPE)
    if DEQUE:
        grad_bottom = tl.load(grad_reading + D + cols, mask=inside, other=0.0)
        grad_bottom += tl.load(grad_given + D + cols, mask=inside, other=0.0).to(DTYPE)
    if takes_step(active, place, MASKED):
        values += b * C * D
        grad_values += b * C * D
        index += b * C
        strength += b * C
        grad_strengths += b * C
        log_index += b * LOG
        log_strength += b * LOG
        lo = tl.load(ends + 2 * b)
        hi = tl.load(ends + 2 * b + 1)
        pushes: tl.constexpr = POPS * D
        pops: tl.constexpr = pushes + POPS * PUSH
        reads: tl.constexpr = pops + POPS * POP
        top = N + t + (T if DEQUE else 0)
        bottom = T - 1 - t
        top_push = tl.load(strength + hi - 1)
        bottom_push = tl.load(strength + lo)
        from_ = lo + (UNREAD if DEQUE else 0)
        to = hi - UNREAD

        amount = emit(own, bias, reads, READ, READS, DTYPE)
        grad_amount = _undo_read(
            amount, index, strength, values, grad, grad_strengths, grad_values, cols, from_, to, AT_TOP, D, NO_READ
        )
        undo_emit(own, bias, reads, amount, grad_amount, own_grad, READ, READS, DTYPE)
        if DEQUE:
            amount = emit(own, bias, reads + READ, READ, READS, DTYPE)
            grad_amount = _undo_read(
                amount,
                index,
                strength,
                values,
                grad_bottom,
                grad_strengths,
                grad_values,
                cols,
                from_,
                to,
                False,
                D,
                NO_READ,
            )
            undo_emit(own, bias, reads + READ, amount, grad_amount, own_grad, READ, READS, DTYPE)

        at = top.to(tl.int64) * D
        undo_value(values + at, 0, grad_values + at, own_grad, cols, D, TANH)
        grad_push = tl.load(grad_strengths + top)
        undo_emit(own, bias, pushes, top_push, grad_push, own_grad, PUSH, PUSHED, DTYPE)
        hi -= 1
        if DEQUE:
            at = bottom.to(tl.int64) * D
            undo_value(values + at, D, grad_values + at, own_grad, cols, D, TANH)
            grad_push = tl.load(grad_strengths + bottom)
            undo_emit(own, bias, pushes + PUSH, bottom_push, grad_push, own_grad, PUSH, PUSHED, DTYPE)
            lo += 1

        behind = tl.load(logged + b)
        if DEQUE:
            start = tl.load(log_starts + place * POPS + 1)
            lo, hi, shared, boundary = _undo_pop(
                index, strength, log_index, log_strength, start, behind, grad_strengths, lo, hi, False
            )
            amount = emit(own, bias, pops + POP, POP, POPPED, DTYPE)
            undo_emit(own, bias, pops + POP, amount, -shared, own_grad, POP, POPPED, DTYPE)
            behind = start
        start = tl.load(log_starts + place * POPS)
        lo, hi, shared, boundary = _undo_pop(
            index, strength, log_index, log_strength, start, behind, grad_strengths, lo, hi, AT_TOP
        )
        amount = emit(own, bias, pops, POP, POPPED, DTYPE)
        undo_emit(own, bias, pops, amount, -shared, own_grad, POP, POPPED, DTYPE)
        tl.store(first_shared + b, shared)
        tl.store(first_boundary + b, boundary)
        tl.debug_barrier()  # the loads above must not see these
        tl.store(ends + 2 * b, lo)
        tl.store(ends + 2 * b + 1, hi)
        tl.store(logged + b, start)
        tl.store(grad_reading + cols, tl.zeros_like(grad), mask=inside)
        if DEQUE:
            tl.store(grad_reading + D + cols, tl.zeros_like(grad), mask=inside)
    else:
        tl.store(grad_reading + cols, grad, mask=inside)
        if DEQUE:
            tl.store(grad_reading + D + cols, grad_bottom, mask=inside)
        i = tl.arange(0, triton.next_power_of_2(P))
        tl.store(own_grad + i, tl.zeros_like(i).to(DTYPE), mask=i < P)
