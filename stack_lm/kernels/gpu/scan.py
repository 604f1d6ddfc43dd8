"""The cell over a whole sequence on a GPU: cuBLAS for the products, a kernel for each layer, and one for the memory.

Nothing here waits for the device, and all sizes are known beforehand, so a whole scan can be captured in a CUDA graph.
The tensors that `backward` needs are stored contiguously for all steps, so each weight's gradient is one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..layout import LSTM
from . import elements, pointwise
from .elements import FUSED, at_active

_NO_STACK = {"DEQUE": False, "AT_TOP": True, "UNREAD": 0}


class Settings(NamedTuple):
    """The constants of a cell, which do not change with its weights.

    Attributes:
        kind: of controller, as `layout` numbers them.
        recurrent: whether it has a state.
        skips: whether each layer is given x_t.
        readings: whether the readings are among the results.
        stack: the memory, as `elements.begin` takes it; None without one.
    """

    kind: int
    recurrent: bool
    skips: bool
    readings: bool
    stack: dict[str, Any] | None


class Given(NamedTuple):
    """The inputs of a scan. The number of elements in the initial memory is N, its capacity C.

    Attributes:
        projected: what x_t gives to the gates of each layer that is given it [T, B, ...].
        active: [T, B], or [0, 0] where all sequences take all steps.
        dropped: what each layer's output is multiplied with on its way up [L - 1, T, B, H], or [L - 1, 0, 0, 0]. Among
            gradients, these two are None.
        first, rest, biases, controls, controls_bias: as in `tensors.Weights`.
        hidden, cell: the controller's state [L, B, H] each.
        reading, values, strengths: as in `tensors.States`.
    """

    projected: Tensor
    active: Any
    dropped: Any
    first: Tensor
    rest: Tensor
    biases: Tensor
    controls: Tensor
    controls_bias: Tensor
    hidden: Tensor
    cell: Tensor
    reading: Tensor
    values: Tensor
    strengths: Tensor


class Results(NamedTuple):
    """The outputs [T, B, H], the readings [T, B, R] or [0, B, R], and the last states: [L, B, H], [L, B, H], [B, R],
    [B, C, D] and [B, C], or as `tensors.States` has them."""

    outputs: Tensor
    readings: Tensor
    hidden: Tensor
    cell: Tensor
    reading: Tensor
    values: Tensor
    strengths: Tensor


class Kept(NamedTuple):
    """Tensors that `forward` keeps for `backward`, besides the memory's lists; `given_*` are the layers' inputs."""

    given_first: Tensor
    given_rest: Tensor
    gates: Tensor
    hidden: Tensor
    cells: Tensor
    tops: Tensor


class LayerArguments(NamedTuple):
    """Tensors of one layer, as `pointwise.forward` takes them."""

    gates: Tensor
    projected: Tensor
    bias: Tensor
    hidden: Tensor
    cells: Tensor
    own: Tensor
    up: Tensor
    dropped: Tensor
    active: Tensor


class LayerGradients(NamedTuple):
    """Tensors of one layer, as `pointwise.backward` takes them."""

    gates: Tensor
    hidden: Tensor
    cells: Tensor
    dropped: Tensor
    active: Tensor
    grad_outputs: Tensor
    grad_own: Tensor
    grad_up: Tensor
    grad_straight: Tensor
    grad_cell: Tensor
    grad_gates: Tensor


def _pointwise_constants(settings: Settings, given: Given, layer: int) -> dict[str, Any]:
    size = given.hidden.shape[2]
    layers = len(given.biases)
    width = given.first.shape[1] if layer == 0 else given.rest.shape[2]
    last = layer == layers - 1
    return {
        "OWN": width if settings.recurrent else 0,
        "OWN_FROM": 0 if layer == 0 else size,
        "UP": given.rest.shape[2] if not last else (size if settings.stack else 0),
        "DROPS": not last and given.dropped.numel() > 0,
        "MASKED": given.active.numel() > 0,
        "KIND": settings.kind,
        "H": size,
        "BLOCK": min(256, triton.next_power_of_2(size)),
        **FUSED,
    }


def forward(settings: Settings, given: Given) -> tuple[Results, tuple[Tensor, ...]]:
    """Run a sequence. All tensors of `given` are contiguous.

    Returns:
        The results, and what `backward` needs besides: a `Kept`, then the memory's `Lists`.
    """
    projected, first, rest, stack = given.projected, given.first, given.rest, settings.stack
    length, batch_size = projected.shape[:2]
    layers, _, size = given.hidden.shape
    columns, depth = given.biases.shape[1], given.reading.shape[1]
    hidden = given.hidden.new_empty(layers, length + 1, batch_size, size)
    hidden[:, 0] = given.hidden
    cells = given.hidden.new_empty(layers, length + 1, batch_size, size if settings.kind == LSTM else 0)
    if settings.kind == LSTM:
        cells[:, 0] = given.cell
    gates = projected.new_empty(layers, length, batch_size, columns)
    given_first = projected.new_empty(length + 1, batch_size, first.shape[1])
    given_rest = projected.new_empty(layers - 1, length + 1, batch_size, rest.shape[2])
    tops = projected.new_empty(length, batch_size, size if stack else 0)
    if settings.recurrent:
        given_first[0, :, :size] = given.hidden[0]
        given_rest[:, 0, :, size:] = given.hidden[1:]
    given_first[0, :, first.shape[1] - depth :] = given.reading
    logits = projected.new_empty(length, batch_size, len(given.controls))
    of_stack = stack or _NO_STACK
    lists = elements.begin(of_stack, logits, given.values, given.strengths, given.active)
    reading = given.reading.clone()
    constants = [_pointwise_constants(settings, given, layer) for layer in range(layers)]
    of_layers = []
    for layer in range(layers):
        has, last = layer == 0 or settings.skips, layer == layers - 1
        constants[layer]["PROJECTED"] = projected.shape[2] if has else 0
        constants[layer]["PROJECTED_FROM"] = layer * (projected.shape[2] // layers) if has else 0
        of_layers.append(
            LayerArguments(
                gates=gates[layer],
                projected=projected,
                bias=given.biases[layer],
                hidden=hidden[layer],
                cells=cells[layer],
                own=given_rest[layer - 1] if layer else given_first,
                up=tops if last else given_rest[layer],
                dropped=given.dropped if last else given.dropped[layer],
                active=given.active,
            )
        )
    matrices = [first.t(), *rest.transpose(1, 2)]
    blocks = batch_size, triton.cdiv(size, constants[0]["BLOCK"])
    if stack:
        step = elements.steps(of_stack, lists, given.controls_bias, given.active, reading, given_first)

    for t in range(length):
        for layer, tensors in enumerate(of_layers):
            torch.mm(tensors.own[t], matrices[layer], out=tensors.gates[t])
            pointwise.forward[blocks](*tensors, t, batch_size, **constants[layer])
        if stack:
            torch.mm(tops[t], given.controls.t(), out=logits[t])
            step(t)
    outputs = at_active(given.active, hidden[-1, 1:])
    readings = given_first[1 : length + 1 if settings.readings else 1, :, first.shape[1] - depth :]
    last_values, last_strengths = elements.last(lists)
    results = Results(
        outputs=outputs,
        readings=at_active(given.active, readings.to(reading.dtype)),
        hidden=hidden[:, -1].clone(),
        cell=cells[:, -1].clone() if settings.kind == LSTM else given.cell,
        reading=reading,
        values=last_values,
        strengths=last_strengths,
    )
    return results, (*Kept(given_first, given_rest, gates, hidden, cells, tops), *lists)


def backward(settings: Settings, given: Given, of_forward: Sequence[Tensor], grads: Results) -> Given:
    """Backpropagate through `forward`.

    Args:
        of_forward: as `forward` returned it; not changed.
        grads: of its results.

    Returns:
        The gradients of `given`.
    """
    first, rest, stack = given.first, given.rest, settings.stack
    of_stack = stack or _NO_STACK
    kept, lists = Kept(*of_forward[: len(Kept._fields)]), elements.Lists(*of_forward[len(Kept._fields) :])
    length, batch_size = given.projected.shape[:2]
    layers, _, size = given.hidden.shape
    depth = given.reading.shape[1]
    grad_gates = torch.empty_like(kept.gates)
    # Of what each layer was given at the step behind; the last state has its gradients in `straight`.
    grad_first = first.new_zeros(batch_size, first.shape[1])
    grad_rest = rest.new_zeros(layers - 1, batch_size, rest.shape[2])
    grad_top = first.new_empty(batch_size, size)
    straight, grad_cell = grads.hidden.clone(), grads.cell.clone()
    of_memory = elements.begin_back(lists, grads.reading, grads.values, grads.strengths)
    of_readings = at_active(given.active, grads.readings)
    constants = [_pointwise_constants(settings, given, layer) for layer in range(layers)]
    of_layers = [
        LayerGradients(
            gates=kept.gates[layer],
            hidden=kept.hidden[layer],
            cells=kept.cells[layer],
            dropped=given.dropped[layer] if layer < layers - 1 else given.dropped,
            active=given.active,
            grad_outputs=grads.outputs,
            grad_own=grad_rest[layer - 1] if layer else grad_first,
            grad_up=grad_rest[layer] if layer < layers - 1 else grad_top,
            grad_straight=straight[layer],
            grad_cell=grad_cell[layer],
            grad_gates=grad_gates[layer],
        )
        for layer in range(layers)
    ]
    matrices = [first, *rest]
    blocks = batch_size, triton.cdiv(size, constants[0]["BLOCK"])
    if stack:
        step_back = elements.steps_back(
            of_stack, lists, given.controls_bias, given.active, of_memory, grad_first.shape[1]
        )

    for t in reversed(range(length)):
        if settings.readings:
            of_memory.reading.add_(of_readings[t])
        if stack:
            step_back(t, grad_first)
            torch.mm(of_memory.logits[t], given.controls, out=grad_top)
        for layer in reversed(range(layers)):
            tensors, last = of_layers[layer], layer == layers - 1
            pointwise.backward[blocks](*tensors, t, batch_size, LAST=last, **constants[layer])
            torch.mm(grad_gates[layer, t], matrices[layer], out=tensors.grad_own)

    if settings.recurrent:
        straight[0] += grad_first[:, :size]
        straight[1:] += grad_rest[:, :, size:]
    if depth:
        of_memory.reading.add_(grad_first[:, first.shape[1] - depth :])
    flat = grad_gates.flatten(1, 2)
    of_rest = [flat[i].t() @ kept.given_rest[i - 1, :-1].flatten(0, 1) for i in range(1, layers)]
    width = given.projected.shape[2] // (layers if settings.skips else 1)
    of_inputs = [grad_gates[i, :, :, :width] for i in range(layers if settings.skips else 1)]
    grad_values, grad_strengths = elements.initial_state_grads(
        of_stack, lists, given.active, given.strengths, of_memory
    )
    flat_logits = of_memory.logits.flatten(0, 1)
    return Given(
        projected=torch.cat(of_inputs, dim=-1),
        active=None,
        dropped=None,
        first=flat[0].t() @ kept.given_first[:-1].flatten(0, 1),
        rest=torch.stack(of_rest) if of_rest else torch.zeros_like(rest),
        biases=flat.sum(1, dtype=given.biases.dtype),
        controls=flat_logits.t() @ kept.tops.flatten(0, 1),
        controls_bias=flat_logits.sum(0, dtype=given.controls_bias.dtype),
        hidden=straight,
        cell=grad_cell,
        reading=of_memory.reading,
        values=grad_values,
        strengths=grad_strengths,
    )
