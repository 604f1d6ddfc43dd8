"""A memory driven by given vectors, in compiled code: only the memory recurs, since all logits are known beforehand.

No product combines rows of the batch, so each row runs through all steps independently.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compilation import compiled
from .memories import begin, begin_backward, finish, skip, step, step_backward
from .models import of_model
from .rows import add, clear, copy


@compiled(from_python=True)
def forward(
    all_active: np.ndarray,
    all_reading: np.ndarray,
    all_readings: np.ndarray,
    all_emitted: np.ndarray,
    all_memory: Any,
    all_live: bool,
) -> None:
    """Run some sequences, R of them, of each of M models.

    Args:
        all_active: [R, T] bool, or [R, 0] if all are; all arrays here have an extra leading dimension M.
        all_reading: the last readings [R, D]; updated.
        all_readings: those of all steps [R, T, D], zeros at padding; written.
        all_emitted: the logits [R, T, P], and what emissions make of them; written, for `backward`.
        all_memory: the named tuple of a block; likewise.
        all_live: whether elements that are zero at first want gradients.
    """
    for model in range(all_readings.shape[0]):
        memory = of_model(all_memory, model)
        active, reading, readings = all_active[model], all_reading[model], all_readings[model]
        emitted = all_emitted[model]
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
def backward(
    all_active: np.ndarray,
    all_emitted: np.ndarray,
    all_memory: Any,
    all_grad_readings: np.ndarray,
    all_grad_reading: np.ndarray,
    all_grad_memory: Any,
    all_grad_logits: np.ndarray,
) -> None:
    """Backpropagate through `forward`; arguments with the same names are those that it received or wrote.

    Args:
        all_memory: modified.
        all_grad_readings: [R, T, D].
        all_grad_reading: of the last readings on entry, of the first on return [R, D].
        all_grad_memory: of the last state on entry, of the first on return.
        all_grad_logits: [R, T, P], zeros; written.
    """
    for model in range(all_grad_readings.shape[0]):
        memory = of_model(all_memory, model)
        grad_memory = of_model(all_grad_memory, model)
        active, emitted = all_active[model], all_emitted[model]
        grad_readings, grad_reading = all_grad_readings[model], all_grad_reading[model]
        grad_logits = all_grad_logits[model]
        for row in range(grad_readings.shape[0]):
            begin_backward(memory, grad_memory, row)
            for t in range(grad_readings.shape[1] - 1, -1, -1):
                if active.shape[1] > 0 and not active[row, t]:
                    continue
                add(grad_reading[row], grad_readings[row, t])
                step_backward(memory, grad_memory, t, row, emitted[row, t], grad_reading[row], grad_logits[row, t])
