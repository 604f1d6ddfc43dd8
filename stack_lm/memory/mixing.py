"""The arithmetic of memories in superposition: the weighted mean of the results of operations that move cells.

An operation is a list of moves of blocks of cells, so a step is a weighted sum of slices, whatever the memory's depth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import numbers_hidden


class Move(NamedTuple):
    """Rows `source` .. `source + rows - 1` go to `target` .. `target + rows - 1`; none move if `rows` is below 1."""

    source: int
    target: int
    rows: int


class Mixture(NamedTuple):
    """The static part of a step: the cells that each operation moves.

    Attributes:
        operations: for each operation its moves, no two of which share a target; a cell that is no target is empty.
        length: rows of the result.
        prepend: the new element is row 0 and the cells follow, so that operations move it too; otherwise the cells are
            the rows, and the element is added to the first of the result.
        read: number of rows read, from the first.
        empty_value: the reading of an empty cell, if the memory records occupancy.
    """

    operations: tuple[tuple[Move, ...], ...]
    length: int
    prepend: bool
    read: int = 1
    empty_value: float = 0.0


def mix_reference(cells: Tensor, weights: Tensor, elements: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
    """Compute `mix` with plain operations, one at a time."""
    shape = cells.shape
    cells, weights = cells.flatten(0, -3), weights.flatten(0, -2)
    batch_size, _, width = cells.shape
    size = elements.shape[1] // math.prod(shape[1:-2])
    new = torch.cat((elements.reshape(batch_size, size), elements.new_ones(batch_size, width - size)), 1).unsqueeze(1)
    rows = torch.cat((new, cells), dim=1) if mixture.prepend else cells
    mixed = cells.new_zeros(batch_size, mixture.length, width)
    for weight, moves in zip(weights.unbind(1), mixture.operations, strict=True):
        for source, target, n in moves:
            if n > 0:
                moved = F.pad(rows[:, source : source + n], (0, 0, target, mixture.length - target - n))
                mixed = mixed + weight[:, None, None] * moved
    if not mixture.prepend:
        mixed = torch.cat((mixed[:, :1] + new, mixed[:, 1:]), dim=1)
    top = mixed[:, : mixture.read]
    reading = top[..., :size]
    if width > size:
        reading = reading + mixture.empty_value * (1 - top[..., size:])
    return mixed.view(*shape[:-2], mixture.length, width), reading.reshape(shape[0], mixture.read * elements.shape[1])


class _Mix(torch.autograd.Function):
    """`mix_reference` in a few operations on slices, with a hand-written gradient.

    Autograd would copy each slice's gradient into a tensor of zeros as large as the memory. In two dimensions a slice
    of rows is one block of memory for each sequence. If a gradient is to be differentiated again, autograd computes it.
    """

    @staticmethod
    def forward(ctx: Any, cells: Tensor, weights: Tensor, elements: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(cells, weights, elements)
        ctx.mixture = mixture
        *leading, _, width = cells.shape
        batch_size = math.prod(leading)
        rows, new = _rows(cells, elements, mixture)
        weights, size = weights.flatten(0, -2), new.shape[1]
        mixed = rows.new_zeros(batch_size, mixture.length * width)
        for i, source, target, n in _blocks(mixture, width):
            mixed[:, target : target + n].addcmul_(rows[:, source : source + n], weights[:, i : i + 1])
        if not mixture.prepend:
            mixed[:, :size] += new
            mixed[:, size:width] += 1
        mixed = mixed.view(batch_size, mixture.length, width)
        reading = mixed[:, : mixture.read, :size].clone()
        if width > size and mixture.empty_value:
            reading.add_(1 - mixed[:, : mixture.read, size:], alpha=mixture.empty_value)
        reading = reading.view(leading[0], mixture.read * elements.shape[1])
        return mixed.view(*leading, mixture.length, width), reading

    @staticmethod
    def backward(ctx: Any, of_mixed: Tensor | None, of_reading: Tensor | None) -> tuple[Tensor | None, ...]:
        given: tuple[Tensor, Tensor, Tensor] = ctx.saved_tensors
        mixture = ctx.mixture
        if torch.is_grad_enabled():  # in a backward pass, only if the gradient is to have a graph
            plain = partial(mix_reference, mixture=mixture)
            results, gradient_of, *_ = torch.func.vjp(plain, *given)
            grads = zip(results, (of_mixed, of_reading), strict=True)
            return *gradient_of(tuple(torch.zeros_like(part) if grad is None else grad for part, grad in grads)), None
        cells, weights, elements = given
        rows, new = _rows(cells, elements, mixture)
        batch_size, size, width = rows.shape[0], new.shape[1], cells.shape[-1]
        weights = weights.flatten(0, -2)
        if of_mixed is None:
            gradient = rows.new_zeros(batch_size, mixture.length * width)
        else:  # may be shared, so the reading's gradient is not added in place
            gradient = of_mixed.flatten(0, -3).flatten(1)
            gradient = gradient if of_reading is None else gradient.clone(memory_format=torch.contiguous_format)
        if of_reading is not None:
            top = gradient.view(batch_size, mixture.length, width)[:, : mixture.read]
            of_reading = of_reading.reshape(batch_size, mixture.read, size)
            top[..., :size].add_(of_reading)
            if width > size and mixture.empty_value:
                top[..., size:].sub_(of_reading.sum(-1, keepdim=True), alpha=mixture.empty_value)
        of_rows, of_weights = torch.zeros_like(rows), torch.zeros_like(weights)
        for i, source, target, n in _blocks(mixture, width):
            upstream = gradient[:, target : target + n]
            of_rows[:, source : source + n].addcmul_(upstream, weights[:, i : i + 1])
            of_weights[:, i].add_(torch.linalg.vecdot(rows[:, source : source + n], upstream))
        of_elements = gradient[:, :size]
        if mixture.prepend:
            of_elements, of_rows = of_rows[:, :size], of_rows[:, width:]
        return of_rows.reshape(cells.shape), of_weights.view(given[1].shape), of_elements.reshape(elements.shape), None


def _rows(cells: Tensor, elements: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
    """Return the rows that operations move and the new elements, in two dimensions."""
    width = cells.shape[-1]
    batch_size = math.prod(cells.shape[:-2])
    rows = cells.flatten(0, -3).flatten(1)
    new = elements.reshape(batch_size, elements.shape[1] // math.prod(cells.shape[1:-2]))
    if mixture.prepend:
        rows = torch.cat((new, rows.new_ones(batch_size, width - new.shape[1]), rows), dim=1)
    return rows, new


def _blocks(mixture: Mixture, width: int) -> Iterator[tuple[int, int, int, int]]:
    """The moves in numbers, not rows: operation, source, target, count."""
    for i, moves in enumerate(mixture.operations):
        for source, target, n in moves:
            if n > 0:
                yield i, source * width, target * width, n * width


def mix(cells: Tensor, weights: Tensor, elements: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
    """Mix the results of the operations on a memory and its new elements, and read.

    Args:
        cells: [B, S, N, W], or [B, N, W] if S = 1. An extra column holds each cell's occupancy.
        weights: the weights of the operations, [B, S, O].
        elements: [B, S * D], with W = D or W = D + 1; they are occupied.
        mixture: the operations and the reading.

    Returns:
        The next cells, of `length` rows, and the reading [B, S * read * D].
    """
    weights, elements = weights.to(cells.dtype), elements.to(cells.dtype)
    if numbers_hidden():  # such as `torch.func.vmap`, which knows only the gradients of plain operations
        return mix_reference(cells, weights, elements, mixture)
    mixed: tuple[Tensor, Tensor] = _Mix.apply(cells, weights, elements, mixture)
    return mixed
