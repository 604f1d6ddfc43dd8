"""The cell over a whole sequence on a GPU: cuBLAS for the products, a kernel for each layer, and one for the memory.

Nothing here waits for the device, and all sizes are known beforehand, so that a whole scan can be captured in a CUDA
graph. What `backward` needs is kept for all steps side by side; the gradient of each weight is then one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from . import pointwise as triton_pointwise
from . import strength as triton_stack


class Settings(NamedTuple):
    """What a cell is made of, which does not change with its weights.

    Attributes:
        kind: of controller; see `triton_pointwise`.
        recurrent: whether it has a state.
        skips: whether each layer is given x_t.
        stack: constants of the kernels of `triton_stack`; None without a memory.
    """

    kind: int
    recurrent: bool
    skips: bool
    stack: dict[str, Any] | None


class Given(NamedTuple):
    """What a scan starts from. The number of elements in the initial memory is N, its capacity C.

    Attributes:
        projected: what x_t gives to the gates of each layer that is given it [T, B, ...].
        active: [T, B], or [0, 0] where all sequences take all steps.
        dropped: what each layer's output is multiplied with on its way up [L - 1, T, B, H], or [L - 1, 0, 0, 0].
        controls, controls_bias: from the controller's output to the logits of all controls [P, H] and [P].
        first: from h and r to the gates of the first layer [blocks * H, H + R].
        rest: from the layer below and h to those of each further layer [L - 1, blocks * H, 2 H].
        biases: [L, blocks * H].
        hidden, cell: the controller's state [L, B, H] each.
        reading: [B, R].
        values, strengths: the elements of the initial memory [B, N, D] and [B, N].
    """

    projected: Tensor
    active: Tensor
    dropped: Tensor
    controls: Tensor
    controls_bias: Tensor
    first: Tensor
    rest: Tensor
    biases: Tensor
    hidden: Tensor
    cell: Tensor
    reading: Tensor
    values: Tensor
    strengths: Tensor


class Results(NamedTuple):
    """The outputs [T, B, H], and the last states: [L, B, H], [L, B, H], [B, R], [B, C, D] and [B, C]."""

    outputs: Tensor
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
    cells = given.hidden.new_empty(layers, length + 1, batch_size, size if settings.kind == _LSTM else 0)
    if settings.kind == _LSTM:
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
    index, strength, ends, values = _living(given, length, deque)
    logs = strength.shape[1] + pops * length
    logits = projected.new_empty(length, batch_size, len(given.controls))
    logged = torch.zeros(batch_size, dtype=torch.int32, device=index.device)
    log_index, log_strength = index.new_empty(batch_size, logs), strength.new_empty(batch_size, logs)
    log_starts = index.new_empty(length, batch_size, pops)
    reading = given.reading.clone()
    numbers = (batch_size, length, given.strengths.shape[1], strength.shape[1], logs)
    kept = Kept(
        given_first,
        given_rest,
        gates,
        hidden,
        cells,
        tops,
        logits,
        values,
        index,
        strength,
        ends,
        logged,
        log_index,
        log_strength,
        log_starts,
    )
    constants = [_pointwise_constants(settings, given, layer) for layer in range(layers)]
    of_layers = []
    for layer in range(layers):
        has = layer == 0 or settings.skips
        constants[layer]["PROJECTED"] = projected.shape[2] if has else 0
        constants[layer]["PROJECTED_FROM"] = layer * (projected.shape[2] // layers) if has else 0
        of_layers.append(
            (
                gates[layer],
                projected,
                given.biases[layer],
                hidden[layer],
                cells[layer],
                given_rest[layer - 1] if layer else given_first,
                given_rest[layer] if layer < layers - 1 else tops,
                given.dropped[layer] if layer < layers - 1 else given.dropped,
                given.active,
            )
        )
    matrices = [first.t(), *rest.transpose(1, 2)]
    blocks = batch_size, triton.cdiv(size, constants[0]["BLOCK"])
    stack_constants = _stack_constants(settings, given)
    of_memory = (logits, given.controls_bias, given.active, reading, given_first, *kept[_MEMORY:])

    for t in range(length):
        for layer, tensors in enumerate(of_layers):
            torch.mm(tensors[_OWN][t], matrices[layer], out=tensors[0][t])
            triton_pointwise.forward[blocks](*tensors, t, batch_size, **constants[layer])
        if stack:
            torch.mm(tops[t], given.controls.t(), out=logits[t])
            triton_stack.forward[(batch_size,)](*of_memory, t, *numbers, **stack_constants)
    outputs = hidden[-1, 1:]
    outputs = outputs.masked_fill(given.active.unsqueeze(-1) == 0, 0) if given.active.numel() else outputs.clone()
    cell = cells[:, -1].clone() if settings.kind == _LSTM else given.cell
    return Results(outputs, hidden[:, -1].clone(), cell, reading, values, _spread(index, strength, ends)), kept


def backward(settings: Settings, given: Given, kept: Kept, grads: Results) -> Sequence[Tensor | None]:
    """Backwards through `forward`.

    Args:
        kept: as `forward` returned it; not changed.
        grads: of its results.

    Returns:
        The gradients of `given`, in its order; None for the two that have none.
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
    straight, grad_cell, grad_reading, grad_values, grad_strengths = (grad.clone() for grad in grads[1:])
    # The list and the ends of the log are replayed in place, and another backward may follow.
    index, strength, ends, logged = (
        kept.list_index.clone(),
        kept.list_strength.clone(),
        kept.ends.clone(),
        kept.logged.clone(),
    )
    first_shared, first_boundary = strength.new_zeros(batch_size), index.new_full((batch_size,), -1)
    numbers = (batch_size, length, given.strengths.shape[1], strength.shape[1], kept.log_index.shape[1])
    constants = [_pointwise_constants(settings, given, layer) for layer in range(layers)]
    of_layers = [
        (
            kept.gates[layer],
            kept.hidden[layer],
            kept.cells[layer],
            given.dropped[layer] if layer < layers - 1 else given.dropped,
            given.active,
            grads.outputs,
            grad_rest[layer - 1] if layer else grad_first,
            grad_rest[layer] if layer < layers - 1 else grad_top,
            straight[layer],
            grad_cell[layer],
            grad_gates[layer],
        )
        for layer in range(layers)
    ]
    matrices = [first, *rest]
    blocks = batch_size, triton.cdiv(size, constants[0]["BLOCK"])
    stack_constants = _stack_constants(settings, given)
    of_memory = (
        kept.logits,
        given.controls_bias,
        given.active,
        kept.values,
        index,
        strength,
        ends,
        logged,
        kept.log_index,
        kept.log_strength,
        kept.log_starts,
        grad_first,
        grad_reading,
        grad_values,
        grad_strengths,
        grad_logits,
        first_shared,
        first_boundary,
    )

    for t in reversed(range(length)):
        if stack:
            triton_stack.backward[(batch_size,)](*of_memory, t, *numbers, **stack_constants)
            torch.mm(grad_logits[t], given.controls, out=grad_top)
        for layer in reversed(range(layers)):
            tensors, last = of_layers[layer], layer == layers - 1
            triton_pointwise.backward[blocks](*tensors, t, batch_size, LAST=last, **constants[layer])
            torch.mm(grad_gates[layer, t], matrices[layer], out=tensors[_GRAD_OWN])

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
    return (
        torch.cat(of_inputs, dim=-1),
        None,
        None,
        flat_logits.t() @ kept.tops.flatten(0, 1),
        flat_logits.sum(0, dtype=given.controls_bias.dtype),
        flat[0].t() @ kept.given_first[:-1].flatten(0, 1),
        torch.stack(of_rest) if of_rest else torch.zeros_like(rest),
        flat.sum(1, dtype=given.biases.dtype),
        straight,
        grad_cell,
        grad_reading,
        grad_values,
        grad_strengths,
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


_LSTM = triton_pointwise.LSTM.value
_FUSED = {"enable_fp_fusion": True}  # Triton's default, which it announces to change unless it is given
_MEMORY = Kept._fields.index("values")
_OWN, _GRAD_OWN = 5, 6  # which of a layer's tensors are what it was given, and its gradient
