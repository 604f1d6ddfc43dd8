"""The readings and the last elements of a stack, queue or deque, from given actions."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from .intervals import Amounts, Block, Elements, Heights, Kind, first_elements, touched, walk, weights

# Steps of a block. A GPU waits for launches, as many in each block, so it takes _IN_TILES; without tiles, as many as
# fit, up to _MOST: the work grows with the square.
_STEPS, _MOST, _WORK, _IN_TILES = 64, 1024, 2**23, 2048
_LARGEST = 256  # element of which a tile fits a GPU's registers


class Sequence(NamedTuple):
    """The inputs of a scan; strengths are on the grid.

    Attributes:
        kind: of memory.
        values: the vectors of all elements, first and pushed, from bottom to top [B, M, D].
        strengths: of the first elements [B, N].
        amounts: of all steps.
        active: [B, T], False at padding; or None.
    """

    kind: Kind
    values: Tensor
    strengths: Tensor
    amounts: Amounts
    active: Tensor | None

    @property
    def steps(self) -> int:
        """T."""
        return self.amounts.push_top.shape[1]

    @property
    def starts(self) -> range:
        """The first step of each block."""
        steps = _STEPS
        if self.in_tiles:
            return range(0, self.steps, _IN_TILES)
        while self.values.device.type != "cpu" and steps < _MOST and len(self.values) * (2 * steps) ** 2 <= _WORK:
            steps *= 2
        return range(0, self.steps, steps)

    @property
    def in_tiles(self) -> bool:
        """True if `tiles` runs the blocks: on CUDA devices, or where Triton interprets its kernels, for tests."""
        runs = self.values.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
        return runs and self.values.numel() > 0 and self.values.shape[2] <= _LARGEST and find_spec("triton") is not None

    def part(self, start: int) -> tuple[Amounts, Tensor | None]:
        """The amounts and the mask of the block that begins there."""
        steps = slice(start, start + self.starts.step)
        return self.amounts.map(lambda part: part[:, steps]), None if self.active is None else self.active[:, steps]

    def block(self, start: int, amounts: Amounts, active: Tensor | None, heights: Heights, carried: Elements) -> Block:
        """The block that begins there."""
        return Block.of(self.kind, start, self.steps, self.strengths.shape[1], amounts, active, heights, carried)


class Run(NamedTuple):
    """A scan: its readings [B, T, D or 2 D], and what a backward pass needs besides.

    Attributes:
        readings: see above.
        heights: of each block.
        carried: to each block; see `Block.elements`.
        last: the living elements after the last step.
    """

    readings: Tensor
    heights: list[Heights]
    carried: list[Elements]
    last: Elements


def run(sequence: Sequence) -> Run:
    """Run all blocks, one after the other."""
    kind, values = sequence.kind, sequence.values
    elements, content = first_elements(sequence.strengths, sequence.steps, kind), sequence.strengths.sum(1)
    readings, heights_of, carried_to = [], [], []
    for start in sequence.starts:
        amounts, active = sequence.part(start)
        heights = walk(content, amounts)
        reached = touched(kind, elements, heights, amounts)
        carried = elements.keep(reached)
        block = sequence.block(start, amounts, active, heights, carried)
        if sequence.in_tiles:
            from .tiles import Tiles

            readings.append(Tiles(block, values).read())
        else:
            readings.append(_read(block, values))
        heights_of.append(heights)
        carried_to.append(carried)
        behind = elements.joined_with(block.rest())
        living = behind.living
        living[:, : reached.shape[1]] &= ~reached
        base = heights.lo[:, -1]
        elements, content = behind.keep(living).down(base), heights.hi[:, -1] - base
    return Run(torch.cat(readings, dim=1), heights_of, carried_to, elements)


def _read(block: Block, values: Tensor) -> Tensor:
    """The readings of a block [B, C, D or 2 D]."""
    left, there, vectors = block.left(), block.there(block.kind.before_push), block.vectors(values)
    ends = zip(block.windows, ("top", "bottom"), strict=True)
    return torch.cat(
        [weights(left, there, window, end).to(values.dtype).mT @ vectors for window, end in ends if window is not None],
        dim=2,
    )


def last_strengths(sequence: Sequence, last: Elements) -> Tensor:
    """The strengths of all elements after the last step [B, M]."""
    strengths = sequence.strengths.new_zeros(sequence.values.shape[:2])
    # Added, because a dead element may have the place of a living one.
    return strengths.scatter_add_(1, last.place, last.top - last.bottom)
