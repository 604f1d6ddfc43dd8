"""A memory driven by given vectors, in compiled code: only the memory recurs, since all logits are known beforehand.

No product combines rows of the batch, so each row runs through all steps independently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .compilation import compiled
from .memories import begin, begin_backward, finish, skip, step, step_backward
from .models import model_slice
from .rows import add, clear, copy


class Forward(NamedTuple):
    """The arguments of `forward`: of R sequences of each of M models, the first dimension of all arrays.

    Attributes:
        active: [R, T] bool, or [R, 0] if all are.
        reading: the last readings [R, D]; updated.
        readings: those of all steps [R, T, D], zeros at padding; written.
        emitted: the logits [R, T, P], and what emissions make of them; written, for `backward`.
        memory: the named tuple of a block; likewise.
    """

    active: np.ndarray
    reading: np.ndarray
    readings: np.ndarray
    emitted: np.ndarray
    memory: Any


class Backward(NamedTuple):
    """The arguments of `backward`; fields with the names of `Forward`'s are what that had or wrote.

    Attributes:
        memory: modified.
        grad_readings: [R, T, D].
        grad_reading: of the last readings on entry, of the first on return [R, D].
        grad_memory: of the last state on entry, of the first on return.
        grad_logits: [R, T, P], zeros; written.
    """

    active: np.ndarray
    emitted: np.ndarray
    memory: Any
    grad_readings: np.ndarray
    grad_reading: np.ndarray
    grad_memory: Any
    grad_logits: np.ndarray


@compiled(from_python=True)
def forward(models: Forward, all_live: bool) -> None:
    """Run some sequences of each model.

    Args:
        models: `Forward`.
        all_live: whether elements that are zero at first want gradients.
    """
    for model in range(models.readings.shape[0]):
        active, reading, readings, emitted, memory = model_slice(models, model)
        for row in range(readings.shape[0]):
            begin(memory, row, all_live)
            for t in range(readings.shape[1]):
                if active.shape[1] > 0 and not active[row, t]:
                    clear(readings[row, t])
                    skip(memory, t, row)
                    continue
                step(memory, t, row, emitted[row, t], reading[row])
                copy(readings[row, t], reading[row])
            finish(memory, row)


@compiled(from_python=True)
def backward(models: Backward) -> None:
    """Backpropagate through `forward`."""
    for model in range(models.grad_readings.shape[0]):
        active, emitted, memory, grad_readings, grad_reading, grad_memory, grad_logits = model_slice(models, model)
        for row in range(grad_readings.shape[0]):
            begin_backward(memory, grad_memory, row)
            for t in range(grad_readings.shape[1] - 1, -1, -1):
                if active.shape[1] > 0 and not active[row, t]:
                    continue
                add(grad_reading[row], grad_readings[row, t])
                step_backward(memory, grad_memory, t, row, emitted[row, t], grad_reading[row], grad_logits[row, t])
