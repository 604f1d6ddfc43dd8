"""Backpropagation through a step of the nondeterministic stack on a GPU.

The kernels share the arguments of those of `moves`.
Gradients are those of the table's logarithms and means. `grad_top` [B, P] is that of the last column's tops: behind a
step on entry, before it on return.
"""

import triton
import triton.language as tl

from .moves import _NOTHING, _ZERO, _first, _pairs, _share, _tile
from .pointwise import takes_step


@triton.jit(do_not_specialize=["t", "B", "C", "R", "WINDOW"], do_not_specialize_on_alignment=["grad_given"])
def unsettle(
    logs,
    values,
    tops,
    totals,
    vectors,
    counts,
    active,
    grad_logs,
    grad_values,
    grad_top,
    grad_reading,
    grad_logits,
    grad_given,
    t,
    B,
    C,
    R,
    WINDOW,
    Q: tl.constexpr,
    S: tl.constexpr,
    P: tl.constexpr,
    M: tl.constexpr,
    READ_STATES: tl.constexpr,
    TANH: tl.constexpr,
    GIVEN: tl.constexpr,
    GIVEN_FROM: tl.constexpr,
    DEPTH: tl.constexpr,
    MASKED: tl.constexpr,
    Q2: tl.constexpr,
    S2: tl.constexpr,
    MB: tl.constexpr,
    E: tl.constexpr,
    DB: tl.constexpr,
):
    """Backpropagate through the reading, `settle` and the vector: on return the column's gradients are of the sums."""
    MOVES: tl.constexpr = P * (2 * P + Q)
    SIZE: tl.constexpr = max(M, 1)
    DTYPE: tl.constexpr = logs.dtype.element_ty
    b = tl.program_id(0).to(tl.int64)
    here = t.to(tl.int64) * B + b
    grad_reading += b * DEPTH
    grad_given += b * GIVEN + GIVEN_FROM
    own_grad = grad_logits + here * (MOVES + M)
    if takes_step(active, here, MASKED):
        c = tl.load(counts + here)
        end = (c + 1 - _first(c, WINDOW)) * P
        ry, inside = _pairs(Q, S, Q2, S2)
        column = (b * C + c) * R * (P * P)
        top = tl.load(tops + (b * C + c) * P + ry, mask=inside, other=_ZERO)
        total = tl.load(totals + (b * C + c) * P + ry, mask=inside, other=_ZERO)
        probability = tl.where(top <= _NOTHING, 0, tl.exp(top))
        of_top = tl.load(grad_top + b * P + ry, mask=inside, other=0.0)
        for first in range(0, SIZE, MB):
            j = first + tl.arange(0, MB)
            read_at = (ry if READ_STATES else ry % S)[:, :, None] * SIZE + j[None, None]
            wanted = inside[:, :, None] & (j < SIZE)[None, None]
            grad = tl.load(grad_reading + read_at, mask=wanted, other=0.0)
            grad += tl.load(grad_given + read_at, mask=wanted, other=0.0).to(DTYPE)
            grad *= probability[:, :, None]
            if M == 0:
                of_top += tl.sum(grad, axis=2)
            else:
                for start in range(0, end, E):
                    at, there = _tile(start, end, ry, inside, P, E)
                    shares = tl.exp(tl.load(logs + column + at, mask=there, other=_ZERO))
                    places = ((column + at) * M)[:, :, :, None] + j[None, None, None]
                    all_there = there[:, :, :, None] & (j < M)[None, None, None]
                    mean = tl.load(values + places, mask=all_there, other=0.0)
                    of_mean = tl.load(grad_values + places, mask=all_there, other=0.0)
                    of_mean += shares[:, :, :, None] * grad[None]
                    tl.store(grad_values + places, of_mean, mask=all_there)
                    of_share = shares * tl.sum(mean * grad[None], axis=3)
                    of_top += tl.sum(of_share, axis=0)
                    of_share += tl.load(grad_logs + column + at, mask=there, other=0.0)
                    tl.store(grad_logs + column + at, of_share, mask=there)
                tl.debug_barrier()
        of_all = tl.zeros((Q2, S2), DTYPE)
        for start in range(0, end, E):
            at, there = _tile(start, end, ry, inside, P, E)
            of_all += tl.sum(tl.load(grad_logs + column + at, mask=there, other=0.0), axis=0)
        of_total = of_top - probability * tl.sum(tl.sum(of_top, axis=1), axis=0)
        of_total = tl.where(total <= _NOTHING, 0, of_total) - of_all
        tl.debug_barrier()
        for start in range(0, end, E):
            at, there = _tile(start, end, ry, inside, P, E)
            shares = tl.load(logs + column + at, mask=there, other=_ZERO)
            of_sum = tl.load(grad_logs + column + at, mask=there, other=0.0) + tl.exp(shares) * of_total[None]
            tl.store(grad_logs + column + at, tl.where(shares <= _NOTHING, 0, of_sum), mask=there)
        if M > 0:
            for first in range(0, M, MB):
                j = first + tl.arange(0, MB)
                grad = tl.zeros((Q2, S2, MB), DTYPE)
                for qx in range(P):
                    at = column + (end - P + qx) * P + ry
                    grad += tl.load(
                        grad_values + (at * M)[:, :, None] + j[None, None],
                        mask=inside[:, :, None] & (j < M)[None, None],
                        other=0.0,
                    )
                vector = tl.load(vectors + here * M + j, mask=j < M, other=0.0)
                slope = 1 - vector * vector if TANH else vector * (1 - vector)
                tl.store(own_grad + MOVES + j, slope * tl.sum(tl.sum(grad, axis=0), axis=0), mask=j < M)
        tl.debug_barrier()
        for start in range(0, DEPTH, DB):
            cols = start + tl.arange(0, DB)
            tl.store(grad_reading + cols, tl.zeros((DB,), DTYPE), mask=cols < DEPTH)
        tl.store(grad_top + b * P + ry, of_total + of_all, mask=inside)
    else:
        for start in range(0, DEPTH, DB):
            cols = start + tl.arange(0, DB)
            grad = tl.load(grad_reading + cols, mask=cols < DEPTH, other=0.0)
            grad += tl.load(grad_given + cols, mask=cols < DEPTH, other=0.0).to(DTYPE)
            tl.store(grad_reading + cols, grad, mask=cols < DEPTH)
        for start in range(0, MOVES + M, DB):
            cols = start + tl.arange(0, DB)
            tl.store(own_grad + cols, tl.zeros((DB,), DTYPE), mask=cols < MOVES + M)


@triton.jit(do_not_specialize=["t", "B", "C", "R", "WINDOW"])
def unreveal(
    logs,
    values,
    totals,
    revealed,
    counts,
    active,
    grad_logs,
    grad_values,
    grad_revealed,
    t,
    B,
    C,
    R,
    WINDOW,
    Q: tl.constexpr,
    S: tl.constexpr,
    P: tl.constexpr,
    M: tl.constexpr,
    MASKED: tl.constexpr,
    Q2: tl.constexpr,
    S2: tl.constexpr,
    MB: tl.constexpr,
    E: tl.constexpr,
):
    """Backpropagate through the pops of `move`, to the tops at one time k that have one state u.

    It adds to the gradients of their part of column k, and writes those of `revealed` there.
    """
    b, k, u = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    here = t.to(tl.int64) * B + b
    c = tl.load(counts + here)
    first = _first(c, WINDOW)
    if takes_step(active, here, MASKED) and k < c - 1 - first:
        DTYPE: tl.constexpr = logs.dtype.element_ty
        ry, inside = _pairs(Q, S, Q2, S2)
        y = tl.arange(0, S2)
        new, end = (b * C + c) * R * (P * P), (k + 1) * P
        column = (b * C + first + k) * R * (P * P) + (first - _first(first + k, WINDOW)) * (P * P)
        total = tl.load(totals + (b * C + c) * P + ry, mask=inside, other=_ZERO)
        places = (b * R + k) * (P * Q) + ((u * S + y) * Q)[None, :] + ry // S
        weight = tl.load(revealed + places, mask=inside, other=_ZERO)
        of_weight = tl.zeros((Q2, S2), DTYPE)
        for start in range(0, end, E):
            at, there = _tile(start, end, ry, inside, P, E)
            e = start + tl.arange(0, E)
            below_at = column + (e * P)[:, None] + (u * S + y)[None, :]
            below_there = (e < end)[:, None] & (y < S)[None, :]
            below = tl.load(logs + below_at, mask=below_there, other=_ZERO)
            shares = tl.load(logs + new + at, mask=there, other=_ZERO)
            found = tl.where(shares <= _NOTHING, _ZERO, shares + total[None])
            share = _share(below[:, None, :] + weight[None], found)
            of_term = tl.load(grad_logs + new + at, mask=there, other=0.0)
            if M > 0:
                for start_of_vector in range(0, M, MB):
                    j = start_of_vector + tl.arange(0, MB)
                    new_at = ((new + at) * M)[:, :, :, None] + j[None, None, None]
                    new_there = there[:, :, :, None] & (j < M)[None, None, None]
                    old_at = (below_at * M)[:, :, None] + j[None, None]
                    old_there = below_there[:, :, None] & (j < M)[None, None]
                    grad = tl.load(grad_values + new_at, mask=new_there, other=0.0)
                    mean = tl.load(values + old_at, mask=old_there, other=0.0)
                    mean = mean[:, None] - tl.load(values + new_at, mask=new_there, other=0.0)
                    of_term += tl.sum(grad * mean, axis=3)
                    of_mean = tl.load(grad_values + old_at, mask=old_there, other=0.0)
                    of_mean += tl.sum(share[:, :, :, None] * grad, axis=1)
                    tl.store(grad_values + old_at, of_mean, mask=old_there)
            of_term = tl.where(share == 0, 0, share * of_term)
            of_below = tl.load(grad_logs + below_at, mask=below_there, other=0.0) + tl.sum(of_term, axis=1)
            tl.store(grad_logs + below_at, of_below, mask=below_there)
            of_weight += tl.sum(of_term, axis=0)
        tl.store(grad_revealed + places, of_weight, mask=inside)


@triton.jit(do_not_specialize=["t", "B", "C", "R", "WINDOW"])
def unweigh(
    logs,
    values,
    tops,
    totals,
    moves,
    revealed,
    counts,
    active,
    grad_logs,
    grad_values,
    grad_top,
    grad_revealed,
    grad_logits,
    t,
    B,
    C,
    R,
    WINDOW,
    Q: tl.constexpr,
    S: tl.constexpr,
    P: tl.constexpr,
    M: tl.constexpr,
    NORMALIZE: tl.constexpr,
    MASKED: tl.constexpr,
    Q2: tl.constexpr,
    S2: tl.constexpr,
    MB: tl.constexpr,
    E: tl.constexpr,
):
    """Backpropagate through the replacements of one top, `reveal` and `weigh`.

    The gradients are those of its part of the last column before, and of the logits of its moves.
    """
    MOVES: tl.constexpr = P * (2 * P + Q)
    b, sz = tl.program_id(0).to(tl.int64), tl.program_id(1)
    here = t.to(tl.int64) * B + b
    if takes_step(active, here, MASKED):
        DTYPE: tl.constexpr = logs.dtype.element_ty
        ry, inside = _pairs(Q, S, Q2, S2)
        r = tl.arange(0, Q2)
        c = tl.load(counts + here)
        first = _first(c, WINDOW)
        end = (c - first) * P
        new = (b * C + c) * R * (P * P)
        present = (b * C + c - 1) * R * (P * P) + (first - _first(c - 1, WINDOW)) * (P * P) + sz
        own, own_grad = moves + here * MOVES, grad_logits + here * (MOVES + M)
        pushes, replacements, pops = sz * P + ry, (P + sz) * P + ry, 2 * P * P + sz * Q + r
        top = tl.load(tops + (b * C + c - 1) * P + sz)
        total = tl.load(totals + (b * C + c) * P + ry, mask=inside, other=_ZERO)
        replace = tl.load(own + replacements, mask=inside, other=_ZERO)
        pop = tl.load(own + pops, mask=r < Q, other=_ZERO)
        popped = b * R * (P * Q)
        of_replace, of_pop = tl.zeros((Q2, S2), DTYPE), tl.zeros((Q2,), DTYPE)
        for start in range(0, end, E):
            at, there = _tile(start, end, ry, inside, P, E)
            e = start + tl.arange(0, E)
            below = tl.load(logs + present + e * P, mask=e < end, other=_ZERO)
            shares = tl.load(logs + new + at, mask=there, other=_ZERO)
            found = tl.where(shares <= _NOTHING, _ZERO, shares + total[None])
            share = _share(below[:, None, None] + (replace + top)[None], found)
            of_term = tl.load(grad_logs + new + at, mask=there, other=0.0)
            if M > 0:
                for start_of_vector in range(0, M, MB):
                    j = start_of_vector + tl.arange(0, MB)
                    new_at = ((new + at) * M)[:, :, :, None] + j[None, None, None]
                    new_there = there[:, :, :, None] & (j < M)[None, None, None]
                    old_at = ((present + e * P) * M)[:, None] + j[None]
                    old_there = (e < end)[:, None] & (j < M)[None]
                    grad = tl.load(grad_values + new_at, mask=new_there, other=0.0)
                    mean = tl.load(values + old_at, mask=old_there, other=0.0)
                    mean = mean[:, None, None] - tl.load(values + new_at, mask=new_there, other=0.0)
                    of_term += tl.sum(grad * mean, axis=3)
                    of_mean = tl.load(grad_values + old_at, mask=old_there, other=0.0)
                    of_mean += tl.sum(tl.sum(share[:, :, :, None] * grad, axis=1), axis=1)
                    tl.store(grad_values + old_at, of_mean, mask=old_there)
            of_term = tl.where(share == 0, 0, share * of_term)
            of_replace += tl.sum(of_term, axis=0)
            popped_at = popped + ((e - P) * Q)[:, None] + r[None]
            popped_there = ((e >= P) & (e < end))[:, None] & (r < Q)[None]
            found_below = tl.load(revealed + popped_at, mask=popped_there, other=_ZERO)
            share = _share(below[:, None] + (pop + top)[None], found_below)
            of_popped = tl.load(grad_revealed + popped_at, mask=popped_there, other=0.0)
            of_popped = tl.where(share == 0, 0, share * of_popped)
            of_pop += tl.sum(of_popped, axis=0)
            of_below = tl.load(grad_logs + present + e * P, mask=e < end, other=0.0)
            of_below += tl.sum(tl.sum(of_term, axis=1), axis=1) + tl.sum(of_popped, axis=1)
            tl.store(grad_logs + present + e * P, of_below, mask=e < end)
        of_push = tl.load(grad_logs + new + (end + sz) * P + ry, mask=inside, other=0.0)
        of_row = tl.sum(tl.sum(of_push + of_replace, axis=1), axis=0) + tl.sum(of_pop, axis=0)
        tl.store(grad_top + b * P + sz, of_row)
        if NORMALIZE:
            of_push -= of_row * tl.exp(tl.load(own + pushes, mask=inside, other=_ZERO))
            of_replace -= of_row * tl.exp(replace)
            of_pop -= of_row * tl.exp(pop)
        tl.store(own_grad + pushes, of_push, mask=inside)
        tl.store(own_grad + replacements, of_replace, mask=inside)
        tl.store(own_grad + pops, of_pop, mask=r < Q)
