"""The cell over a whole sequence, in compiled code: forwards, and backwards by hand.

Each thread runs its own rows of the batch through all steps, so threads never wait for each other. A step is the
controller's (`controller`), one product for the logits of all controls, and the memory's (`elements` or
`superposition`). Inputs are given for all steps, or are read from the input buffer of a buffered network (`buffer`).
Several models run one after the other in one call, which saves the overhead of entering compiled code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..layout import DIRECT
from . import controller
from .buffer import (
    InputBuffer,
    InputBufferGrad,
    begin_buffer,
    begin_buffer_backward,
    dequeue,
    dequeue_backward,
    emit,
    emit_backward,
)
from .compilation import compiled
from .memories import begin, begin_backward, finish, skip, step, step_backward
from .models import of_model
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


@compiled(from_python=True)
def forward(
    settings: Settings,
    all_weights: controller.Parameters,
    all_sequence: controller.Sequence,
    all_running: controller.Running,
    all_outputs: np.ndarray,
    all_readings: np.ndarray,
    all_layers: controller.Layers,
    all_emitted: np.ndarray,
    all_memory: tuple,
    all_buffer: InputBuffer,
    all_logged: np.ndarray,
) -> None:
    """Run some sequences, R of them, of each of M models.

    A separate function for one model would be compiled twice: alone, and inlined here.

    Args:
        settings: `Settings`. All arrays below have an extra leading dimension M.
        all_weights: `controller.Parameters`, the transposes of the matrices packed.
        all_sequence: `controller.Sequence`.
        all_running: `controller.Running`; updated.
        all_outputs: [R, T, H], zeros at padding; written.
        all_readings: likewise [R, T, D]; or [R, 0, D] where nothing wants them.
        all_layers: `controller.Layers`; written, for `backward`.
        all_emitted: the controls' logits after emission [T, R, padded(P)]; likewise.
        all_memory: `Elements` or `Superposition`; likewise.
        all_buffer: an `InputBuffer`, likewise; or that of `buffer_block.no_buffer`.
        all_logged: workspace [R], zeros.
    """
    buffered = all_buffer.values.shape[1] > 0
    for model in range(all_outputs.shape[0]):
        weights = of_model(all_weights, model)
        sequence = of_model(all_sequence, model)
        running = of_model(all_running, model)
        outputs = all_outputs[model]
        readings = all_readings[model]
        layers = of_model(all_layers, model)
        emitted = all_emitted[model]
        memory = of_model(all_memory, model)
        buffer = of_model(all_buffer, model)
        logged = all_logged[model]
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
                        logged[row] = dequeue(buffer, t, row, logged[row], layers.inputs[t, row])
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
            controller.control_logits(t, weights, layers, emitted)
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
def backward(
    settings: Settings,
    all_weights: controller.Parameters,
    all_sequence: controller.Sequence,
    all_first_cell: np.ndarray,
    all_layers: controller.Layers,
    all_emitted: np.ndarray,
    all_memory: tuple,
    all_buffer: InputBuffer,
    all_grad_outputs: np.ndarray,
    all_grad_readings: np.ndarray,
    all_grads: controller.Running,
    all_grad_memory: tuple,
    all_grad_buffer: InputBufferGrad,
    all_grad_inputs: np.ndarray,
    all_grad_weights: controller.Parameters,
    room: controller.Grads,
) -> None:
    """Backpropagate through `forward`; arguments with the same names are those that it received or wrote.

    Args:
        all_weights: `controller.Parameters`, the matrices packed as they are.
        all_first_cell: before the first step [R, L, H].
        all_memory, all_buffer: modified.
        all_grad_outputs: [R, T, H].
        all_grad_readings: [R, T, D]; or [R, 0, D] where the readings were not returned.
        all_grads: `controller.Running`: of the last states on entry, of the first on return.
        all_grad_memory: `ElementsGrad` or `SuperpositionGrad`; likewise.
        all_grad_buffer: an `InputBufferGrad`; likewise.
        all_grad_inputs: of x_t [R, T, E], written; or [R, T, 0] if unused.
        all_grad_weights: as in `controller.collect`; added to.
        room: `controller.Grads` for any number of steps, `logits` zeros; one for all models.
    """
    buffered = all_buffer.values.shape[1] > 0
    for model in range(all_grad_outputs.shape[0]):
        weights = of_model(all_weights, model)
        sequence = of_model(all_sequence, model)
        first_cell = all_first_cell[model]
        layers = of_model(all_layers, model)
        emitted = all_emitted[model]
        memory = of_model(all_memory, model)
        buffer = of_model(all_buffer, model)
        grad_outputs = all_grad_outputs[model]
        grad_readings = all_grad_readings[model]
        grads = of_model(all_grads, model)
        grad_memory = of_model(all_grad_memory, model)
        grad_buffer = of_model(all_grad_buffer, model)
        grad_inputs = all_grad_inputs[model]
        grad_weights = of_model(all_grad_weights, model)
        n_rows, length, active = grad_outputs.shape[0], grad_outputs.shape[1], sequence.active
        at_a_time, n_inputs, kind = room.gates.shape[1], layers.inputs.shape[2], settings.kind
        for row in range(n_rows):
            if settings.n_memory > 0:
                begin_backward(memory, grad_memory, row)
            if buffered:
                begin_buffer_backward(buffer, grad_buffer, row)

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
                    controller.project_backward(t, t + 1, weights, room)
            if buffered:
                for row in range(n_rows):
                    if active.shape[1] == 0 or active[row, t]:
                        dequeue_backward(buffer, grad_buffer, t, row, room.given[row, :n_inputs])
            if place == 0:
                stop = min(t + at_a_time, length)
                controller.collect(t, stop, sequence, layers, grad_weights, room)
                if grad_inputs.shape[2] > 0 and kind != DIRECT:
                    controller.project_backward(t, stop, weights, room)
                    for step_of in range(t, stop):
                        for row in range(n_rows):
                            copy(grad_inputs[row, step_of], room.given[(step_of - t) * n_rows + row])
