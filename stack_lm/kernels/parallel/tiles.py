"""A block of steps on a GPU, tile by tile; see `tile_kernels`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import tile_kernels
from .intervals import Block

SIDE = 32  # of a tile


class Tiles:
    """A block on a GPU.

    Args:
        block: the block.
        values: the vectors of all elements of the sequence [B, M, D].
    """

    def __init__(self, block: Block, values: Tensor) -> None:
        self.block, self.values = block, values.contiguous()
        kind, elements, (a, _, b, _) = block.kind, block.elements, block.heights
        (batch_size, length), (above, below) = a.shape, block.windows
        never = torch.full_like(a, torch.inf)
        self.heights = torch.stack((elements.top, -elements.bottom))
        self.nodes = torch.stack((elements.of_top, elements.of_bottom)).int()
        self.places = elements.place.contiguous()
        self.edges = torch.stack((never if above is None else above, never if below is None else -below))
        self.by = torch.stack((a if kind.top else never, -b if kind.bottom else never))
        if block.active is not None:
            self.by = self.by.masked_fill(~block.active, torch.inf)
        self.tiles = triton.cdiv(length, SIDE)
        least = self.by.new_empty(2, *self.by.shape[:2], self.tiles * SIDE)
        at = least.new_empty(least.shape, dtype=torch.int32)
        self.cuts = (least[0], at[0], least[1], at[1])
        grid = (2 * batch_size, self.tiles)
        tile_kernels.least_cuts[grid](self.by, *self.cuts, length, self.tiles * SIDE, S=SIDE, num_warps=1)

    def _constants(self, end: int) -> dict[str, Any]:
        kind, size = self.block.kind, self.values.shape[2]
        both = kind.pushes_at_bottom
        return {
            "END": end,
            "GROUPS": 1 + both,
            "UNREAD": int(kind.before_push),
            "D": size,
            "WIDTH": size * (1 + both),
            "FIRST": size * end * both,
            "BLOCK": max(16, triton.next_power_of_2(size)),
            "S": SIDE,
            "SUMS": tl.float64 if self.values.dtype == torch.float64 else tl.float32,
        }

    @property
    def _sizes(self) -> tuple[int, ...]:
        (_, batch_size, length), n = self.by.shape, self.block.n_carried
        return batch_size, n, length, self.heights.shape[2], self.values.shape[1], self.tiles * SIDE

    @property
    def _ends(self) -> list[int]:
        return [end for end, works in enumerate(self.block.kind[:2]) if works]

    def read(self) -> Tensor:
        """The readings [B, C, D or 2 D]."""
        batch_size, length = self.by.shape[1:]
        readings = self.values.new_empty(batch_size, length, self.values.shape[2] * len(self._ends))
        for end in self._ends:
            tile_kernels.read[batch_size, self.tiles](
                self.heights,
                self.places,
                self.by,
                *self.cuts,
                self.edges,
                self.values,
                readings,
                *self._sizes,
                **self._constants(end),
            )
        return readings

    def backward(
        self, grads: Tensor, grad_nodes: Tensor, grad_values: Tensor
    ) -> tuple[list[Tensor | None], list[Tensor]]:
        """Backpropagate through `read`.

        Args:
            grads: of the readings.
            grad_nodes, grad_values: to which the gradients of all nodes [B, X] and of all vectors [B, M, D] are added.

        Returns:
            The gradients of the reads at the top and at the bottom, and the nodes of the heights at which pops end
            exactly between two elements, or -1 [B, C].
        """
        if self.block.active is not None:
            grads = grads.masked_fill(~self.block.active.unsqueeze(2), 0)
        amounts, ties = torch.zeros_like(self.by), torch.full_like(self.by, -1, dtype=torch.int32)
        batch_size, n = self.by.shape[1], self.block.n_carried
        starts = [self.block.start, 2 * self.block.steps + self.block.start]
        for end in self._ends:
            constants = self._constants(end)
            tile_kernels.read_back[batch_size, triton.cdiv(n, SIDE) + constants["GROUPS"] * self.tiles](
                self.heights,
                self.nodes,
                self.places,
                self.by,
                *self.cuts,
                self.edges,
                self.values,
                grads.contiguous(),
                grad_nodes,
                grad_values,
                amounts,
                ties,
                *self._sizes,
                grad_nodes.shape[1],
                starts[end],
                starts[1 - end],
                **constants,
                num_warps=8,
            )
        return [amounts[end] if end in self._ends else None for end in range(2)], list(ties.long())
