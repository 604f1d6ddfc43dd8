"""The cell's scan on the CPU: torch before and after, `numba_scan` in between, as one differentiable function."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...controllers import ElmanController, GRUController, LinearController, LSTMController
from ...controls import ExpectedValue, Fixed
from ...derivatives import first_derivative_only
from ...memory import NeuralDeque, NeuralQueue, NeuralStack, NoMemory, StackState
from .cache import compiled_code
from .threads import available, run_parts

with compiled_code():
    from . import scan as numba_scan
    from .gemm import pack, padded

if TYPE_CHECKING:
    from ...cell import CellState, StackRNNCell

_KINDS = {
    LinearController: numba_scan.LINEAR,
    ElmanController: numba_scan.ELMAN,
    GRUController: numba_scan.GRU,
    LSTMController: numba_scan.LSTM,
}
_MEMORIES = {
    NoMemory: numba_scan.STACK,  # of nothing
    NeuralStack: numba_scan.STACK,
    NeuralQueue: numba_scan.QUEUE,
    NeuralDeque: numba_scan.DEQUE,
}


def obstacle(cell: StackRNNCell, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why it cannot run this cell; see `stack_lm.kernels.dispatch`."""
    controller = cell.controller
    if device.type != "cpu":
        return f"the inputs are on {device.type}"
    if dtype not in (torch.float32, torch.float64) or any(p.dtype != dtype for p in cell.parameters()):
        return f"numbers must be all float32 or all float64; the inputs are {str(dtype).removeprefix('torch.')}"
    if type(cell.memory) not in _MEMORIES:
        return f"the memory is {cell.memory.name!r}"
    if type(controller) not in _KINDS:
        return f"the controller is a {type(controller).__name__}"
    if controller.skips:
        return "the controller has skip connections from the input"
    if controller.reading_entry != "input" and controller.weight_reading is not None:
        return f"the reading enters the {controller.reading_entry}"
    return None


class _Settings(NamedTuple):
    """What a cell is made of, as the compiled code wants it."""

    kind: int
    memory: int
    controls: np.ndarray
    fixed: np.ndarray
    value_kind: int


# Multiply-adds that keep a thread busy for much longer than it takes to wake it.
_WORK_OF_A_THREAD = 3_000_000
# Rows, of all steps, whose products with the gradients of the gates are taken at a time: as many as stay in the cache.
_ROWS_OF_A_PRODUCT = 512


def _over_rows(run: Callable[[int, slice], Any], batch_size: int, parts: int) -> list[Any]:
    """Share the rows of a batch out over threads.

    Args:
        run: given the number of a block and its rows.

    Returns:
        What `run` returned for each block.
    """
    return run_parts(lambda i: run(i, slice(batch_size * i // parts, batch_size * (i + 1) // parts)), parts)


_called: set[tuple[str, np.dtype]] = set()
_PATIENCE = 1.5  # seconds


@contextmanager
def _first_call(what: str, dtype: np.dtype) -> Iterator[None]:
    """Say so if what is done inside for the first time takes long, because there is no compiled code kept of it."""
    if (what, dtype) in _called:
        yield
        return

    def tell(text: str) -> None:
        print(f"stack-lm: {text}", file=sys.stderr, flush=True)

    start = time.perf_counter()
    timer = threading.Timer(_PATIENCE, tell, [f"compiling the {what} for {dtype}, once for this machine ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    _called.add((what, dtype))
    seconds = time.perf_counter() - start
    if seconds > _PATIENCE:
        tell(f"compiled the {what} in {seconds:.0f} s (`stack-lm warmup` does it ahead)")


def _gather_weights(cell: StackRNNCell) -> tuple[Tensor, Tensor, Tensor]:
    """A controller's parameters as the blocks of `numba_scan`, by differentiable operations.

    Returns:
        The first layer's matrix [E + H + D, blocks * H], those of the others [L - 1, 2 H, blocks * H], and all biases
        [L, blocks * H]. The linear controller has no H rows for its state.
    """
    controller = cell.controller
    kind = _KINDS[type(controller)]
    size = controller.hidden_size

    def blocks(weight: Tensor, of_state: bool = False) -> Tensor:
        """Rows of a weight matrix, or a bias, as blocks: a GRU's new gate is apart for input and state."""
        if kind != numba_scan.GRU:
            return weight
        empty = weight.new_zeros(size, *weight.shape[1:])
        if of_state:
            return torch.cat((weight[: 2 * size], empty, weight[2 * size :]))
        return torch.cat((weight, empty))

    matrices, biases = [], []
    for layer in range(controller.num_layers):
        columns = [blocks(getattr(controller, f"weight_ih_l{layer}"))]
        if controller.recurrent:
            columns.append(blocks(getattr(controller, f"weight_hh_l{layer}"), of_state=True))
        if not controller.bias:
            bias = columns[0].new_zeros(columns[0].shape[0])
        else:
            bias = blocks(getattr(controller, f"bias_ih_l{layer}"))
            if controller.recurrent:
                bias = bias + blocks(getattr(controller, f"bias_hh_l{layer}"), of_state=True)
        if layer == 0 and controller.weight_reading is not None:
            columns.append(blocks(controller.weight_reading))
        matrices.append(torch.cat(columns, dim=1).t())
        biases.append(bias)
    further = size * (2 if controller.recurrent else 1)
    none = matrices[0].new_zeros(0, further, matrices[0].shape[1])
    return matrices[0], torch.stack(matrices[1:]) if len(matrices) > 1 else none, torch.stack(biases)


def _settings(cell: StackRNNCell, dtype: np.dtype) -> _Settings:
    n_strengths = max(3, len(cell.controls.strengths))
    controls = np.zeros((n_strengths, 3), np.int64)
    fixed = np.zeros(n_strengths, dtype)
    place = cell.memory.reading_size  # as large as all pushed values
    for which, field in enumerate(field for field in cell.memory.actions if field.kind == "strength"):
        control = cell.controls.strengths[field.name]
        if isinstance(control, Fixed):
            kind, fixed[which] = numba_scan.FIXED, control.value
        else:
            kind = numba_scan.EXPECTED_VALUE if isinstance(control, ExpectedValue) else numba_scan.SIGMOID
        controls[which] = kind, place, place + control.width
        place += control.width
    tanh = cell.controls.value_activation is torch.tanh
    value_kind = numba_scan.TANH_VALUES if tanh else numba_scan.SIGMOID_VALUES
    return _Settings(_KINDS[type(cell.controller)], _MEMORIES[type(cell.memory)], controls, fixed, value_kind)


def scan(cell: StackRNNCell, inputs: Tensor, state: CellState, mask: Tensor | None) -> tuple[Tensor, CellState]:
    """Run a sequence; equals the reference scan of `cell` in outputs, states and gradients.

    Args:
        inputs: [B, T, E], float32 or float64.
        state: to start from.
        mask: [B, T] bool, or None.

    Returns:
        The outputs [B, T, H] and the last state.
    """
    matrix_first, matrix_rest, biases = _gather_weights(cell)
    batch_size, length = inputs.shape[:2]
    layers, size = cell.controller.num_layers, cell.controller.hidden_size
    none = inputs.new_zeros(batch_size, layers, size)
    hidden, memory_cell = (part.to(inputs.dtype) for part in (*state.controller, none, none)[:2])
    stored = bool(cell.memory.actions)
    bias_controls: Tensor
    if stored:
        values, strengths = (part.to(inputs.dtype) for part in state.memory)
        projection = cell.controls.projection
        assert projection is not None  # there is a value to push
        weight_controls, bias = projection.weight.t(), projection.bias
        bias_controls = inputs.new_zeros(weight_controls.shape[1]) if bias is None else bias
    else:
        values, strengths = inputs.new_zeros(batch_size, 0, 0), inputs.new_zeros(batch_size, 0)
        weight_controls, bias_controls = inputs.new_zeros(size, 0), inputs.new_zeros(0)
    dropout = cell.controller.dropout if cell.training and layers > 1 else 0.0
    dropped = inputs.new_ones(batch_size, layers - 1, length, size if dropout else 0)
    outputs, hidden, memory_cell, reading, values, strengths = _Scan.apply(
        _settings(cell, np.dtype(str(inputs.dtype).removeprefix("torch."))),
        np.zeros((batch_size, 0), np.bool_) if mask is None else _array(mask),
        F.dropout(dropped, dropout),
        inputs,
        matrix_first,
        matrix_rest,
        biases,
        weight_controls,
        bias_controls,
        hidden,
        memory_cell,
        state.reading.to(inputs.dtype),
        values,
        strengths,
    )
    last = (hidden, memory_cell)[: len(state.controller)]
    memory = StackState(values, strengths) if stored else state.memory
    return outputs, state._replace(controller=last, memory=memory, reading=reading)


def _array(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers as a contiguous array, shared if it is contiguous."""
    return tensor.detach().contiguous().numpy()


class _Scan(torch.autograd.Function):
    """`numba_scan.forward` and `backward` on tensors."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: _Settings,
        active: np.ndarray,
        dropped: Tensor,
        inputs: Tensor,
        matrix_first: Tensor,
        matrix_rest: Tensor,
        biases: Tensor,
        weight_controls: Tensor,
        bias_controls: Tensor,
        hidden: Tensor,
        cell: Tensor,
        reading: Tensor,
        values: Tensor,
        strengths: Tensor,
    ) -> tuple[Tensor, ...]:
        batch_size, length, _ = inputs.shape
        _, layers, size = hidden.shape
        depth, n_first, dtype = values.shape[2], strengths.shape[1], settings.fixed.dtype
        n_ends = len(settings.fixed) // 3
        first = slice((n_ends - 1) * length, (n_ends - 1) * length + n_first)
        n_last = n_first + n_ends * length
        given, drops = _array(inputs), _array(dropped)
        width, n_logits = padded(biases.shape[1], given), padded(bias_controls.shape[0], given)
        cells = size if settings.kind == numba_scan.LSTM else 0
        panels = pack(_array(matrix_first)), _pack_all(matrix_rest), pack(_array(weight_controls))
        weights = (*panels, _array(biases), _array(bias_controls))
        outputs = np.empty((batch_size, length, size), dtype)
        first_cell = _array(cell)
        lasts = [_array(part).copy() for part in (hidden, cell, reading)]
        stored = [np.empty((batch_size, n_last, depth), dtype), np.empty((batch_size, n_last), dtype)]
        stored[0][:, first], stored[1][:, first] = _array(values), _array(strengths)

        def run(block: int, rows: slice) -> tuple[np.ndarray, ...]:
            n = rows.stop - rows.start
            kept = (
                np.empty((length, n, matrix_first.shape[0]), dtype),
                np.empty((layers - 1, length, n, matrix_rest.shape[1]), dtype),
                np.empty((layers, length, n, width), dtype),  # gates
                np.empty((layers, length, n, cells), dtype),
                np.empty((length, n, size), dtype),  # the last layer's outputs
                np.empty((length, n, n_logits), dtype),  # what the controls emitted
                np.empty((length, n, 3 * n_ends), dtype),  # the strengths
                np.empty((n, n_last + n_ends * length), np.int32),  # the log of pops
                np.empty((n, n_last + n_ends * length), dtype),
                np.empty((length, n, n_ends), np.int64),
                np.zeros((length, n, n_ends, 2), np.bool_),
                np.empty((n, n_last), np.int32),  # the living elements
                np.empty((n, n_last), dtype),
                np.empty((n, 2), np.int64),
            )
            own = (part[rows] for part in (given, active, drops, *lasts, *stored, outputs))
            working = np.zeros(n, np.int64), np.zeros(n, np.bool_)
            numba_scan.forward(*settings, *weights, *own, *kept, *working)
            return kept

        work = batch_size * length * (matrix_first.numel() + matrix_rest.numel() + weight_controls.numel())
        parts = max(1, min(available(), batch_size, work // _WORK_OF_A_THREAD))
        with _first_call("forward pass", dtype):
            kept_of_blocks = _over_rows(run, batch_size, parts)
        results = tuple(torch.from_numpy(array) for array in (outputs, *lasts, *stored))
        ctx.settings, ctx.active, ctx.drops, ctx.first_cell, ctx.first = settings, active, drops, first_cell, first
        # All that is large goes through here, for activation checkpointing to let go of it.
        kept = (torch.from_numpy(array) for block in kept_of_blocks for array in block)
        ctx.save_for_backward(matrix_first, matrix_rest, weight_controls, results[4], *kept)
        ctx.parts = parts
        return results

    @staticmethod
    @first_derivative_only("the compiled scan", 'set_scan_backend("reference") has one that can')
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        matrix_first, matrix_rest, weight_controls, values, *kept_of_all = ctx.saved_tensors
        batch_size, length, size = grads[0].shape
        columns, n_logits, dtype = matrix_first.shape[1], weight_controls.shape[1], ctx.settings.fixed.dtype
        panels = (
            pack(_array(matrix_first.t())),
            _pack_all(matrix_rest.transpose(1, 2)),
            pack(_array(weight_controls.t())),
        )
        grad_outputs = _array(grads[0])
        states = [_array(grad).copy() for grad in grads[1:]]
        recurrent = 0 if ctx.settings.kind == numba_scan.LINEAR else size
        n_inputs = matrix_first.shape[0] - recurrent - grads[3].shape[1]
        grad_inputs = np.empty((batch_size, length, n_inputs), dtype)
        before = (ctx.active, ctx.drops, ctx.first_cell, _array(values))
        each = len(kept_of_all) // ctx.parts

        def run(block: int, rows: slice) -> tuple[np.ndarray, ...]:
            n = rows.stop - rows.start
            kept = [tensor.numpy() for tensor in kept_of_all[block * each :][:each]]
            gates, emitted, actions = kept[2], kept[5], kept[6]
            steps = min(length, max(1, _ROWS_OF_A_PRODUCT // n))
            widest = max(matrix_first.shape[0], matrix_rest.shape[1], size)
            working = (
                np.empty((len(gates), steps, *gates.shape[2:]), dtype),
                np.zeros((steps, *emitted.shape[1:]), dtype),
                np.zeros((n, padded(widest, gates)), dtype),
                np.zeros((n, size), dtype),
                np.empty(actions.shape[2], dtype),
                np.empty(values.shape[1], np.bool_),
            )
            # The living elements are worked in; one forward pass may be gone through backwards more than once.
            kept[-3:] = (array.copy() for array in kept[-3:])
            own_weights = (
                np.zeros((matrix_first.shape[0], gates.shape[3]), dtype),
                np.zeros((len(matrix_rest), matrix_rest.shape[1], gates.shape[3]), dtype),
                np.zeros((size, emitted.shape[2]), dtype),
                np.zeros((len(matrix_rest) + 1, columns), dtype),
                np.zeros(n_logits, dtype),
            )
            numba_scan.backward(
                ctx.settings.kind,
                ctx.settings.memory,
                ctx.settings.controls,
                ctx.settings.value_kind,
                *panels,
                *(part[rows] for part in before),
                *kept,
                *(part[rows] for part in (grad_outputs, *states, grad_inputs)),
                *own_weights,
                *working,
            )
            return own_weights

        with _first_call("backward pass", dtype):
            of_weights = _over_rows(run, batch_size, ctx.parts)
        total = [torch.from_numpy(sum(parts[1:], start=parts[0])) for parts in zip(*of_weights, strict=True)]
        grad_first, grad_rest, grad_controls, grad_biases, grad_bias_controls = total
        grad_hidden, grad_cell, grad_reading, grad_values, grad_strengths = map(torch.from_numpy, states)
        return (
            None,
            None,
            None,
            torch.from_numpy(grad_inputs),
            grad_first[:, :columns],
            grad_rest[:, :, :columns],
            grad_biases,
            grad_controls[:, :n_logits],
            grad_bias_controls,
            grad_hidden,
            grad_cell,
            grad_reading,
            grad_values[:, ctx.first],
            grad_strengths[:, ctx.first],
        )


def _pack_all(matrices: Tensor) -> np.ndarray:
    """Each of [n, K, N] packed, in one array [n, panels, K, width]."""
    packed = [pack(_array(matrix)) for matrix in matrices]
    if packed:
        return np.stack(packed)
    example = pack(np.zeros(matrices.shape[1:], matrices.detach().numpy().dtype))
    return np.zeros((0, *example.shape), example.dtype)
