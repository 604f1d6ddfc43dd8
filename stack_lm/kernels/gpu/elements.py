"""A stack, queue or deque over a whole sequence on a GPU, for any driver: its lists and launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from . import strength

FUSED = {"enable_fp_fusion": True}  # Triton's default; without it Triton warns that the default will change


class Lists(NamedTuple):
    """The memory and its log, as the kernels of `strength` take them."""

    logits: Tensor
    values: Tensor
    list_index: Tensor
    list_strength: Tensor
    ends: Tensor
    logged: Tensor
    log_index: Tensor
    log_strength: Tensor
    log_starts: Tensor


class Gradients(NamedTuple):
    """Gradients after a step, updated to those before it, as `strength.backward` takes them."""

    reading: Tensor
    values: Tensor
    strengths: Tensor
    logits: Tensor
    first_shared: Tensor
    first_boundary: Tensor


def begin(stack: dict[str, Any], logits: Tensor, values: Tensor, strengths: Tensor, active: Tensor) -> Lists:
    """The lists at the start of a scan.

    Elements of strength zero are left out; `initial_state_grads` gives them their gradients.

    Args:
        stack: constants of the kernels, as far as they depend on the memory and its controls alone.
        logits: of all controls [T, B, P], filled now or by the time of each step.
        values, strengths: of the initial memory's elements, from bottom to top [B, N, D] and [B, N].
        active: the mask [T, B], or [0, 0].
    """
    deque = stack["DEQUE"]
    length, (batch_size, n) = len(logits), strengths.shape
    pops = 2 if deque else 1
    capacity = n + pops * length
    index = torch.zeros(batch_size, capacity, dtype=torch.int32, device=strengths.device)
    alive = strengths.new_zeros(batch_size, capacity)
    of_all = values.new_zeros(batch_size, capacity, values.shape[2])
    before = length if deque else 0
    of_all[:, before : before + n] = values
    order = torch.argsort((strengths == 0).to(torch.uint8), dim=1, stable=True)
    index[:, before : before + n] = order + before
    alive[:, before : before + n] = strengths.gather(1, order)
    ends = torch.full((batch_size, 2), before, dtype=torch.int32, device=index.device)
    ends[:, 1] += (strengths != 0).sum(1, dtype=torch.int32)
    return Lists(
        logits=logits,
        values=of_all,
        list_index=index,
        list_strength=alive,
        ends=ends,
        logged=torch.zeros(batch_size, dtype=torch.int32, device=index.device),
        log_index=index.new_empty(batch_size, capacity + pops * length),
        log_strength=alive.new_empty(batch_size, capacity + pops * length),
        log_starts=index.new_empty(length, batch_size, pops),
    )


def steps(
    stack: dict[str, Any], lists: Lists, bias: Tensor, active: Tensor, reading: Tensor, given: Tensor
) -> Callable[[int], None]:
    """A function that launches step t; see `strength.forward` for the arguments."""
    sizes = _sizes(lists)
    constants = _constants(stack, lists, active, given.shape[2], reading.shape[1])

    def launch(t: int) -> None:
        strength.forward[sizes[:1]](*lists, bias, active, reading, given, t, *sizes, **constants)

    return launch


def last(lists: Lists) -> tuple[Tensor, Tensor]:
    """The values and strengths of all elements by id at the end, [B, C, D] and [B, C], from the list of the living."""
    batch_size, capacity = lists.list_index.shape
    place = torch.arange(capacity, device=lists.list_index.device)
    living = (place >= lists.ends[:, :1]) & (place < lists.ends[:, 1:])
    # The last place is for those that are not living.
    everywhere = lists.list_strength.new_zeros(batch_size, capacity + 1)
    everywhere.scatter_(1, torch.where(living, lists.list_index.long(), capacity), lists.list_strength)
    return lists.values, everywhere[:, :capacity].contiguous()


def begin_back(lists: Lists, reading: Tensor, values: Tensor, strengths: Tensor) -> Gradients:
    """The gradients after the last step, from those of the last reading [B, R] and of all elements by id."""
    return Gradients(
        reading=reading.clone(),
        values=values.clone(),
        strengths=strengths.clone(),
        logits=torch.empty_like(lists.logits),
        first_shared=strengths.new_zeros(len(strengths)),
        first_boundary=lists.list_index.new_full((len(strengths),), -1),
    )


def steps_back(
    stack: dict[str, Any], lists: Lists, bias: Tensor, active: Tensor, grads: Gradients, width: int
) -> Callable[[int, Tensor], None]:
    """A function that launches step t backwards, given the gradient of the row [B, width] that the reading went to."""
    # The list and the ends of the log are replayed in place, and another backward may follow.
    replayed = ("list_index", "list_strength", "ends", "logged")
    lists = lists._replace(**{name: getattr(lists, name).clone() for name in replayed})
    sizes = _sizes(lists)
    constants = _constants(stack, lists, active, width, grads.reading.shape[1])

    def launch(t: int, grad_given: Tensor) -> None:
        strength.backward[sizes[:1]](*lists, bias, active, *grads, grad_given, t, *sizes, **constants)

    return launch


def initial_state_grads(
    stack: dict[str, Any], lists: Lists, active: Tensor, strengths: Tensor, grads: Gradients
) -> tuple[Tensor, Tensor]:
    """The gradients of the initial memory's values and strengths, including elements of strength zero.

    Those get a gradient only from the first pop, and only if they come before the element that it shortened.

    Args:
        strengths: of the initial memory [B, N].
    """
    n, length, pops = strengths.shape[1], len(lists.logits), lists.log_starts.shape[2]
    before = (pops - 1) * length
    grad_values, grad_strengths = (grad[:, before : before + n] for grad in (grads.values, grads.strengths))
    if not n:
        return grad_values, grad_strengths
    which = torch.arange(before, before + n, device=grad_values.device)
    boundary = grads.first_boundary.unsqueeze(1)
    passed = (boundary >= 0) & ((which > boundary) if stack["AT_TOP"] else (which < boundary))
    revived = torch.where(passed, grads.first_shared.unsqueeze(1), torch.zeros_like(grad_strengths))
    dead = strengths == 0
    if active.numel():
        dead = dead & (active != 0).any(0).unsqueeze(1)  # others' memories are as they were
    return grad_values, torch.where(dead, revived, grad_strengths)


def at_active(active: Tensor, over_time: Tensor) -> Tensor:
    """A copy [T, B, ...] with zeros at padding."""
    if not active.numel() or not over_time.numel():
        return over_time.clone()
    return over_time.masked_fill(active.unsqueeze(-1) == 0, 0)


def _sizes(lists: Lists) -> tuple[int, ...]:
    """The integers that kernels take after t: B, T, N, C and the length of a log."""
    (length, batch_size, pops), capacity = lists.log_starts.shape, lists.list_index.shape[1]
    return batch_size, length, capacity - pops * length, capacity, lists.log_index.shape[1]


def _constants(stack: dict[str, Any], lists: Lists, active: Tensor, width: int, depth: int) -> dict[str, Any]:
    size = lists.values.shape[2]
    return {
        **stack,
        "D": size,
        "P": lists.logits.shape[2],
        "GIVEN": width,
        "GIVEN_FROM": width - depth,
        "MASKED": active.numel() > 0,
        "BLOCK": triton.next_power_of_2(size),
        "num_warps": 1,
        **FUSED,
    }
