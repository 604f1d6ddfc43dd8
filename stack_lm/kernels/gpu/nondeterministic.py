"""A nondeterministic stack over a whole sequence on a GPU, for any driver: its table and launches.

It has the functions of `elements`. The remembered table [B, N, N, P, P, 1 + m], which holds `under` with the vector
after each number, and `top` [B, P] replace the elements' values and strengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ...memory.nondeterministic import ZERO
from . import moves, moves_back
from .elements import FUSED

NO_WINDOW = 2**30
_TILE = 1024  # numbers: 8 for each thread of 4 warps


class Lists(NamedTuple):
    """The table by column, and the tensors that made it, as the kernels of `moves` take them."""

    logits: Tensor
    logs: Tensor
    values: Tensor
    tops: Tensor
    totals: Tensor
    moves: Tensor
    vectors: Tensor
    counts: Tensor


class Gradients(NamedTuple):
    """Gradients after a step, updated to those before it, as the kernels of `moves_back` take them."""

    reading: Tensor
    logs: Tensor
    values: Tensor
    top: Tensor
    logits: Tensor


def begin(stack: dict[str, Any], logits: Tensor, table: Tensor, top: Tensor, active: Tensor) -> Lists:
    """The table at the start of a scan; see `elements.begin`."""
    length, (batch_size, given, _, pairs) = len(logits), table.shape[:4]
    size = stack["M"]
    times = given + length
    rows = max(given, min(times, stack["WINDOW"]))
    logs = table.new_empty(batch_size, times, rows, pairs, pairs)
    values = table.new_empty(*logs.shape, size)
    by_column = table.transpose(1, 2)
    logs[:, :given, :given], values[:, :given, :given] = by_column[..., 0], by_column[..., 1:]
    tops = top.new_empty(batch_size, times, pairs)
    tops[:, given - 1] = top
    counts = torch.full((length + 1, batch_size), given, dtype=torch.int32, device=top.device)
    one = torch.ones_like(counts[1:]) if not active.numel() else active.to(torch.int32)
    counts[1:] += one.cumsum(0, dtype=torch.int32)
    return Lists(
        logits=logits,
        logs=logs,
        values=values,
        tops=tops,
        totals=torch.empty_like(tops),
        moves=top.new_empty(length, batch_size, logits.shape[2] - size),
        vectors=top.new_empty(length, batch_size, size),
        counts=counts,
    )


def steps(
    stack: dict[str, Any], lists: Lists, bias: Tensor, active: Tensor, reading: Tensor, given: Tensor
) -> Callable[[int], None]:
    """A function that launches step t; see `elements.steps`."""
    batch_size, times, rows, pairs, _ = lists.logs.shape
    first = times - len(lists.moves)
    revealed = lists.logs.new_empty(batch_size, rows, pairs, stack["Q"])
    c, sizes = _constants(stack, active, given.shape[2], reading), _sizes(stack, lists)
    logits, logs, values, tops, totals, weights, vectors, counts = lists
    block, of_vector = c["E"], c["MB"]
    emission = _take(c, "Q", "P", "M", "NORMALIZE", "TANH", "MASKED", "P2", "Q2", "MB")
    reveals, moving = _take(c, "Q", "P", "MASKED", "P2"), _take(c, *_TILED)
    settling = _take(c, *_TILED, *_READ)

    def launch(t: int) -> None:
        most = min(first + t + 1, rows)
        moves.weigh[(batch_size, pairs)](logits, bias, weights, vectors, active, t, batch_size, **emission)
        if most > 2:
            moves.reveal[(batch_size, most - 2)](logs, tops, weights, revealed, counts, active, t, *sizes, **reveals)
        grid = batch_size, triton.cdiv(most * pairs, block), max(1, triton.cdiv(stack["M"], of_vector))
        moves.move[grid](logs, values, tops, weights, vectors, revealed, counts, active, t, *sizes, **moving)
        moves.settle[(batch_size,)](logs, values, tops, totals, counts, active, reading, given, t, *sizes, **settling)

    return launch


def last(stack: dict[str, Any], lists: Lists) -> tuple[Tensor, Tensor]:
    """The table and tops at the end, of the times that are remembered then; those before a sequence's first hold
    nothing."""
    at, there = _remembered(stack, lists)
    sequences = torch.arange(len(at), device=at.device)
    logs = lists.logs.flatten(1, 2)[sequences[:, None, None], at]
    values = lists.values.flatten(1, 2)[sequences[:, None, None], at]
    there = there[:, :, :, None, None, None]
    nothing = torch.cat((torch.full_like(logs[:1, :1, :1, :, :, None], ZERO), torch.zeros_like(values[:1, :1, :1])), -1)
    table = torch.where(there, torch.cat((logs.unsqueeze(-1), values), dim=-1), nothing)
    return table, lists.tops[sequences, lists.counts[-1].long() - 1]


def begin_back(stack: dict[str, Any], lists: Lists, reading: Tensor, table: Tensor, top: Tensor) -> Gradients:
    """The gradients after the last step, from those of the last reading and of the results of `last`."""
    at, there = _remembered(stack, lists)
    sequences = torch.arange(len(at), device=at.device)[:, None, None]
    places = lists.logs.shape[1] * lists.logs.shape[2]
    at = torch.where(there, at, places)  # one more, which nobody reads
    of_all = table.new_zeros(len(at), places + 1, *table.shape[3:])
    of_all[sequences, at] = table
    of_all = of_all[:, :places].unflatten(1, lists.logs.shape[1:3])
    return Gradients(
        reading=reading.clone(),
        logs=of_all[..., 0].contiguous(),
        values=of_all[..., 1:].contiguous(),
        top=top.clone(),
        logits=torch.empty_like(lists.logits),
    )


def steps_back(
    stack: dict[str, Any], lists: Lists, bias: Tensor, active: Tensor, grads: Gradients, width: int
) -> Callable[[int, Tensor], None]:
    """A function that launches step t backwards; see `elements.steps_back`."""
    batch_size, times, rows, pairs, _ = lists.logs.shape
    first = times - len(lists.moves)
    revealed = lists.logs.new_empty(batch_size, rows, pairs, stack["Q"])
    grad_revealed = torch.empty_like(revealed)
    c, sizes = _constants(stack, active, width, grads.reading), _sizes(stack, lists)
    _, logs, values, tops, totals, weights, vectors, counts = lists
    reveals, moving = _take(c, "Q", "P", "MASKED", "P2"), _take(c, *_TILED)
    settling = _take(c, *_TILED, *_READ, "TANH")
    weighing = _take(c, *_TILED, "NORMALIZE")

    def launch(t: int, grad_given: Tensor) -> None:
        most = min(first + t + 1, rows)
        moves_back.unsettle[(batch_size,)](
            logs,
            values,
            tops,
            totals,
            vectors,
            counts,
            active,
            grads.logs,
            grads.values,
            grads.top,
            grads.reading,
            grads.logits,
            grad_given,
            t,
            *sizes,
            **settling,
        )
        if most > 2:
            moves.reveal[(batch_size, most - 2)](logs, tops, weights, revealed, counts, active, t, *sizes, **reveals)
            moves_back.unreveal[(batch_size, most - 2, stack["Q"])](
                logs,
                values,
                totals,
                revealed,
                counts,
                active,
                grads.logs,
                grads.values,
                grad_revealed,
                t,
                *sizes,
                **moving,
            )
        moves_back.unweigh[(batch_size, pairs)](
            logs,
            values,
            tops,
            totals,
            weights,
            revealed,
            counts,
            active,
            grads.logs,
            grads.values,
            grads.top,
            grad_revealed,
            grads.logits,
            t,
            *sizes,
            **weighing,
        )

    return launch


def of_first(
    stack: dict[str, Any], lists: Lists, active: Tensor, top: Tensor, grads: Gradients
) -> tuple[Tensor, Tensor]:
    """The gradients of the initial table and its tops; see `elements.of_first`."""
    given = lists.logs.shape[1] - len(lists.moves)
    of_table = torch.cat((grads.logs.unsqueeze(-1), grads.values), dim=-1)
    return of_table[:, :given, :given].transpose(1, 2), grads.top


def _remembered(stack: dict[str, Any], lists: Lists) -> tuple[Tensor, Tensor]:
    """The places in the table of the times that are remembered at the end, and which there are: [B, N, N] each.

    Places are the numbers of column and row from the table's start."""
    times, rows, length = *lists.logs.shape[1:3], len(lists.moves)
    n = min(times, stack["WINDOW"] - 1) if length else times
    time = torch.arange(n, device=lists.logs.device) + lists.counts[-1].long().unsqueeze(1) - n
    row, column = time.unsqueeze(2), time.unsqueeze(1)
    first = (column - stack["WINDOW"] + 1).clamp(min=0)
    there = (row >= 0) & (column >= row)
    return torch.where(there, column * rows + row - first, 0), there


def _take(constants: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: constants[name] for name in names} | FUSED


_TILED = ("Q", "S", "P", "M", "MASKED", "Q2", "S2", "MB", "E")
_READ = ("READ_STATES", "GIVEN", "GIVEN_FROM", "DEPTH", "DB")


def _sizes(stack: dict[str, Any], lists: Lists) -> Sequence[int]:
    """The integers that kernels take after t: B, C, R and the window."""
    return *lists.logs.shape[:3], stack["WINDOW"]


def _constants(stack: dict[str, Any], active: Tensor, width: int, reading: Tensor) -> dict[str, Any]:
    depth, powers = reading.shape[1], {name + "2": triton.next_power_of_2(stack[name]) for name in ("Q", "S", "P")}
    tile = powers["Q2"] * powers["S2"]
    vector = min(triton.next_power_of_2(max(stack["M"], 1)), max(1, _TILE // tile))
    return {
        **stack,
        **powers,
        "MB": vector,
        "E": min(16, max(1, _TILE // (tile * vector))),
        "DB": min(256, triton.next_power_of_2(depth)),
        "MASKED": active.numel() > 0,
        "GIVEN": width,
        "GIVEN_FROM": width - depth,
        "DEPTH": depth,
    }
