"""One step of the nondeterministic stack on a GPU, forwards and backwards, in logarithms.

See `stack_lm.memory.nondeterministic` for the definition. A step fills one column of a table: for each row e, a time i
and a pair qx below, and each pair ry at the top, the logarithm of a share and the mean of the vectors. Column c has the
rows of the times from `_first(c)` to c, the last of which are those of the symbols pushed.

Forwards there are four launches: `weigh` (a program per sequence and top), `reveal` (per time), `move` (per block of
rows) and `settle` (per sequence). Backwards, each program owns what it adds to, so that nothing is atomic and the sums
have one order: `unsettle`, `reveal` again, `unreveal` (per column and state) and `unweigh` (per top).

A pair ry is two dimensions of a tile, r and y, padded to powers of two. Logarithms at or below ZERO / 2 stand for 0.
NaN passes all comparisons here, so that it arrives at the reading.
"""

import triton
import triton.language as tl

from .pointwise import sigmoid, takes_step, tanh

_ZERO = tl.constexpr(-1e30)
_NOTHING = tl.constexpr(-5e29)


@triton.jit
def _first(c, WINDOW):
    """The first time that column c remembers."""
    return tl.maximum(c - WINDOW + 1, 0)


@triton.jit
def _highest(terms, axis: tl.constexpr):
    """The highest number; ZERO in place of NaN, which the sum then passes on."""
    return tl.max(tl.where(terms == terms, terms, _ZERO), axis=axis)


@triton.jit
def _add(term, most, total):
    """Add exp(term) to a sum, kept as `total` times exp(most)."""
    next_most = tl.maximum(most, term)
    return next_most, total * tl.exp(most - next_most) + tl.where(term <= _NOTHING, 0, tl.exp(term - next_most))


@triton.jit
def _log(most, total):
    """The logarithm of such a sum."""
    return tl.where(total == 0, _ZERO, most + tl.log(tl.where(total == 0, 1, total)))


@triton.jit
def _share(term, total):
    """exp(term - total); 0 of nothing."""
    nothing = (term <= _NOTHING) | (total <= _NOTHING)
    return tl.where(nothing, 0, tl.exp(tl.where(nothing, 0, term - total)))


@triton.jit
def _pairs(Q: tl.constexpr, S: tl.constexpr, Q2: tl.constexpr, S2: tl.constexpr):
    """Pairs ry as a tile [Q2, S2], and which there are."""
    r, y = tl.arange(0, Q2)[:, None], tl.arange(0, S2)[None, :]
    return r * S + y, (r < Q) & (y < S)


@triton.jit
def _row_weights(logits, bias, first, cols, inside, DTYPE: tl.constexpr):
    """Some of a row's log weights, those of nothing behind the last."""
    own = tl.load(logits + first + cols, mask=inside, other=0.0).to(DTYPE)
    own += tl.load(bias + first + cols, mask=inside, other=0.0).to(DTYPE)
    return tl.where(inside & ~(own < _ZERO), own, _ZERO)


@triton.jit(do_not_specialize=["t", "B"])
def weigh(
    logits,
    bias,
    moves,
    vectors,
    active,
    t,
    B,
    Q: tl.constexpr,
    P: tl.constexpr,
    M: tl.constexpr,
    NORMALIZE: tl.constexpr,
    TANH: tl.constexpr,
    MASKED: tl.constexpr,
    P2: tl.constexpr,
    Q2: tl.constexpr,
    MB: tl.constexpr,
):
    """Emit the moves from one top, and the first program the vector.

    Args:
        logits: without bias [T, B, W]: P rows of P pushes, P rows of P replacements, P rows of Q pops, then the vector.
        bias: [W].
        moves: log weights in the same order [T, B, W - M]; row t is written.
        vectors: [T, B, M]; likewise.
    """
    DTYPE: tl.constexpr = moves.dtype.element_ty
    MOVES: tl.constexpr = P * (2 * P + Q)
    b, sz = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = t.to(tl.int64) * B + b
    if takes_step(active, place, MASKED):
        own, moves = logits + place * (MOVES + M), moves + place * MOVES
        i, r = tl.arange(0, P2), tl.arange(0, Q2)
        pushes, replacements, pops = sz * P, (P + sz) * P, 2 * P * P + sz * Q
        push = _row_weights(own, bias, pushes, i, i < P, DTYPE)
        replace = _row_weights(own, bias, replacements, i, i < P, DTYPE)
        pop = _row_weights(own, bias, pops, r, r < Q, DTYPE)
        if NORMALIZE:
            most = tl.maximum(tl.maximum(_highest(push, 0), _highest(replace, 0)), _highest(pop, 0))
            total = tl.sum(tl.where(i < P, tl.exp(push - most) + tl.exp(replace - most), 0), axis=0)
            total += tl.sum(tl.where(r < Q, tl.exp(pop - most), 0), axis=0)
            total = most + tl.log(total)
            push, replace, pop = push - total, replace - total, pop - total
        tl.store(moves + pushes + i, push, mask=i < P)
        tl.store(moves + replacements + i, replace, mask=i < P)
        tl.store(moves + pops + r, pop, mask=r < Q)
        if M > 0 and sz == 0:
            for start in range(0, M, MB):
                j = start + tl.arange(0, MB)
                value = tl.load(own + MOVES + j, mask=j < M, other=0.0).to(DTYPE)
                value += tl.load(bias + MOVES + j, mask=j < M, other=0.0).to(DTYPE)
                tl.store(vectors + place * M + j, tanh(value) if TANH else sigmoid(value), mask=j < M)


@triton.jit(do_not_specialize=["t", "B", "C", "R", "WINDOW"])
def reveal(
    logs,
    tops,
    moves,
    revealed,
    counts,
    active,
    t,
    B,
    C,
    R,
    WINDOW,
    Q: tl.constexpr,
    P: tl.constexpr,
    MASKED: tl.constexpr,
    P2: tl.constexpr,
):
    """Compute the states and tops that pops reveal at one time k.

    Args:
        logs: the table [B, C, R, P, P]: column, time counted from `_first`, qx, ry.
        tops: [B, C, P].
        revealed: at [k - first, uy, r]: that pops put u, y at the top, in state r [B, R, P, Q]; written.
        counts: [T + 1, B], the columns that there are before each step.
    """
    b, place = tl.program_id(0).to(tl.int64), tl.program_id(1)
    here = t.to(tl.int64) * B + b
    c = tl.load(counts + here)
    first = _first(c, WINDOW)
    if takes_step(active, here, MASKED) and place < c - 1 - first:
        MOVES: tl.constexpr = P * (2 * P + Q)
        uy, sz = tl.arange(0, P2), tl.arange(0, P2)
        inside = (uy < P)[:, None] & (sz < P)[None, :]
        column = logs + (b * C + c - 1) * R * (P * P)
        row = (place + 1 + first - _first(c - 1, WINDOW)) * P
        present = tl.load(column + (row + uy)[:, None] * P + sz[None, :], mask=inside, other=_ZERO)
        present += tl.load(tops + (b * C + c - 1) * P + sz, mask=sz < P, other=_ZERO)[None, :]
        pops = moves + here * MOVES + 2 * P * P
        target = revealed + (b * R + place) * (P * Q)
        for r in range(Q):
            term = present + tl.load(pops + sz * Q + r, mask=sz < P, other=_ZERO)[None, :]
            most = _highest(term, 1)
            total = tl.sum(tl.where(term <= _NOTHING, 0, tl.exp(term - most[:, None])), axis=1)
            tl.store(target + uy * Q + r, _log(most, total), mask=uy < P)


@triton.jit(do_not_specialize=["t", "B", "C", "R", "WINDOW"])
def move(
    logs,
    values,
    tops,
    moves,
    vectors,
    revealed,
    counts,
    active,
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
    """E rows of a new column, as sums over all moves that lead there: `settle` makes them shares.

    Args:
        values: the means of vectors [B, C, R, P, P, M]; a program has MB of their numbers.
    """
    MOVES: tl.constexpr = P * (2 * P + Q)
    b = tl.program_id(0).to(tl.int64)
    here = t.to(tl.int64) * B + b
    c = tl.load(counts + here)
    first, before = _first(c, WINDOW), _first(c - 1, WINDOW)
    kept = (c - first) * P
    start = tl.program_id(1) * E
    if takes_step(active, here, MASKED) and start < kept + P:
        DTYPE: tl.constexpr = logs.dtype.element_ty
        STRIDE: tl.constexpr = P * P
        e, y = start + tl.arange(0, E), tl.arange(0, S2)
        ry, inside = _pairs(Q, S, Q2, S2)
        time = e // P
        old = e < kept
        own, table = moves + here * MOVES, logs + b * C * R * STRIDE
        present = table + (c - 1).to(tl.int64) * R * STRIDE + (e + (first - before) * P) * P
        top = tops + (b * C + c - 1) * P
        popped = revealed + b * R * (P * Q)
        last_time = c - 1 - first

        # Pushes start the sum, with one term in the rows of the last time.
        pushed = (e >= kept) & (e < kept + P)
        of_push = tl.load(
            own + ((e - kept) * P)[:, None, None] + ry[None], mask=pushed[:, None, None] & inside[None], other=_ZERO
        )
        of_push += tl.load(top + e - kept, mask=pushed, other=0.0)[:, None, None]
        most = tl.where(of_push <= _NOTHING, _ZERO, of_push)
        total = tl.where(of_push <= _NOTHING, 0, tl.full((E, Q2, S2), 1, DTYPE))
        for sz in range(P):
            weight = tl.load(own + (P + sz) * P + ry, mask=inside, other=_ZERO) + tl.load(top + sz)
            term = tl.load(present + sz, mask=old, other=_ZERO)[:, None, None] + weight[None]
            most, total = _add(term, most, total)
        for k in range(start // P, last_time):
            column = table + (first + k).to(tl.int64) * R * STRIDE
            rows = column + (e + (first - _first(first + k, WINDOW)) * P) * P
            there = (old & (time <= k))[:, None] & (y < S)[None, :]
            for u in range(Q):
                below = tl.load(rows[:, None] + (u * S + y)[None, :], mask=there, other=_ZERO)
                weight = tl.load(popped + ((k * P + u * S + y) * Q)[None, :] + ry // S, mask=inside, other=_ZERO)
                most, total = _add(below[:, None, :] + weight[None], most, total)
        found = _log(most, total)
        at = (b * C + c) * R * STRIDE + (e * P)[:, None, None] + ry[None]
        where = (old | pushed)[:, None, None] & inside[None]
        if tl.program_id(2) == 0:
            tl.store(logs + at, found, mask=where)

        if M > 0:
            j = tl.program_id(2) * MB + tl.arange(0, MB)
            means = values + b * C * R * (STRIDE * M) + j[None, :]
            present_means = (c - 1).to(tl.int64) * R * (STRIDE * M) + ((e + (first - before) * P) * P).to(tl.int64) * M
            vector = tl.load(vectors + here * M + j, mask=j < M, other=0.0)
            result = tl.where(pushed[:, None, None, None], vector[None, None, None, :], 0.0)
            result += tl.zeros((E, Q2, S2, MB), DTYPE)
            for sz in range(P):
                weight = tl.load(own + (P + sz) * P + ry, mask=inside, other=_ZERO) + tl.load(top + sz)
                term = tl.load(present + sz, mask=old, other=_ZERO)[:, None, None] + weight[None]
                mean = tl.load(means + (present_means + sz * M)[:, None], mask=old[:, None] & (j < M)[None], other=0.0)
                result += _share(term, found)[:, :, :, None] * mean[:, None, None, :]
            for k in range(start // P, last_time):
                row = e + (first - _first(first + k, WINDOW)) * P
                place = (first + k).to(tl.int64) * R * STRIDE + row * P
                there = (old & (time <= k))[:, None] & (y < S)[None, :]
                for u in range(Q):
                    pair = place[:, None] + (u * S + y)[None, :]
                    below = tl.load(table + pair, mask=there, other=_ZERO)
                    weight = tl.load(popped + ((k * P + u * S + y) * Q)[None, :] + ry // S, mask=inside, other=_ZERO)
                    share = _share(below[:, None, :] + weight[None], found)
                    wanted = there[:, :, None] & (j < M)[None, None]
                    mean = tl.load(
                        values + b * C * R * (STRIDE * M) + (pair * M)[:, :, None] + j[None, None],
                        mask=wanted,
                        other=0.0,
                    )
                    result += share[:, :, :, None] * mean[:, None]
            tl.store(
                values + (at * M)[:, :, :, None] + j[None, None, None],
                result,
                mask=where[:, :, :, None] & (j < M)[None, None, None],
            )


@triton.jit
def _tile(start, end, ry, inside, P: tl.constexpr, E: tl.constexpr):
    """Places of E rows of a column [E, Q2, S2], and which of them there are."""
    e = start + tl.arange(0, E)
    return (e * P)[:, None, None] + ry[None], (e < end)[:, None, None] & inside[None]


@triton.jit(do_not_specialize=["t", "B", "C", "R", "WINDOW"])
def settle(
    logs,
    values,
    tops,
    totals,
    counts,
    active,
    reading,
    given,
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
    """Make the sums of a column shares of their totals, and read.

    Args:
        tops, totals: of each column [B, C, P]; row c is written.
        reading, given: as in `strength.forward`; the reading has DEPTH numbers.
    """
    b = tl.program_id(0).to(tl.int64)
    here = t.to(tl.int64) * B + b
    reading += b * DEPTH
    given += (here + B) * GIVEN + GIVEN_FROM
    if takes_step(active, here, MASKED):
        DTYPE: tl.constexpr = logs.dtype.element_ty
        c = tl.load(counts + here)
        end = (c + 1 - _first(c, WINDOW)) * P
        ry, inside = _pairs(Q, S, Q2, S2)
        column = (b * C + c) * R * (P * P)
        most, total = tl.full((Q2, S2), _ZERO, DTYPE), tl.zeros((Q2, S2), DTYPE)
        for start in range(0, end, E):
            at, there = _tile(start, end, ry, inside, P, E)
            terms = tl.load(logs + column + at, mask=there, other=_ZERO)
            highest = _highest(terms, 0)
            sums = tl.sum(tl.where(terms <= _NOTHING, 0, tl.exp(terms - highest[None])), axis=0)
            next_most = tl.maximum(most, highest)
            total = total * tl.exp(most - next_most) + sums * tl.exp(highest - next_most)
            most = next_most
        total = _log(most, total)
        most = _highest(_highest(total, 1), 0)
        of_all = tl.where(total <= _NOTHING, 0, tl.exp(total - most))
        of_all = _log(most, tl.sum(tl.sum(of_all, axis=1), axis=0))
        top = tl.where(total <= _NOTHING, _ZERO, total - of_all)
        tl.store(totals + (b * C + c) * P + ry, total, mask=inside)
        tl.store(tops + (b * C + c) * P + ry, top, mask=inside)
        probability = tl.where(inside & ~(top <= _NOTHING), tl.exp(top), 0)
        for start in range(0, end, E):
            at, there = _tile(start, end, ry, inside, P, E)
            terms = tl.load(logs + column + at, mask=there, other=_ZERO)
            shares = tl.where((terms <= _NOTHING) | (total <= _NOTHING)[None], _ZERO, terms - total[None])
            tl.store(logs + column + at, shares, mask=there)
        tl.debug_barrier()
        for first in range(0, max(M, 1), MB):
            j = first + tl.arange(0, MB)
            read = tl.zeros((Q2, S2, MB), DTYPE) + probability[:, :, None]
            if M > 0:
                mean = tl.zeros((Q2, S2, MB), DTYPE)
                for start in range(0, end, E):
                    at, there = _tile(start, end, ry, inside, P, E)
                    shares = tl.exp(tl.load(logs + column + at, mask=there, other=_ZERO))
                    vectors = tl.load(
                        values + ((column + at) * M)[:, :, :, None] + j[None, None, None],
                        mask=there[:, :, :, None] & (j < M)[None, None, None],
                        other=0.0,
                    )
                    mean += tl.sum(shares[:, :, :, None] * vectors, axis=0)
                read *= mean
            SIZE: tl.constexpr = max(M, 1)
            if READ_STATES:
                at = ry[:, :, None] * SIZE + j[None, None]
                wanted = inside[:, :, None] & (j < SIZE)[None, None]
                tl.store(reading + at, read, mask=wanted)
                tl.store(given + at, read, mask=wanted)
            else:
                y = tl.arange(0, S2)
                at = y[:, None] * SIZE + j[None]
                wanted = (y < S)[:, None] & (j < SIZE)[None]
                tl.store(reading + at, tl.sum(read, axis=0), mask=wanted)
                tl.store(given + at, tl.sum(read, axis=0), mask=wanted)
    else:
        for start in range(0, DEPTH, DB):
            cols = start + tl.arange(0, DB)
            tl.store(given + cols, tl.load(reading + cols, mask=cols < DEPTH), mask=cols < DEPTH)
