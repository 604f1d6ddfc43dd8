"""The weights of a block in Triton, tile by tile, for GPUs: nothing of the size of elements x steps reaches memory.

As flash attention, without a softmax: a tile is S elements beside S steps. Both ends are treated alike, by counting
heights from either side: height 0 of an element is its top and height 1 minus its bottom, cut 0 of a step is a_t and
cut 1 is -b_t, and edge 0 of a window is its lower end and edge 1 minus its upper end. Then a pop cuts a height to the
least cut since the push, and a read at an end weighs an element by

    relu(near - max(far, edge))        near = its height at this end, far = -(its height at the other)

The least cut of an element up to a step is that of the rest of its own tile, of the tiles in between, or of the step's
tile so far; only a tile on the diagonal looks at each step. Of equal cuts the first one counts. That sends the same
gradients to amounts: a later cut to the same height ends between two elements, so its height is the first one's.

Heights are in float64, as in `intervals`: strengths that are nearly saturated come near to a tie at each step.
"""

import triton
import triton.language as tl


@triton.jit
def least_cuts(by, prefix, prefix_at, suffix, suffix_at, C, LENGTH, S: tl.constexpr):
    """The least cut within a tile, and its first step: of the steps up to each one, and of those behind it.

    Args:
        by: the cuts of all steps [2 B, C], inf at padding.
        prefix, prefix_at, suffix, suffix_at: results [2 B, LENGTH].
    """
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, S)
    least, behind = tl.full((S,), float("inf"), tl.float64), tl.full((S,), float("inf"), tl.float64)
    at, at_behind = tl.zeros((S,), tl.int32), tl.zeros((S,), tl.int32)
    for s in range(S):
        step = tile * S + s
        cut = tl.load(by + row * C + step, mask=step < C, other=float("inf"))
        hit = (s <= i) & (cut < least)
        least, at = tl.where(hit, cut, least), tl.where(hit, step, at)
        hit = (s > i) & (cut < behind)
        behind, at_behind = tl.where(hit, cut, behind), tl.where(hit, step, at_behind)
    place = row * LENGTH + tile * S + i
    tl.store(prefix + place, least)
    tl.store(prefix_at + place, at)
    tl.store(suffix + place, behind)
    tl.store(suffix_at + place, at_behind)


@triton.jit
def _lesser(first, first_at, later, later_at):
    """The lesser of two heights, and its step or node; the first one if they are equal."""
    return tl.where(first <= later, first, later), tl.where(first <= later, first_at, later_at)


@triton.jit
def _behind(suffix, suffix_at, place, own, between, between_at):
    """The least cut behind elements and before a tile of steps; `own`: those whose own tile comes before it."""
    first = tl.load(suffix + place, mask=own, other=float("inf"))
    return _lesser(first, tl.load(suffix_at + place, mask=own, other=0), between, between_at)


@triton.jit
def _further(between, between_at, prefix, prefix_at, last, passed):
    """`between` with one more tile, if it is passed; `last` is the place of its last step."""
    return _lesser(
        between,
        between_at,
        tl.load(prefix + last, mask=passed, other=float("inf")),
        tl.load(prefix_at + last, mask=passed, other=0),
    )


@triton.jit
def _cut(height, node, first, first_at, by, prefix, prefix_at, row, q, diagonal, CUTS, C, LENGTH, S: tl.constexpr):
    """What pops at one end leave of elements after each step of a tile, and the nodes of this [elements, steps].

    Args:
        height, node: of the elements [S].
        first, first_at: the least cut behind them.
        by, prefix, prefix_at: see `least_cuts`; `row` is one of their 2 B.
        q, diagonal: the tile, and whether it pushes the elements.
        CUTS: the node of the block's first cut.
    """
    i = tl.arange(0, S)
    if diagonal:
        least, at = tl.full((S, S), float("inf"), tl.float64), tl.zeros((S, S), tl.int32)
        for s in range(S):
            step = q * S + s
            cut = tl.load(by + row * C + step, mask=step < C, other=float("inf"))
            hit = (s > i[:, None]) & (s <= i[None, :]) & (cut < least)
            least, at = tl.where(hit, cut, least), tl.where(hit, step, at)
    else:
        steps = row * LENGTH + q * S + i
        so_far, so_far_at = tl.load(prefix + steps), tl.load(prefix_at + steps)
        least, at = _lesser(first[:, None], first_at[:, None], so_far[None, :], so_far_at[None, :])
    return _lesser(height[:, None], node[:, None], least, at + CUTS)


@triton.jit
def _weights(near, far, edge, there):
    every: tl.constexpr = tl.PropagateNan.ALL  # what is not finite is not hidden
    weights = near - tl.maximum(far, edge[None, :], propagate_nan=every)
    return tl.where(there, tl.maximum(weights, 0.0, propagate_nan=every), 0.0)


@triton.jit
def read(
    heights,
    places,
    by,
    prefix,
    prefix_at,
    suffix,
    suffix_at,
    edges,
    values,
    readings,
    B,
    N,
    C,
    K,
    M,
    LENGTH,
    END: tl.constexpr,
    GROUPS: tl.constexpr,
    UNREAD: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    S: tl.constexpr,
    SUMS: tl.constexpr,
):
    """The readings of a tile of steps at one end.

    Args:
        heights: of the block's elements [2, B, K]: N carried ones, then those that its C steps push, in GROUPS.
        places: of their vectors [B, K] in `values` [B, M, D].
        by, edges: of its steps [2, B, C].
        prefix, prefix_at, suffix, suffix_at: see `least_cuts`.
        readings: the result, in columns from FIRST on [B, C, WIDTH].
        END: 0 is the top.
        GROUPS: 2 if pops, reads and pushes are at both ends.
        UNREAD: 1 if steps read before they push.
        SUMS: the type of sums.
    """
    row, q = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, cols = tl.arange(0, S), tl.arange(0, BLOCK)
    t, near_row, far_row = q * S + i, END * B + row, (1 - END) * B + row
    edge = tl.load(edges + near_row * C + t, mask=t < C, other=float("inf"))
    lowest = tl.min(tl.where(edge == edge, edge, float("-inf")), axis=0)
    reading = tl.zeros((S, BLOCK), SUMS)
    between, between_far = tl.full((), float("inf"), tl.float64), tl.full((), float("inf"), tl.float64)
    none = tl.zeros((), tl.int32)
    for j in range(q + 1 + tl.cdiv(N, S)):  # tiles of elements: pushed ones from the newest on, then carried ones
        pushed, diagonal = j <= q, j == 0
        k = tl.where(pushed, q - j, j - q - 1)
        e = k * S + i
        for group in tl.static_range(GROUPS):
            inside = e < tl.where(pushed, C, N if group == 0 else 0)
            element = e + tl.where(pushed, N + group * C, 0)
            own = inside & pushed & ~diagonal
            height = tl.load(heights + near_row * K + element, mask=inside, other=0.0)
            height_far = tl.load(heights + far_row * K + element, mask=inside, other=0.0)
            first, _ = _behind(suffix, suffix_at, near_row * LENGTH + e, own, between, none)
            first_far, _ = _behind(suffix, suffix_at, far_row * LENGTH + e, own, between_far, none)
            most = tl.minimum(height, first)
            reached = ~(most <= lowest) & ~(most + tl.minimum(height_far, first_far) <= 0)
            if tl.max(reached.to(tl.int32), axis=0) > 0:
                near, _near_at = _cut(
                    height, e, first, e, by, prefix, prefix_at, near_row, q, diagonal, 0, C, LENGTH, S
                )
                far = -height_far[:, None]
                if GROUPS == 2:
                    opposite, _opposite_at = _cut(
                        height_far, e, first_far, e, by, prefix, prefix_at, far_row, q, diagonal, 0, C, LENGTH, S
                    )
                    far = -opposite
                there = ~pushed | (t[None, :] >= e[:, None] + UNREAD)
                place = tl.load(places + row * K + element, mask=inside, other=0)
                vectors = tl.load(
                    values + (row * M + place)[:, None] * D + cols[None, :],
                    mask=inside[:, None] & (cols[None, :] < D),
                    other=0.0,
                )
                weights = tl.trans(_weights(near, far, edge, there).to(SUMS).to(vectors.dtype))
                reading += tl.dot(weights, vectors, input_precision="ieee", out_dtype=SUMS)
        last, passed = k * S + S - 1, pushed & ~diagonal
        between, _ = _further(between, none, prefix, prefix_at, near_row * LENGTH + last, passed)
        between_far, _ = _further(between_far, none, prefix, prefix_at, far_row * LENGTH + last, passed)
    tl.store(
        readings + (row * C + t)[:, None] * WIDTH + FIRST + cols[None, :],
        reading.to(readings.dtype.element_ty),
        mask=(t[:, None] < C) & (cols[None, :] < D),
    )


@triton.jit
def read_back(
    heights,
    nodes,
    places,
    by,
    prefix,
    prefix_at,
    suffix,
    suffix_at,
    edges,
    values,
    grads,
    grad_nodes,
    grad_values,
    amounts,
    ties,
    B,
    N,
    C,
    K,
    M,
    LENGTH,
    NODES,
    CUTS_NEAR,
    CUTS_FAR,
    END: tl.constexpr,
    GROUPS: tl.constexpr,
    UNREAD: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    S: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Backpropagate through `read`, for a tile of elements; and find the pops that end between two elements.

    Args:
        nodes: of the heights [2, B, K].
        grads: of the readings [B, C, WIDTH], zeros at padding.
        grad_nodes, grad_values: to which their gradients are added [B, NODES] and [B, M, D].
        amounts: to which the gradients of the reads are added [2, B, C].
        ties: the results [2, B, C]: the node of the element at whose height a pop ends, or -1.
        CUTS_NEAR, CUTS_FAR: the nodes of the block's first cuts.
    """
    row, p = tl.program_id(0).to(tl.int64), tl.program_id(1)
    carried, tiles = tl.cdiv(N, S), tl.cdiv(C, S)
    pushed = p >= carried
    k = tl.where(pushed, (p - carried) % tiles, p)
    i, cols = tl.arange(0, S), tl.arange(0, BLOCK)
    e, near_row, far_row = k * S + i, END * B + row, (1 - END) * B + row
    inside = e < tl.where(pushed, C, N)
    element = e + tl.where(pushed, N + (p - carried) // tiles * C, 0)
    height = tl.load(heights + near_row * K + element, mask=inside, other=0.0)
    node = tl.load(nodes + near_row * K + element, mask=inside, other=0)
    height_far = tl.load(heights + far_row * K + element, mask=inside, other=0.0)
    node_far = tl.load(nodes + far_row * K + element, mask=inside, other=0)
    place = tl.load(places + row * K + element, mask=inside, other=0)
    of_vectors = (row * M + place)[:, None] * D + cols[None, :]
    exists = inside[:, None] & (cols[None, :] < D)
    vectors = tl.load(values + of_vectors, mask=exists, other=0.0)
    grad_vectors = tl.zeros((S, BLOCK), SUMS)
    between, between_far = tl.full((), float("inf"), tl.float64), tl.full((), float("inf"), tl.float64)
    between_at, between_far_at = tl.zeros((), tl.int32), tl.zeros((), tl.int32)
    for q in range(tl.where(pushed, k, 0), tiles):
        diagonal = pushed & (q == k)
        own = inside & pushed & ~diagonal
        t = q * S + i
        edge = tl.load(edges + near_row * C + t, mask=t < C, other=float("inf"))
        cut = tl.load(by + near_row * C + t, mask=t < C, other=float("inf"))
        first, first_at = _behind(suffix, suffix_at, near_row * LENGTH + e, own, between, between_at)
        first_far, first_far_at = _behind(suffix, suffix_at, far_row * LENGTH + e, own, between_far, between_far_at)
        most = tl.minimum(height, first)
        reached = (most >= tl.min(tl.minimum(edge, cut), axis=0)) & (most + tl.minimum(height_far, first_far) > 0)
        if diagonal | (tl.max(reached.to(tl.int32), axis=0) > 0):
            near, near_node = _cut(
                height, node, first, first_at, by, prefix, prefix_at, near_row, q, diagonal, CUTS_NEAR, C, LENGTH, S
            )
            far, far_node = -height_far[:, None], tl.broadcast_to(node_far[:, None], S, S)
            if GROUPS == 2:
                opposite, far_node = _cut(
                    height_far,
                    node_far,
                    first_far,
                    first_far_at,
                    by,
                    prefix,
                    prefix_at,
                    far_row,
                    q,
                    diagonal,
                    CUTS_FAR,
                    C,
                    LENGTH,
                    S,
                )
                far = -opposite
            there = ~pushed | (t[None, :] >= e[:, None] + UNREAD)
            before = ~pushed | (t[None, :] > e[:, None])
            alive = near > far
            grad = tl.load(
                grads + (row * C + t)[:, None] * WIDTH + FIRST + cols[None, :],
                mask=(t[:, None] < C) & (cols[None, :] < D),
                other=0.0,
            )
            weights = _weights(near, far, edge, there).to(SUMS).to(grad.dtype)
            grad_vectors += tl.dot(weights, grad, input_precision="ieee", out_dtype=SUMS)
            change = tl.dot(vectors, tl.trans(grad), input_precision="ieee", out_dtype=SUMS).to(tl.float64)
            empty = pushed & (UNREAD == 0) & inside[:, None] & (t[None, :] == e[:, None]) & ~alive
            whole = (there & alive & (far >= edge[None, :])) | empty
            part = there & alive & (far < edge[None, :]) & (edge[None, :] < near)
            # Minus a bottom is the height of the lower end.
            of_height = tl.where(whole | part, change, 0.0) * (1 - 2 * END)
            tl.atomic_add(grad_nodes + row * NODES + near_node, of_height, mask=of_height != 0)
            of_height = tl.where(whole, change, 0.0) * (2 * END - 1)
            tl.atomic_add(grad_nodes + row * NODES + far_node, of_height, mask=of_height != 0)
            tl.atomic_add(amounts + near_row * C + t, tl.sum(tl.where(part, change, 0.0), axis=0), mask=t < C)
            meets = before & alive & (near == cut[None, :]) & (near_node != CUTS_NEAR + t[None, :])
            tl.atomic_max(ties + near_row * C + t, tl.max(tl.where(meets, near_node, -1), axis=0), mask=t < C)
        last = q * S + S - 1
        between, between_at = _further(between, between_at, prefix, prefix_at, near_row * LENGTH + last, ~diagonal)
        between_far, between_far_at = _further(
            between_far, between_far_at, prefix, prefix_at, far_row * LENGTH + last, ~diagonal
        )
    tl.atomic_add(grad_values + of_vectors, grad_vectors, mask=exists)
