"""The memory over a whole sequence on a GPU with all logits given: just one kernel per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from . import elements
from .elements import at_active


class Given(NamedTuple):
    """The inputs of a scan: the logits of all controls [T, B, P], and the rest as in `scan.Given`."""

    logits: Tensor
    active: Any
    reading: Tensor
    values: Tensor
    strengths: Tensor


class Results(NamedTuple):
    """The readings [T, B, R], and the last states as in `scan.Results`."""

    readings: Tensor
    reading: Tensor
    values: Tensor
    strengths: Tensor


def forward(stack: dict[str, Any], given: Given) -> tuple[Results, tuple[Tensor, ...]]:
    """Run a sequence.

    Args:
        stack: the memory, as `elements.begin` takes it.
        given: all tensors are contiguous.

    Returns:
        The results, and what `backward` needs besides.
    """
    length, _, n_logits = given.logits.shape
    reading = given.reading.clone()
    readings = reading.new_empty(length + 1, *reading.shape)
    lists = elements.begin(stack, given.logits, given.values, given.strengths, given.active)
    step = elements.steps(stack, lists, reading.new_zeros(n_logits), given.active, reading, readings)
    for t in range(length):
        step(t)
    results = Results(at_active(given.active, readings[1:]), reading, *elements.last(lists))
    return results, lists


def backward(stack: dict[str, Any], given: Given, of_forward: Sequence[Tensor], grads: Results) -> Given:
    """Backpropagate through `forward`; see `scan.backward`."""
    lists = elements.Lists(*of_forward)
    of_readings = at_active(given.active, grads.readings)
    length, _, n_logits = given.logits.shape
    of_memory = elements.begin_back(lists, grads.reading, grads.values, grads.strengths)
    bias = grads.reading.new_zeros(n_logits)
    step_back = elements.steps_back(stack, lists, bias, given.active, of_memory, of_readings.shape[2])
    for t in reversed(range(length)):
        step_back(t, of_readings[t])
    values, strengths = elements.initial_state_grads(stack, lists, given.active, given.strengths, of_memory)
    return Given(of_memory.logits, None, of_memory.reading, values, strengths)
