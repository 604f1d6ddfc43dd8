"""The cell over a whole sequence, in compiled code: forwards, and backwards by hand.

Each thread runs its own rows of the batch through all steps, so threads never wait for each other. A step is the
controller's (`controller`), one product for the logits of all controls, and the memory's (`elements` or
`superposition`). Inputs are given for all steps, or are read from the input buffer of a buffered network (`buffer`).
Several models run one after the other in one call, which saves the overhead of entering compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..layout import DIRECT
from . import controller, controller_gradients
from .buffer import (
    InputBuffer,
    InputBufferGrad,
    begin_buffer,
    dequeue,
    dequeue_backward,
    emit,
    emit_backward,
)
from .compilation import compiled
from .memories import begin, begin_backward, finish, skip, step, step_backward
from .models import model_slice
from .rows import add, clear, copy

AHEAD = 256  # rows, of all steps, whose inputs are multiplied at a time


class Settings(NamedTuple):
    """The constants of a scan.

    Attributes:
        kind: of controller, as `layout` numbers them.
        n_memory: number of the memory's logits; the input buffer's follow.
        all_live: whether elements that are zero at first want gradients.
    """

    kind: int
    n_memory: int
    all_live: bool


class Forward(NamedTuple):
    """The arguments of `forward`: of R sequences of each of M models, the first dimension of all arrays.

    Attributes:
        weights: the transposes of the matrices packed.
        sequence: the inputs.
        running: updated.
        outputs: [R, T, H], zeros at padding; written.
        readings: likewise [R, T, D]; or [R, 0, D] where nothing wants them.
        layers: written, for `backward`.
        emitted: the controls' logits after emission [T, R, padded(P)]; likewise.
        memory: the named tuple of a block; likewise.
        buffer: the input buffer, likewise; or that of `buffer_block.no_buffer`.
    """

    weights: controller.Parameters
    sequence: controller.Sequence
    running: controller.Running
    outputs: np.ndarray
    readings: np.ndarray
    layers: controller.Layers
    emitted: np.ndarray
    memory: Any
    buffer: InputBuffer


class Backward(NamedTuple):
    """The arguments of `backward`; fields with the names of `Forward`'s are what that had or wrote.

    Attributes:
        weights: the matrices packed as they are.
        first_cell: before the first step [R, L, H].
        memory, buffer: modified.
        grad_outputs: [R, T, H].
        grad_readings: [R, T, D]; or [R, 0, D] where the readings were not returned.
        grads: of the last states on entry, of the first on return.
        grad_memory, grad_buffer: likewise.
        grad_inputs: of x_t [R, T, E], written; or [R, T, 0] if unused.
        grad_weights: as in `controller_gradients.collect`; added to.
    """

    weights: controller.Parameters
    sequence: controller.Sequence
    first_cell: np.ndarray
    layers: controller.Layers
    emitted: np.ndarray
    memory: Any
    buffer: InputBuffer
    grad_outputs: np.ndarray
    grad_readings: np.ndarray
    grads: controller.Running
    grad_memory: Any
    grad_buffer: InputBufferGrad
    grad_inputs: np.ndarray
    grad_weights: controller.Parameters


@compiled(from_python=True)
def forward(settings: Settings, models: Forward) -> None:
    """Run some sequences of each model.

    A separate function for one model would be compiled twice: alone, and inlined here.
    """
    buffered = models.buffer.values.shape[1] > 0
    for model in range(models.outputs.shape[0]):
        weights, sequence, running, outputs, readings, layers, emitted, memory, buffer = model_slice(models, model)
        kind, active = settings.kind, sequence.active
        n_rows, length, n_logits = outputs.shape[0], outputs.shape[1], weights.controls_bias.shape[0]
        for row in range(n_rows):
            if settings.n_memory > 0:
                begin(memory, row, settings.all_live)
            if buffered:
                begin_buffer(buffer, row)
        ahead = max(1, AHEAD // n_rows) if not buffered else 1
        for t in range(length):
            if buffered:
                for row in range(n_rows):
                    if active.shape[1] == 0 or active[row, t]:
                        dequeue(buffer, t, row, layers.inputs[t, row])
                    else:
                        clear(layers.inputs[t, row])
            if t % ahead == 0:
                stop = min(length, t + ahead)
                if sequence.inputs.shape[1] > 0:
                    controller.load(t, stop, sequence, layers)
                controller.project(t, stop, weights, sequence, layers)
            if kind == DIRECT:
                controller.put_out(t, sequence, running, layers)
            else:
                controller.step(t, kind, weights, sequence, running, layers)
            controller.control_logits(t, weights, sequence, layers, emitted)
            for row in range(n_rows):
                if active.shape[1] > 0 and not active[row, t]:
                    clear(outputs[row, t])
                    if readings.shape[1] > 0:
                        clear(readings[row, t])
                    if settings.n_memory > 0:
                        skip(memory, t, row)
                    continue
                copy(outputs[row, t], layers.tops[t, row])
                own = emitted[t, row, :n_logits]
                if settings.n_memory > 0:
                    step(memory, t, row, own, running.reading[row])
                if readings.shape[1] > 0:
                    copy(readings[row, t], running.reading[row])
                if buffered:
                    emit(buffer, t, row, own)
        for row in range(n_rows):
            if settings.n_memory > 0:
                finish(memory, row)


@compiled(from_python=True)
def backward(settings: Settings, models: Backward, room: controller.Grads) -> None:
    """Backpropagate through `forward`.

    Args:
        settings: as in `forward`.
        models: `Backward`.
        room: for any number of steps, `logits` zeros; one for all models.
    """
    buffered = models.buffer.values.shape[1] > 0
    for model in range(models.grad_outputs.shape[0]):
        part = model_slice(models, model)
        weights, sequence, first_cell, layers, emitted, memory, buffer = part[:7]
        grad_outputs, grad_readings, grads, grad_memory, grad_buffer, grad_inputs, grad_weights = part[7:]
        n_rows, length, active = grad_outputs.shape[0], grad_outputs.shape[1], sequence.active
        at_a_time, n_inputs, kind = room.gates.shape[1], layers.inputs.shape[2], settings.kind
        for row in range(n_rows):
            if settings.n_memory > 0:
                begin_backward(memory, grad_memory, row)

        for t in range(length - 1, -1, -1):
            place = t % at_a_time
            for row in range(n_rows):
                change, own = room.logits[place, row], emitted[t, row]
                if active.shape[1] > 0 and not active[row, t]:
                    clear(change)
                    continue
                if grad_readings.shape[1] > 0:
                    add(grads.reading[row], grad_readings[row, t])
                if settings.n_memory > 0:
                    step_backward(memory, grad_memory, t, row, own, grads.reading[row], change)
                if buffered:
                    emit_backward(buffer, grad_buffer, t, row, own, change)
                add(grad_weights.controls_bias, change)
            controller.logits_backward(t, weights, sequence, grad_outputs, grads, room)
            if kind == DIRECT:
                of_inputs = room.given[:n_rows, :n_inputs] if buffered else grad_inputs[:, t]
                controller.put_out_backward(t, sequence, grads, of_inputs)
            else:
                controller.step_backward(t, kind, weights, sequence, first_cell, layers, grads, grad_weights, room)
                if buffered:
                    controller_gradients.project_backward(t, t + 1, weights, active, room)
            if buffered:
                for row in range(n_rows):
                    if active.shape[1] == 0 or active[row, t]:
                        dequeue_backward(buffer, grad_buffer, t, row, room.given[row, :n_inputs])
            if place == 0:
                stop = min(t + at_a_time, length)
                if grad_inputs.shape[2] > 0 and kind != DIRECT:
                    controller_gradients.project_backward(t, stop, weights, active, room)
                    for step_of in range(t, stop):
                        for row in range(n_rows):
                            copy(grad_inputs[row, step_of], room.given[(step_of - t) * n_rows + row])
                controller_gradients.collect(t, stop, sequence, layers, grad_weights, room)
