"""Elements with strengths as intervals: the heights of a memory over time, and what pops have left of each element.

The memory is an interval [lo, hi] of heights, and each element occupies its own part of it. At step t

    a_t = hi_{t-1} - popped at the top        hi_t = a_t + pushed at the top
    b_t = lo_{t-1} + popped at the bottom     lo_t = b_t - pushed at the bottom

where pops end at the other end. An element is pushed as [a_t, hi_t] or [lo_t, b_t]. Later pops cut it: what is left of
it lies between the largest b and the smallest a since its push. A read of rho takes [hi_t - rho, hi_t], or
[lo_t, lo_t + rho], and an element's weight is the length of its intersection with that. So heights need one cumulative
sum and one cumulative maximum, and everything else is elementwise.

Steps come in blocks, and only living elements are carried from one block to the next, so time is linear. Heights are in
float64 and begin anew in each block at lo = 0. Strengths are rounded to a grid of 2^-44 elements, on which sums below
512 elements are exact: ties are ties in whatever order one adds, and chunking does not change strengths.

Every height is also a node, with a number, because gradients flow to heights first (`gradients`). With T steps and N
first elements, a_t is number t, hi_t T + t, b_t 2 T + t, lo_t 3 T + t, the top of the i-th first element 4 T + i,
and 4 T + N stands for every height that is constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_GRID = 2.0**44


class Kind(NamedTuple):
    """The ends at which a memory works: it pops and reads at the same ones, and pushes at the top.

    Attributes:
        top, bottom: whether it pops and reads there.
        pushes_at_bottom: whether it pushes there too.
        before_push: whether it reads before it pushes.
    """

    top: bool
    bottom: bool
    pushes_at_bottom: bool
    before_push: bool


class Amounts(NamedTuple):
    """The strengths of all steps [B, T], zeros at padding; None where the memory does not work at that end."""

    push_top: Tensor
    push_bottom: Tensor | None
    pop_top: Tensor | None
    pop_bottom: Tensor | None
    read_top: Tensor | None
    read_bottom: Tensor | None

    def map(self, function: Callable[[Tensor], Tensor]) -> Amounts:
        """Apply a function to those that there are."""
        parts: Any = (None if part is None else function(part) for part in self)
        return Amounts(*parts)


class Heights(NamedTuple):
    """The ends of the memory over the steps of a block [B, C], after the pops (a, b) and after the pushes (hi, lo)."""

    a: Tensor
    hi: Tensor
    b: Tensor
    lo: Tensor


class Elements(NamedTuple):
    """Elements in any order [B, K].

    Attributes:
        place: in the state after the last step, from bottom to top.
        top, bottom: heights; an element with top = bottom is dead.
        of_top, of_bottom: the nodes that these heights are.
    """

    place: Tensor
    top: Tensor
    bottom: Tensor
    of_top: Tensor
    of_bottom: Tensor

    @property
    def living(self) -> Tensor:
        """The living ones [B, K]."""
        return self.top > self.bottom

    def joined_with(self, others: Elements) -> Elements:
        """These, and then the others."""
        return Elements(*(torch.cat(pair, dim=1) for pair in zip(self, others, strict=True)))

    def keep(self, kept: Tensor) -> Elements:
        """Only the elements where `kept` [B, K] is true; sequences with fewer have dead ones too."""
        most, elements = int(kept.sum(1).max()) if kept.numel() else 0, self
        if most < kept.shape[1]:
            order = (~kept).to(torch.int8).argsort(dim=1, stable=True)[:, :most]
            kept, elements = kept.gather(1, order), Elements(*(part.gather(1, order) for part in self))
        return elements._replace(top=elements.top.masked_fill(~kept, 0), bottom=elements.bottom.masked_fill(~kept, 0))

    def down(self, height: Tensor) -> Elements:
        """With heights counted from another zero [B]."""
        return self._replace(top=self.top - height.unsqueeze(1), bottom=self.bottom - height.unsqueeze(1))


class Left(NamedTuple):
    """The rest of elements after each step [B, K, C], or [B, K, 1] if it is the same: heights and their nodes."""

    top: Tensor
    bottom: Tensor
    of_top: Tensor
    of_bottom: Tensor


def on_grid(strengths: Tensor) -> Tensor:
    """Round strengths to numbers of which sums are exact."""
    return torch.round(strengths.double() * _GRID) / _GRID


def first_elements(strengths: Tensor, steps: int, kind: Kind) -> Elements:
    """The elements of the state before the first step, whose strengths [B, N] are on the grid."""
    batch_size, n = strengths.shape
    top = strengths.cumsum(1)
    place = torch.arange(n, device=strengths.device).expand(batch_size, n)
    of_top = place + 4 * steps
    of_bottom = (of_top - 1).masked_fill(place == 0, 4 * steps + n)
    return Elements(place + steps * kind.pushes_at_bottom, top, top - strengths, of_top, of_bottom)


def walk(content: Tensor, amounts: Amounts) -> Heights:
    """The heights of a block that begins with `content` [B] in the memory, from height 0."""
    content, none = content.unsqueeze(1), torch.zeros_like(amounts.push_top)
    push = amounts.push_top if amounts.push_bottom is None else amounts.push_top + amounts.push_bottom
    full = content + push.cumsum(1)  # what there is after each step if nothing is popped
    pop_top, pop_bottom = (
        none if part is None else part.minimum(full[:, -1:]) for part in (amounts.pop_top, amounts.pop_bottom)
    )

    def before_step(pops: Tensor) -> Tensor:
        free = full - push - pops.cumsum(1)
        middle = free + torch.relu((-free).cummax(1).values)
        return torch.cat((content, (middle + push)[:, :-1]), dim=1)

    # Pops far beyond the content would make sums that are not exact. The first time limits them, to what is there and
    # one element more, as it may err; the second is exact.
    limit = on_grid(before_step(pop_top + pop_bottom)) + 1
    pop_top, pop_bottom = pop_top.minimum(limit), pop_bottom.minimum(limit)
    before = before_step(pop_top + pop_bottom)
    pop_top = pop_top.minimum(before)
    pop_bottom = pop_bottom.minimum(before - pop_top)
    hi = content + (amounts.push_top - pop_top).cumsum(1)
    a = hi - amounts.push_top
    if amounts.pop_bottom is None:
        return Heights(a, hi, none, none)
    pushed = none if amounts.push_bottom is None else amounts.push_bottom
    lo = (pop_bottom - pushed).cumsum(1)
    return Heights(a, hi, lo + pushed, lo)


class Block(NamedTuple):
    """The steps [start, start + C) of a sequence of `steps`, and the elements that are there in any of them.

    Attributes:
        kind: of memory.
        start, steps: see above.
        amounts: of its steps.
        active: [B, C], False at padding; or None.
        heights: from a zero of its own.
        elements: those carried to it that its pops and reads can reach, then those that it pushes.
        n_carried: number of the former.
    """

    kind: Kind
    start: int
    steps: int
    amounts: Amounts
    active: Tensor | None
    heights: Heights
    elements: Elements
    n_carried: int

    @classmethod
    def of(
        cls,
        kind: Kind,
        start: int,
        steps: int,
        n: int,
        amounts: Amounts,
        active: Tensor | None,
        heights: Heights,
        carried: Elements,
    ) -> Block:
        """A block of a sequence with `n` first elements."""
        t = torch.arange(start, start + heights.a.shape[1], device=heights.a.device)
        pushed = [(steps * kind.pushes_at_bottom + n + t, heights.hi, heights.a, steps + t, t)]
        if kind.pushes_at_bottom:
            pushed.append((steps - 1 - t, heights.b, heights.lo, 2 * steps + t, 3 * steps + t))
        elements = carried
        for parts in pushed:
            elements = elements.joined_with(Elements(*(part.expand(heights.a.shape) for part in parts)))
        return cls(kind, start, steps, amounts, active, heights, elements, carried.top.shape[1])

    @property
    def windows(self) -> tuple[Tensor | None, Tensor | None]:
        """The lower end of reads at the top [B, C], and the upper end of those at the bottom."""
        return windows(self.kind, self.heights, self.amounts)

    def vectors(self, values: Tensor) -> Tensor:
        """The vectors of its elements [B, K, D], of all [B, M, D]."""
        return values.gather(1, self.elements.place.unsqueeze(-1).expand(-1, -1, values.shape[2]))

    def there(self, before_push: bool) -> Tensor:
        """The elements [K, C] that have been pushed before a step's own pushes, or after them."""
        step = torch.arange(self.heights.a.shape[1], device=self.heights.a.device)
        pushed = step > step.unsqueeze(1) if before_push else step >= step.unsqueeze(1)
        return torch.cat((pushed.new_ones(self.n_carried, len(step)), *[pushed] * (1 + self.kind.pushes_at_bottom)))

    def left(self) -> Left:
        """Cut its elements by the pops of each step."""
        _, top, bottom, of_top, of_bottom = (part.unsqueeze(2) for part in self.elements)
        if self.kind.top:
            top, of_top = self._cut(top, of_top, self.heights.a, self.start)
        if self.kind.bottom:
            bottom, of_bottom = self._cut(-bottom, of_bottom, -self.heights.b, 2 * self.steps + self.start)
            bottom = -bottom
        return Left(top, bottom, of_top, of_bottom)

    def rest(self) -> Elements:
        """Cut its elements by the pops of all its steps."""
        place, top, bottom, of_top, of_bottom = self.elements
        if self.kind.top:
            top, of_top = self._cut_by_all(top, of_top, self.heights.a, self.start)
        if self.kind.bottom:
            bottom, of_bottom = self._cut_by_all(-bottom, of_bottom, -self.heights.b, 2 * self.steps + self.start)
            bottom = -bottom
        return Elements(place, top, bottom, of_top, of_bottom)

    def _cut_by_all(self, height: Tensor, node: Tensor, by: Tensor, of_cuts: int) -> tuple[Tensor, Tensor]:
        """Cut heights [B, K] by the least of the heights of all later steps [B, C]; and the nodes."""
        if self.active is not None:
            by = by.masked_fill(~self.active, torch.inf)
        least, at = F.pad(by, (0, 1), value=torch.inf).flip(1).cummin(1)
        least, at = least.flip(1), by.shape[1] - at.flip(1)
        later = torch.arange(1, by.shape[1] + 1, device=by.device)
        later = torch.cat((later.new_zeros(self.n_carried), *[later] * (1 + self.kind.pushes_at_bottom)))
        least, at = least[:, later], at[:, later]
        return torch.minimum(height, least), torch.where(height <= least, node, at + of_cuts)

    def _cut(self, height: Tensor, node: Tensor, by: Tensor, of_cuts: int) -> tuple[Tensor, Tensor]:
        """Cut heights [B, K, 1] by the least of the steps' heights [B, C] since their push; and the nodes."""
        if self.active is not None:
            by = by.masked_fill(~self.active, torch.inf)
        step = torch.arange(by.shape[1], device=by.device)
        of_carried = by.cummin(1)
        of_pushed = by.unsqueeze(1).masked_fill(step <= step.unsqueeze(1), torch.inf).cummin(2)
        least, at = (
            torch.cat((first.unsqueeze(1).expand(-1, self.n_carried, -1), *[own] * (1 + self.kind.pushes_at_bottom)), 1)
            for first, own in zip(of_carried, of_pushed, strict=True)
        )
        return torch.minimum(height, least), torch.where(height <= least, node, at + of_cuts)


def windows(kind: Kind, heights: Heights, amounts: Amounts) -> tuple[Tensor | None, Tensor | None]:
    """See `Block.windows`."""
    top, bottom = (heights.a, heights.b) if kind.before_push else (heights.hi, heights.lo)
    return (
        None if amounts.read_top is None else top - amounts.read_top,
        None if amounts.read_bottom is None else bottom + amounts.read_bottom,
    )


def touched(kind: Kind, carried: Elements, heights: Heights, amounts: Amounts) -> Tensor:
    """The elements [B, K] that a pop or a read of a block can reach."""
    above, below = windows(kind, heights, amounts)
    reached = torch.zeros_like(carried.living)
    if above is not None:
        reached |= carried.top >= torch.minimum(above, heights.a).amin(1, keepdim=True)
    if below is not None:
        reached |= carried.bottom <= torch.maximum(below, heights.b).amax(1, keepdim=True)
    return reached & carried.living


def weights(left: Left, there: Tensor, window: Tensor, end: str) -> Tensor:
    """The weight of each element in the reads of a block at one end [B, K, C]."""
    window = window.unsqueeze(1)
    if end == "top":
        lengths = left.top - torch.maximum(left.bottom, window)
    else:
        lengths = torch.minimum(left.top, window) - left.bottom
    return torch.relu(lengths).masked_fill(~there, 0)
