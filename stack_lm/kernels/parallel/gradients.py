"""Gradients of a parallel scan, by hand: to heights, then through the heights they come from, to strengths.

A weight is the difference of two heights, and its gradient goes to their nodes. Each height is another one and an
amount: hi_t = a_t + pushed; a_t = hi_{t-1} - popped, if the pop ends inside an element; and likewise at the bottom. So
the nodes are a tree, and the gradient of an amount is a sum over all heights that come from it.

Ties are as in memory/strength.py. Where a pop ends exactly between two elements, the height is that of the element that
is left, and the popped amount has no gradient. Where a pop takes everything, the height is constant. An element of
strength zero has a gradient from the reads of the step that pushes it, and from the next pop if it comes before the
element that this shortens; then it is gone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .intervals import Amounts, Block, Left, weights
from .scan import Run, Sequence


class Nodes:
    """The gradients of all heights, and the nodes that they come from; numbered as in `intervals`.

    Args:
        sequence: whose heights they are.
    """

    def __init__(self, sequence: Sequence) -> None:
        steps, (batch_size, n) = sequence.steps, sequence.strengths.shape
        self.steps, self.constant = steps, 4 * steps + n
        self.grads = sequence.strengths.new_zeros(batch_size, self.constant + 1)
        parents = torch.arange(self.constant + 1, device=self.grads.device)
        parents[steps : 2 * steps] -= steps  # hi_t comes from a_t
        parents[3 * steps : 4 * steps] -= steps
        parents[4 * steps : -1] -= 1
        if n:
            parents[4 * steps] = self.constant
        self.parents = parents.repeat(batch_size, 1)

    def named(self, name: str, of: Tensor | None = None) -> Tensor:
        """The gradients of a height over all steps [B, T], or other numbers of all nodes."""
        first = ("a", "hi", "b", "lo").index(name) * self.steps
        return (self.grads if of is None else of)[:, first : first + self.steps]

    def add(self, node: Tensor, grad: Tensor) -> None:
        """Add the gradients of some heights [B, K, C] to their nodes, which may be [B, K, 1]."""
        if node.shape[2] == 1:
            grad = grad.sum(2, keepdim=True)
        self.grads.scatter_add_(1, node.flatten(1), grad.flatten(1))

    def sum_up(self) -> None:
        """Add to each node's gradient those of all that come from it, in twice as long steps each time.

        That of the constant has no meaning then: it comes from itself.
        """
        for _ in range(self.constant.bit_length()):
            self.grads = self.grads.scatter_add(1, self.parents, self.grads)
            self.parents = self.parents.gather(1, self.parents)


def backward(
    sequence: Sequence, run: Run, grad_readings: Tensor, grad_strengths: Tensor
) -> tuple[Tensor, Tensor, Amounts]:
    """Backpropagate through `scan.run` and `scan.last_strengths`.

    Args:
        sequence: as it was given.
        run: its result; the readings are not used.
        grad_readings, grad_strengths: of the readings and of the last strengths of all elements.

    Returns:
        The gradients of the values, of the first strengths, and of the amounts, at padding too.
    """
    values, kind = sequence.values, sequence.kind
    nodes = Nodes(sequence)
    grad_values = torch.zeros_like(values, dtype=torch.promote_types(values.dtype, torch.float32))
    inside, grad_reads = [], []
    for start, heights, carried in zip(sequence.starts, run.heights, run.carried, strict=True):
        amounts, active = sequence.part(start)
        block = sequence.block(start, amounts, active, heights, carried)
        grads = grad_readings[:, start : start + heights.a.shape[1]]
        if sequence.in_tiles:
            from .tiles import Tiles

            of_reads, ties = Tiles(block, values).backward(grads, nodes.grads, grad_values)
        else:
            left = block.left()
            of_reads, ties = _of_reads(nodes, block, left, values, grads, grad_values), _find_ties(block, left)
        inside.append(_find_parents(nodes, block, ties))
        for of_end, sign, grad in zip((("hi", "a"), ("lo", "b")), (1, -1), of_reads, strict=True):
            if grad is not None:
                steps = slice(start, start + grad.shape[1])
                nodes.named(of_end[kind.before_push])[:, steps] -= sign * grad
        grad_reads.append([grad for grad in of_reads if grad is not None])
    last = run.last
    grad_last = grad_strengths.double().gather(1, last.place).masked_fill(~last.living, 0).unsqueeze(2)
    nodes.add(last.of_top.unsqueeze(2), grad_last)
    nodes.add(last.of_bottom.unsqueeze(2), -grad_last)
    direct = nodes.grads
    nodes.sum_up()
    pops = [torch.cat(parts, dim=1) for parts in zip(*inside, strict=True)]
    reads = [torch.cat(parts, dim=1) for parts in zip(*grad_reads, strict=True)]
    return grad_values.to(values.dtype), *_of_strengths(
        sequence, run, nodes, direct, pops, reads, grad_strengths.double()
    )


def _find_parents(nodes: Nodes, block: Block, ties: list[Tensor]) -> list[Tensor]:
    """Find the nodes that the heights after pops come from.

    Args:
        nodes: of which the parents are written.
        block: whose pops they are.
        ties: see `_find_ties`.

    Returns:
        Whether a pop ends inside an element [B, C]: at the top and, where the memory pops there, at the bottom.
    """
    steps, start = block.steps, block.start
    a, b = block.heights.a, block.heights.b
    t = torch.arange(start, start + a.shape[1], device=a.device)
    has_elements = nodes.constant > 4 * steps
    ends = [("a", steps, nodes.constant - has_elements, ties[0])]
    if block.kind.bottom:
        ends.append(("b", 3 * steps, nodes.constant, ties[1]))
    everything = a <= b
    held = torch.zeros_like(everything) if block.active is None else ~block.active
    inside = []
    for name, first, before, between in ends:
        behind = (first + t - 1).expand_as(a).clone()
        if start == 0:
            behind[:, 0] = before
        tie = (between >= 0) & ~held
        parent = torch.where(tie, between, behind).masked_fill(everything & ~held, nodes.constant)
        nodes.named(name, nodes.parents)[:, start : start + a.shape[1]] = parent
        inside.append(~(tie | everything | held))
    return inside


def _find_ties(block: Block, left: Left) -> list[Tensor]:
    """Find the pops that end exactly between two elements, at the top and at the bottom.

    Returns:
        The nodes of the heights at which they end, or -1 [B, C].
    """
    kind, (a, _, b, _) = block.kind, block.heights
    # What was left of the elements after the step before.
    cut = (kind.top, kind.bottom) * 2
    top, bottom, of_top, of_bottom = (
        torch.cat((first.unsqueeze(2), part[..., :-1]), dim=2) if works else part
        for first, part, works in zip(block.elements[1:], left, cut, strict=True)
    )
    living = block.there(before_push=True) & (top > bottom)
    meets = (
        (top == a.unsqueeze(1), of_top),
        ((bottom == b.unsqueeze(1)) & (torch.minimum(top, a.unsqueeze(1)) > bottom), of_bottom),
    )
    return [
        torch.where(living & met, node, -1).amax(1) if works else torch.full_like(a, -1, dtype=torch.long)
        for works, (met, node) in zip(cut[:2], meets, strict=True)
    ]


def _of_reads(
    nodes: Nodes, block: Block, left: Left, values: Tensor, grads: Tensor, grad_values: Tensor
) -> list[Tensor | None]:
    """Backpropagate through the readings of a block, to the values and the nodes.

    Returns:
        The gradients of the reads at the top and at the bottom [B, C].
    """
    kind = block.kind
    there, vectors = block.there(kind.before_push), block.vectors(values)
    living = there & (left.top > left.bottom)
    of_top, of_bottom = (torch.zeros_like(living, dtype=nodes.grads.dtype) for _ in range(2))
    empty = None
    if not kind.before_push:
        own = there & ~block.there(before_push=True)
        empty = own & (left.top <= left.bottom)
        if block.active is not None:
            empty = empty & block.active.unsqueeze(1)
    grad_vectors = torch.zeros_like(vectors)
    reads: list[Tensor | None] = [None, None]
    of_ends = iter(grads.split(values.shape[2], dim=2))
    for i, (window, end) in enumerate(zip(block.windows, ("top", "bottom"), strict=True)):
        if window is None:
            continue
        grad, edge = next(of_ends), window.unsqueeze(1)
        grad_vectors += weights(left, there, window, end).to(values.dtype) @ grad
        change = (vectors @ grad.mT).to(of_top.dtype)
        whole = living & (left.bottom >= edge if end == "top" else left.top <= edge)
        partly = living & (left.bottom < edge) & (edge < left.top)
        if empty is not None:
            whole = whole | empty
        of_whole, of_part = change.masked_fill(~whole, 0), change.masked_fill(~partly, 0)
        near, far = (of_top, of_bottom) if end == "top" else (of_bottom, of_top)
        sign = 1 if end == "top" else -1
        near += sign * (of_whole + of_part)
        far -= sign * of_whole
        reads[i] = of_part.sum(1)
    nodes.add(left.of_top, of_top)
    nodes.add(left.of_bottom, of_bottom)
    places = block.elements.place.unsqueeze(-1).expand_as(grad_vectors)
    grad_values.scatter_add_(1, places, grad_vectors.to(grad_values.dtype))
    return reads


def _of_strengths(
    sequence: Sequence,
    run: Run,
    nodes: Nodes,
    direct: Tensor,
    inside: list[Tensor],
    reads: list[Tensor],
    grad_last: Tensor,
) -> tuple[Tensor, Amounts]:
    """The gradients of the first strengths and of the amounts, from those of all nodes and from `direct` ones alone."""
    kind, amounts, steps, n = sequence.kind, sequence.amounts, sequence.steps, sequence.strengths.shape[1]
    active = sequence.active
    pushed = nodes.named("hi")
    empty = amounts.push_top == 0
    if not kind.top:
        pushed = torch.where(empty, nodes.named("hi", direct), pushed)
    before = steps * kind.pushes_at_bottom
    t = torch.arange(steps, device=pushed.device)
    if active is None:
        newest, none = t == steps - 1, t.new_zeros((), dtype=torch.bool)
        first_step = t.new_zeros(len(pushed))
    else:
        newest = t == torch.where(active, t, -1).amax(1, keepdim=True)
        none = ~active.any(1, keepdim=True)
        first_step = active.to(torch.int8).argmax(1)
    pushed = pushed + grad_last[:, before + n :].masked_fill(~(empty & newest), 0)
    pushed_bottom = None
    if amounts.push_bottom is not None:
        empty = amounts.push_bottom == 0
        pushed_bottom = -torch.where(empty, nodes.named("lo", direct), nodes.named("lo"))
        pushed_bottom = pushed_bottom + grad_last[:, :steps].flip(1).masked_fill(~(empty & newest), 0)
    pops = [
        None if amount is None else sign * nodes.named(name).masked_fill(~ends, 0)
        for amount, sign, name, ends in (
            (amounts.pop_top, -1, "a", inside[0]),
            (amounts.pop_bottom, 1, "b", inside[-1]),
        )
    ]
    found = iter(reads)
    read = [None if part is None else next(found) for part in (amounts.read_top, amounts.read_bottom)]
    first = nodes.grads[:, 4 * steps : 4 * steps + n]
    if n:
        name, sign, which = ("a", 1, 0) if kind.top else ("b", -1, 1)
        ends_at, shared, within = (
            torch.cat(part, dim=1) if isinstance(part, list) else part
            for part in ([getattr(heights, name) for heights in run.heights], sign * nodes.named(name), inside[which])
        )
        at_first = first_step.unsqueeze(1)
        passed = within.gather(1, at_first) & (sign * sequence.strengths.cumsum(1) > sign * ends_at.gather(1, at_first))
        dead = torch.where(passed, shared.gather(1, at_first), 0.0)
        dead = torch.where(none, grad_last[:, before : before + n], dead)
        first = torch.where(sequence.strengths == 0, dead, first)
    return first, Amounts(pushed, pushed_bottom, *pops, *read)
