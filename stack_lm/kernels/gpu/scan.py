"""The cell over a whole sequence on a GPU: cuBLAS for the products, a kernel for each layer, and one for the memory.

Nothing here waits for the device, and all sizes are known beforehand, so that a whole scan can be captured in a CUDA
graph. What `backward` needs is kept for all steps side by side; the gradient of each weight is then one product.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..layout import LSTM
from . import pointwise, strength


class Settings(NamedTuple):
    """What a cell is made of, which does not change with its weights.

    Attributes:
        kind: of controller, as `layout.CONTROLLERS` numbers them.
        recurrent: whether it has a state.
        skips: whether each layer is given x_t.
        readings: whether the readings are among the results.
        stack: constants of the kernels of `strength`; None without a memory.
    """

    kind: int
    recurrent: bool
    skips: bool
    readings: bool
    stack: dict[str, Any] | None


class Given(NamedTuple):
    """What a scan starts from. The number of elements in the initial memory is N, its capacity C.

    Attributes:
        projected: what x_t gives to the gates of each layer that is given it [T, B, ...].
        active: [T, B], or [0, 0] where all sequences take all steps.
        dropped: what each layer's output is multiplied with on its way up [L - 1, T, B, H], or [L - 1, 0, 0, 0]. Among
            gradients, these two are None.
        first, rest, biases, controls, controls_bias: as in `layout.Weights`.
        hidden, cell: the controller's state [L, B, H] each.
        reading, values, strengths: as in `layout.States`.
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
    [B, C, D] and [B, C]."""

    outputs: Tensor
    readings: Tensor
    hidden: Tensor
    cell: Tensor
    reading: Tensor
    values: Tensor
    strengths: Tensor


class Kept(NamedTuple):
    """What `backward` needs of `forward`; see the kernels for all but `given_*`, what each layer was given."""

    given_first: Tensor
    given_rest: Tensor
    gates: Tensor
    hidden: Tensor
    cells: Tensor
    tops: Tensor
    logits: Tensor
    values: Tensor
    list_index: Tensor
    list_strength: Tensor
    ends: Tensor
    logged: Tensor
    log_index: Tensor
    log_strength: Tensor
    log_starts: Tensor


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


class MemoryArguments(NamedTuple):
    """Tensors of the memory, as `strength.forward` takes them."""

    logits: Tensor
    bias: Tensor
    active: Tensor
    reading: Tensor
    given: Tensor
    values: Tensor
    list_index: Tensor
    list_strength: Tensor
    ends: Tensor
    logged: Tensor
    log_index: Tensor
    log_strength: Tensor
    log_starts: Tensor


class MemoryGradients(NamedTuple):
    """Tensors of the memory, as `strength.backward` takes them."""

    logits: Tensor
    bias: Tensor
    active: Tensor
    values: Tensor
    list_index: Tensor
    list_strength: Tensor
    ends: Tensor
    logged: Tensor
    log_index: Tensor
    log_strength: Tensor
    log_starts: Tensor
    grad_given: Tensor
    grad_reading: Tensor
    grad_values: Tensor
    grad_strengths: Tensor
    grad_logits: Tensor
    first_shared: Tensor
    first_boundary: Tensor


class MemorySizes(NamedTuple):
    """Numbers that the kernels of the memory take behind t: B, T, N, C and the length of a log."""

    batch_size: int
    length: int
    elements: int
    capacity: int
    log: int


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
        **_FUSED,
    }


def _stack_constants(settings: Settings, given: Given) -> dict[str, Any]:
    size = given.values.shape[2]
    return {
        **(settings.stack or {}),
        "D": size,
        "P": len(given.controls),
        "GIVEN": given.first.shape[1],
        "GIVEN_FROM": given.first.shape[1] - given.reading.shape[1],
        "MASKED": given.active.numel() > 0,
        "BLOCK": triton.next_power_of_2(size),
        "num_warps": 1,
        **_FUSED,
    }


def _memory_sizes(given: Given, kept: Kept) -> MemorySizes:
    length, batch_size = given.projected.shape[:2]
    elements, capacity = given.strengths.shape[1], kept.list_strength.shape[1]
    return MemorySizes(batch_size, length, elements, capacity, kept.log_index.shape[1])


def _living(given: Given, length: int, deque: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The list of living elements that a scan starts with: index, strength, ends, and the values of all by id.

    Elements of strength zero are left out; `_revive` gives them their gradients.
    """
    batch_size, n = given.strengths.shape
    before, capacity = (length, n + 2 * length) if deque else (0, n + length)
    index = torch.zeros(batch_size, capacity, dtype=torch.int32, device=given.strengths.device)
    strength = given.strengths.new_zeros(batch_size, capacity)
    values = given.values.new_zeros(batch_size, capacity, given.values.shape[2])
    values[:, before : before + n] = given.values
    order = torch.argsort((given.strengths == 0).to(torch.uint8), dim=1, stable=True)
    index[:, before : before + n] = order + before
    strength[:, before : before + n] = given.strengths.gather(1, order)
    ends = torch.full((batch_size, 2), before, dtype=torch.int32, device=index.device)
    ends[:, 1] += (given.strengths != 0).sum(1, dtype=torch.int32)
    return index, strength, ends, values


def _at_active(given: Given, over_time: Tensor) -> Tensor:
    """A copy [T, B, ...] with zeros at padding."""
    if not given.active.numel() or not over_time.numel():
        return over_time.clone()
    return over_time.masked_fill(given.active.unsqueeze(-1) == 0, 0)


def _spread(index: Tensor, strength: Tensor, ends: Tensor) -> Tensor:
    """The strengths of all elements by id [B, C], from the list of the living."""
    batch_size, capacity = index.shape
    place = torch.arange(capacity, device=index.device)
    living = (place >= ends[:, :1]) & (place < ends[:, 1:])
    everywhere = strength.new_zeros(batch_size, capacity + 1)  # the last place is for those that are not living
    return everywhere.scatter_(1, torch.where(living, index.long(), capacity), strength)[:, :capacity].contiguous()


def forward(settings: Settings, given: Given) -> tuple[Results, Kept]:
    """Run a sequence. All tensors of `given` are contiguous."""
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
    deque = stack is not None and stack["DEQUE"]
    pops = 2 if deque else 1
    index, strengths, ends, values = _living(given, length, deque)
    logs = strengths.shape[1] + pops * length
    logits = projected.new_empty(length, batch_size, len(given.controls))
    logged = torch.zeros(batch_size, dtype=torch.int32, device=index.device)
    log_index, log_strength = index.new_empty(batch_size, logs), strengths.new_empty(batch_size, logs)
    log_starts = index.new_empty(length, batch_size, pops)
    reading = given.reading.clone()
    kept = Kept(
        given_first=given_first,
        given_rest=given_rest,
        gates=gates,
        hidden=hidden,
        cells=cells,
        tops=tops,
        logits=logits,
        values=values,
        list_index=index,
        list_strength=strengths,
        ends=ends,
        logged=logged,
        log_index=log_index,
        log_strength=log_strength,
        log_starts=log_starts,
    )
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
    stack_constants = _stack_constants(settings, given)
    of_memory = MemoryArguments(
        logits=logits,
        bias=given.controls_bias,
        active=given.active,
        reading=reading,
        given=given_first,
        values=values,
        list_index=index,
        list_strength=strengths,
        ends=ends,
        logged=logged,
        log_index=log_index,
        log_strength=log_strength,
        log_starts=log_starts,
    )
    sizes = _memory_sizes(given, kept)

    for t in range(length):
        for layer, tensors in enumerate(of_layers):
            torch.mm(tensors.own[t], matrices[layer], out=tensors.gates[t])
            pointwise.forward[blocks](*tensors, t, batch_size, **constants[layer])
        if stack:
            torch.mm(tops[t], given.controls.t(), out=logits[t])
            strength.forward[(batch_size,)](*of_memory, t, *sizes, **stack_constants)
    outputs = _at_active(given, hidden[-1, 1:])
    readings = given_first[1 : length + 1 if settings.readings else 1, :, first.shape[1] - depth :]
    readings = _at_active(given, readings.to(reading.dtype))
    cell = cells[:, -1].clone() if settings.kind == LSTM else given.cell
    return Results(
        outputs, readings, hidden[:, -1].clone(), cell, reading, values, _spread(index, strengths, ends)
    ), kept


def backward(settings: Settings, given: Given, kept: Kept, grads: Results) -> Given:
    """Backwards through `forward`.

    Args:
        kept: as `forward` returned it; not changed.
        grads: of its results.

    Returns:
        The gradients of `given`.
    """
    first, rest, stack = given.first, given.rest, settings.stack
    length, batch_size = given.projected.shape[:2]
    layers, _, size = given.hidden.shape
    depth = given.reading.shape[1]
    grad_gates = torch.empty_like(kept.gates)
    grad_logits = torch.empty_like(kept.logits)
    # Of what each layer was given at the step behind; the last state has its gradients in `straight`.
    grad_first = first.new_zeros(batch_size, first.shape[1])
    grad_rest = rest.new_zeros(layers - 1, batch_size, rest.shape[2])
    grad_top = first.new_empty(batch_size, size)
    straight, grad_cell, grad_reading, grad_values, grad_strengths = (grad.clone() for grad in grads[2:])
    of_readings = _at_active(given, grads.readings)
    first_shared = given.strengths.new_zeros(batch_size)
    first_boundary = kept.list_index.new_full((batch_size,), -1)
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
    stack_constants = _stack_constants(settings, given)
    of_memory = MemoryGradients(
        logits=kept.logits,
        bias=given.controls_bias,
        active=given.active,
        values=kept.values,
        # The list and the ends of the log are replayed in place, and another backward may follow.
        list_index=kept.list_index.clone(),
        list_strength=kept.list_strength.clone(),
        ends=kept.ends.clone(),
        logged=kept.logged.clone(),
        log_index=kept.log_index,
        log_strength=kept.log_strength,
        log_starts=kept.log_starts,
        grad_given=grad_first,
        grad_reading=grad_reading,
        grad_values=grad_values,
        grad_strengths=grad_strengths,
        grad_logits=grad_logits,
        first_shared=first_shared,
        first_boundary=first_boundary,
    )
    sizes = _memory_sizes(given, kept)

    for t in reversed(range(length)):
        if settings.readings:
            grad_reading += of_readings[t]
        if stack:
            strength.backward[(batch_size,)](*of_memory, t, *sizes, **stack_constants)
            torch.mm(grad_logits[t], given.controls, out=grad_top)
        for layer in reversed(range(layers)):
            tensors, last = of_layers[layer], layer == layers - 1
            pointwise.backward[blocks](*tensors, t, batch_size, LAST=last, **constants[layer])
            torch.mm(grad_gates[layer, t], matrices[layer], out=tensors.grad_own)

    if settings.recurrent:
        straight[0] += grad_first[:, :size]
        straight[1:] += grad_rest[:, :, size:]
    if depth:
        grad_reading += grad_first[:, first.shape[1] - depth :]
    flat = grad_gates.flatten(1, 2)
    of_rest = [flat[i].t() @ kept.given_rest[i - 1, :-1].flatten(0, 1) for i in range(1, layers)]
    width = given.projected.shape[2] // (layers if settings.skips else 1)
    of_inputs = [grad_gates[i, :, :, :width] for i in range(layers if settings.skips else 1)]
    deque = stack is not None and stack["DEQUE"]
    grad_values, grad_strengths = _revive(
        given,
        length if deque else 0,
        stack is None or stack["AT_TOP"],
        grad_values,
        grad_strengths,
        first_shared,
        first_boundary,
    )
    flat_logits = grad_logits.flatten(0, 1)
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
        reading=grad_reading,
        values=grad_values,
        strengths=grad_strengths,
    )


def _revive(
    given: Given,
    before: int,
    at_top: bool,
    grad_values: Tensor,
    grad_strengths: Tensor,
    first_shared: Tensor,
    first_boundary: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of the initial memory's elements, those of strength zero among them.

    To these the first pop alone gives one, if they come before the element that it shortened.
    """
    n = given.strengths.shape[1]
    grad_values, grad_strengths = (grad[:, before : before + n] for grad in (grad_values, grad_strengths))
    if not n:
        return grad_values, grad_strengths
    which = torch.arange(before, before + n, device=grad_values.device)
    boundary = first_boundary.unsqueeze(1)
    passed = (boundary >= 0) & ((which > boundary) if at_top else (which < boundary))
    revived = torch.where(passed, first_shared.unsqueeze(1), torch.zeros_like(grad_strengths))
    dead = given.strengths == 0
    if given.active.numel():
        dead = dead & (given.active != 0).any(0).unsqueeze(1)  # others' memories are as they were
    return grad_values, torch.where(dead, revived, grad_strengths)


_FUSED = {"enable_fp_fusion": True}  # Triton's default, which it announces to change unless it is given
