"""The cell's scan on the CPU: torch before and after, compiled code in between, as one differentiable function."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...controls import ExpectedValue, Fixed
from ...derivatives import first_derivative_only
from ...memory import NeuralDeque, NeuralQueue, NeuralStack, NoMemory
from ..layout import CONTROLLERS, LSTM, States, Weights, gather_states, gather_weights, next_state
from .cache import compiled_code
from .threads import available, run_parts

with compiled_code():
    from . import scan as compiled
    from .controller import Grads, Layers
    from .gemm import pack, padded
    from .rows import SIGMOID, TANH
    from .scan import Sequence, Settings, Steps

if TYPE_CHECKING:
    from ...cell import CellState, StackRNNCell

_MEMORIES = {
    NoMemory: compiled.STACK,  # of nothing
    NeuralStack: compiled.STACK,
    NeuralQueue: compiled.QUEUE,
    NeuralDeque: compiled.DEQUE,
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
    if type(controller) not in CONTROLLERS:
        return f"the controller is a {type(controller).__name__}"
    if controller.reading_entry != "input" and controller.weight_reading is not None:
        return f"the reading enters the {controller.reading_entry}"
    return None


# Multiply-adds that keep a thread busy for much longer than it takes to wake it.
_WORK_OF_A_THREAD = 3_000_000
# Rows, of all steps, whose products with the gradients of the gates are taken at a time: as many as stay in the cache.
_ROWS_OF_A_PRODUCT = 512


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


def _settings(cell: StackRNNCell, dtype: np.dtype) -> Settings:
    n_strengths = max(3, len(cell.controls.strengths))
    controls = np.zeros((n_strengths, 3), np.int64)
    fixed = np.zeros(n_strengths, dtype)
    place = cell.memory.reading_size  # as large as all pushed values
    for which, field in enumerate(field for field in cell.memory.actions if field.kind == "strength"):
        control = cell.controls.strengths[field.name]
        if isinstance(control, Fixed):
            kind, fixed[which] = compiled.FIXED, control.value
        else:
            kind = compiled.EXPECTED_VALUE if isinstance(control, ExpectedValue) else compiled.CHOSEN
        controls[which] = kind, place, place + control.width
        place += control.width
    value_kind = TANH if cell.controls.value_activation is torch.tanh else SIGMOID
    return Settings(CONTROLLERS[type(cell.controller)], _MEMORIES[type(cell.memory)], controls, fixed, value_kind)


def scan(cell: StackRNNCell, inputs: Tensor, state: CellState, mask: Tensor | None) -> tuple[Tensor, CellState]:
    """Run a sequence; equals the reference scan of `cell` in outputs, states and gradients.

    Args:
        inputs: [B, T, E], float32 or float64.
        state: to start from.
        mask: [B, T] bool, or None.

    Returns:
        The outputs [B, T, H] and the last state.
    """
    batch_size, length = inputs.shape[:2]
    layers, size = cell.controller.num_layers, cell.controller.hidden_size
    dropout = cell.controller.dropout if cell.training and layers > 1 else 0.0
    dropped = inputs.new_ones(batch_size, layers - 1, length, size if dropout else 0)
    outputs, *last = _Scan.apply(
        _settings(cell, np.dtype(str(inputs.dtype).removeprefix("torch."))),
        np.zeros((batch_size, 0), np.bool_) if mask is None else _array(mask),
        F.dropout(dropped, dropout),
        inputs,
        *gather_weights(cell),
        *(part.to(inputs.dtype) for part in gather_states(cell, state)),
    )
    return outputs, next_state(state, States(*last))


def _array(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers as a contiguous array, shared if it is contiguous."""
    return tensor.detach().contiguous().numpy()


def _packed(weights: Weights, transposed: bool) -> Weights:
    """Weights as panels for products with their transposes, or with themselves."""
    matrices = (weights.inputs, weights.first, weights.rest, weights.controls)
    inputs, first, rest, controls = (part.transpose(-2, -1) if transposed else part for part in matrices)
    return weights._replace(
        inputs=_pack_all(inputs),
        first=pack(_array(first)),
        rest=_pack_all(rest),
        biases=_array(weights.biases),
        controls=pack(_array(controls)),
        controls_bias=_array(weights.controls_bias),
    )


def _pack_all(matrices: Tensor) -> np.ndarray:
    """Each of [n, K, N] packed, in one array [n, panels, K, width]."""
    packed = [pack(_array(matrix)) for matrix in matrices]
    if packed:
        return np.stack(packed)
    example = pack(np.zeros(matrices.shape[1:], matrices.detach().numpy().dtype))
    return np.zeros((0, *example.shape), example.dtype)


def _rows_of(part: Any, rows: slice) -> Any:
    """The same rows of all arrays of a named tuple."""
    return type(part)(*(array[rows] for array in part))


class _Scan(torch.autograd.Function):
    """`scan.forward` and `scan.backward` on tensors; both share the rows of the batch out over threads."""

    @staticmethod
    def forward(
        ctx: Any, settings: Settings, active: np.ndarray, dropped: Tensor, inputs: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        weights, first = Weights(*tensors[: len(Weights._fields)]), States(*tensors[len(Weights._fields) :])
        sequence = Sequence(_array(inputs), active, _array(dropped))
        batch_size, length, _ = inputs.shape
        dtype, n_ends, n_first = settings.fixed.dtype, len(settings.fixed) // 3, first.strengths.shape[1]
        own = slice((n_ends - 1) * length, (n_ends - 1) * length + n_first)
        last = States(
            hidden=_array(first.hidden).copy(),
            cell=_array(first.cell).copy(),
            reading=_array(first.reading).copy(),
            values=np.empty((batch_size, n_first + n_ends * length, first.values.shape[2]), dtype),
            strengths=np.empty((batch_size, n_first + n_ends * length), dtype),
        )
        last.values[:, own], last.strengths[:, own] = _array(first.values), _array(first.strengths)
        outputs = np.empty((batch_size, length, first.hidden.shape[2]), dtype)
        packed = _packed(weights, transposed=True)

        def run(rows: slice) -> tuple[Layers, Steps]:
            n = rows.stop - rows.start
            kept = _room_forward(settings, weights, last, n, length)
            states, counts = _rows_of(last, rows), np.zeros((n, 2), np.int64)
            compiled.forward(settings, packed, _rows_of(sequence, rows), states, outputs[rows], *kept, counts)
            return kept

        work = batch_size * length * sum(weights[i].numel() for i in (0, 1, 2, 4))
        blocks = _blocks(batch_size, max(1, min(available(), batch_size, work // _WORK_OF_A_THREAD)))
        with _first_call("forward pass", dtype):
            kept_of_blocks = run_parts(lambda i: run(blocks[i]), len(blocks))
        results = tuple(torch.from_numpy(array) for array in (outputs, *last))
        ctx.settings, ctx.sequence, ctx.first_cell, ctx.own, ctx.blocks = (
            settings,
            sequence._replace(inputs=sequence.inputs[:, :0]),  # the layers have kept them
            _array(first.cell),
            own,
            blocks,
        )
        # All that is large goes through here, for activation checkpointing to let go of it.
        kept = (torch.from_numpy(array) for parts in kept_of_blocks for part in parts for array in part)
        ctx.save_for_backward(*weights, results[4], *kept)
        return results

    @staticmethod
    @first_derivative_only("the compiled scan", 'set_scan_backend("reference") has one that can')
    def backward(ctx: Any, *grads_of_results: Tensor) -> tuple[Tensor | None, ...]:
        n_weights, n_layers = len(Weights._fields), len(Layers._fields)
        saved = ctx.saved_tensors  # once: under activation checkpointing each access unpacks them anew
        weights, values = Weights(*saved[:n_weights]), _array(saved[n_weights])
        kept = [tensor.numpy() for tensor in saved[n_weights + 1 :]]
        grad_outputs, grads = _array(grads_of_results[0]), States(*(_array(g).copy() for g in grads_of_results[1:]))
        dtype, (batch_size, length, _) = ctx.settings.fixed.dtype, grad_outputs.shape
        grad_inputs = np.empty((batch_size, length, weights.inputs.shape[2]), dtype)
        packed = _packed(weights, transposed=False)
        each = len(kept) // len(ctx.blocks)

        def run(block: int) -> Weights:
            rows = ctx.blocks[block]
            of_block = kept[block * each :][:each]
            layers, steps = Layers(*of_block[:n_layers]), Steps(*of_block[n_layers:])
            # The living elements are worked in; one forward pass may be gone through backwards more than once.
            lines = ("line_index", "line_strength", "line_ends")
            steps = steps._replace(**{name: getattr(steps, name).copy() for name in lines})
            of_weights, room = _room_backward(weights, layers, steps, grads)
            compiled.backward(
                ctx.settings,
                packed,
                _rows_of(ctx.sequence, rows),
                ctx.first_cell[rows],
                values[rows],
                layers,
                steps,
                grad_outputs[rows],
                _rows_of(grads, rows),
                grad_inputs[rows],
                of_weights,
                room,
                np.empty(len(ctx.settings.fixed), dtype),
                np.empty(values.shape[1], np.bool_),
            )
            return of_weights

        with _first_call("backward pass", dtype):
            of_blocks = run_parts(run, len(ctx.blocks))
        total = Weights(*(torch.from_numpy(sum(parts[1:], start=parts[0])) for parts in zip(*of_blocks, strict=True)))
        turned = (total.inputs, total.first, total.rest, total.controls)
        inputs, first, rest, controls = (part.transpose(-2, -1) for part in turned)
        hidden, cell, reading, grad_values, strengths = map(torch.from_numpy, grads)
        return (
            None,
            None,
            None,
            torch.from_numpy(grad_inputs),
            inputs[:, : weights.inputs.shape[1]],
            first[: weights.first.shape[0]],
            rest[:, : weights.rest.shape[1]],
            total.biases,
            controls[: weights.controls.shape[0]],
            total.controls_bias,
            hidden,
            cell,
            reading,
            grad_values[:, ctx.own],
            strengths[:, ctx.own],
        )


def _blocks(batch_size: int, parts: int) -> list[slice]:
    """The rows of a batch in as many parts of about one size."""
    return [slice(batch_size * i // parts, batch_size * (i + 1) // parts) for i in range(parts)]


def _room_forward(settings: Settings, weights: Weights, last: States, n: int, length: int) -> tuple[Layers, Steps]:
    """Room for what the forward pass of n sequences keeps."""
    dtype, n_ends = last.hidden.dtype, len(settings.fixed) // 3
    layers, size = last.hidden.shape[1:]
    width, n_logits = (padded(len(part), last.hidden) for part in (weights.biases[0], weights.controls_bias))
    n_last, logged = last.strengths.shape[1], last.strengths.shape[1] + n_ends * length
    return (
        Layers(
            inputs=np.empty((length, n, weights.inputs.shape[2]), dtype),
            first=np.empty((length, n, weights.first.shape[1]), dtype),
            rest=np.empty((layers - 1, length, n, weights.rest.shape[2]), dtype),
            gates=np.empty((layers, length, n, width), dtype),
            cells=np.empty((layers, length, n, size if settings.kind == LSTM else 0), dtype),
            tops=np.empty((length, n, size), dtype),
        ),
        Steps(
            logits=np.empty((length, n, n_logits), dtype),
            strengths=np.empty((length, n, 3 * n_ends), dtype),
            log_index=np.empty((n, logged), np.int32),
            log_strength=np.empty((n, logged), dtype),
            log_end=np.empty((length, n, n_ends), np.int64),
            log_flags=np.empty((length, n, n_ends, 2), np.bool_),
            line_index=np.empty((n, n_last), np.int32),
            line_strength=np.empty((n, n_last), dtype),
            line_ends=np.empty((n, 2), np.int64),
        ),
    )


def _room_backward(weights: Weights, layers: Layers, steps: Steps, grads: States) -> tuple[Weights, Grads]:
    """Room for the gradients of the weights, zeros, and to work in."""
    dtype, (n_layers, length, n, width) = layers.gates.dtype, layers.gates.shape
    n_logits, size = steps.logits.shape[2], layers.tops.shape[2]
    at_a_time = min(length, max(1, _ROWS_OF_A_PRODUCT // n))
    widest = max(*(weights[i].shape[-1] for i in range(3)), size)
    return (
        Weights(
            inputs=np.zeros((len(weights.inputs), weights.inputs.shape[2], width), dtype),
            first=np.zeros((weights.first.shape[1], width), dtype),
            rest=np.zeros((n_layers - 1, weights.rest.shape[2], width), dtype),
            biases=np.zeros(weights.biases.shape, dtype),
            controls=np.zeros((size, n_logits), dtype),
            controls_bias=np.zeros(weights.controls_bias.shape, dtype),
        ),
        Grads(
            gates=np.empty((n_layers, at_a_time, n, width), dtype),
            logits=np.zeros((at_a_time, n, n_logits), dtype),
            given=np.empty((at_a_time * n, padded(widest, layers.tops)), dtype),
            straight=np.empty((n, size), dtype),
        ),
    )
