"""The cell's scan on the CPU: torch before and after, compiled code in between, as one differentiable function."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...controls import ExpectedValue, Fixed, Sigmoid
from ...memory import under_transform
from ..derivatives import first_derivative_only
from . import scan as compiled
from .arrays import MEMORIES, Part, array
from .buffer import no_buffer, no_buffer_grad
from .controller import Parameters, Running
from .plan import KINDS, Given, Plan, memory_of, parameters_of
from .threads import run_parts

if TYPE_CHECKING:
    from ...layers.cell import CellState, StackRNNCell
    from ..layout import Buffered


def obstacle(cell: StackRNNCell, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why it cannot run this cell; see `stack_lm.kernels.dispatch`."""
    controller = cell.controller
    if device.type != "cpu":
        return f"the inputs are on {device.type}"
    if dtype not in (torch.float32, torch.float64) or any(p.dtype != dtype for p in _parameters(cell)):
        return f"numbers must be all float32 or all float64; the inputs are {str(dtype).removeprefix('torch.')}"
    if type(cell.memory) not in MEMORIES:
        return f"the memory is a {type(cell.memory).__name__}"
    if type(controller) not in KINDS:
        return f"the controller is a {type(controller).__name__}"
    for name, control in cell.controls.strengths.items():
        if type(control) not in (Fixed, Sigmoid, ExpectedValue):
            return f"the control of {name} is a {type(control).__name__}"
    return None


def _parameters(cell: StackRNNCell) -> Iterator[Tensor]:
    """`cell.parameters()`, in a tenth of the time."""
    for module in (cell.controller, cell.controller.first_state, cell.controls.projection):
        if module is not None:
            yield from (parameter for parameter in module._parameters.values() if parameter is not None)


# Arrays of at least as many bytes are kept where activation checkpointing can let go of them.
_LARGE = 2**8


_called: set[tuple[str, np.dtype, type]] = set()
_PATIENCE = 1.5  # seconds


@contextmanager
def _first_call(what: str, plan: Plan) -> Iterator[None]:
    """Say so if what is done inside for the first time takes long, because there is no compiled code kept of it."""
    key = (what, plan.dtype, type(plan.memory))
    if key in _called:
        yield
        return

    def tell(text: str) -> None:
        print(f"stack-lm: {text}", file=sys.stderr, flush=True)

    start = time.perf_counter()
    timer = threading.Timer(_PATIENCE, tell, [f"compiling the {what} for {plan.dtype}, once for this machine ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    _called.add(key)
    seconds = time.perf_counter() - start
    if seconds > _PATIENCE:
        tell(f"compiled the {what} in {seconds:.0f} s (`stack-lm warmup` does it ahead)")


def scan(
    cell: StackRNNCell,
    inputs: Tensor,
    state: CellState,
    mask: Tensor | None,
    noise: Tensor | None = None,
    with_readings: bool = False,
) -> tuple[Tensor, Tensor | None, CellState]:
    """Run a sequence; equals the reference scan of `cell` in outputs, states and gradients.

    Args:
        inputs: [B, T, E], float32 or float64; or the numbers [B, T] of one-hot vectors.
        state: to start from.
        mask: [B, T] bool, or None.
        noise: of choices [B, T, S, O] (see `controls.Choice`), or None.
        with_readings: return the readings.

    Returns:
        The outputs [B, T, H], the readings [B, T, R] or None, and the last state.
    """
    return _run(cell, Given(inputs, mask, noise, None, None), state, None, with_readings)


def scan_buffered(
    cell: StackRNNCell, inputs: Buffered, state: CellState, mask: Tensor | None, noise: Tensor | None = None
) -> tuple[Tensor, CellState]:
    """`scan` with inputs that are read from an input buffer, popped as the controller's output says."""
    outputs, _, state = _run(cell, Given(inputs.values, mask, noise, inputs.mask, None), state, inputs, False)
    return outputs, state


def _run(
    cell: StackRNNCell, given: Given, state: CellState, buffered: Buffered | None, with_readings: bool
) -> tuple[Tensor, Tensor | None, CellState]:
    inputs, controller, memory = given.inputs, cell.controller, memory_of(cell)
    batch_size, steps = len(inputs), inputs.shape[1] if buffered is None else buffered.steps
    if inputs.is_floating_point():
        like = inputs
    else:
        like, given = cell.like, given._replace(inputs=inputs.long())
    if controller.dropout and cell.training and controller.num_layers > 1:
        shape = (batch_size, controller.num_layers - 1, steps, controller.hidden_size)
        given = given._replace(dropped=F.dropout(like.new_ones(shape), controller.dropout))
    none = like.new_zeros(batch_size, controller.num_layers, controller.hidden_size)
    hidden = state.controller[0].to(like.dtype) if state.controller else none
    of_cell = state.controller[1].to(like.dtype) if len(state.controller) > 1 else none[:, :, :0]
    tensors = (
        *given,
        hidden,
        of_cell,
        state.reading.to(like.dtype),
        *memory.first(state.memory, like),
        *parameters_of(cell, buffered),
    )
    dtype = np.dtype(str(like.dtype).removeprefix("torch."))
    make = partial(Plan, cell, None if buffered is None else (buffered.control, steps), with_readings)
    if under_transform():
        check = partial(_check_overflow, cell, state.memory)
        results = _OfModels.apply(make, dtype, check, *tensors)
    else:
        results = _scan(make, dtype, None, tensors)
    outputs, readings, hidden, of_cell, reading, *of_memory = results
    last = (hidden, of_cell)[: len(state.controller)]
    state = state._replace(controller=last, memory=memory.last(state.memory, *of_memory), reading=reading)
    return outputs, readings if with_readings else None, state


def _scan(
    make: Callable[..., Plan], dtype: np.dtype, models: int | None, tensors: tuple[Tensor | None, ...]
) -> tuple[Tensor, ...]:
    """Run a sequence of one model; or of several, whose dimension is then the first of all tensors."""
    wanted = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in tensors)
    results: tuple[Tensor, ...] = _Scan.apply(make, dtype, models, wanted, *tensors)
    return results


def _check_overflow(cell: StackRNNCell, before: Any, *of_memory: Tensor) -> None:
    """What a cell's scan does behind the backend's, of the memories of several models."""
    cell.memory.check_overflow(memory_of(cell).last(before, *(part.flatten(0, 1) for part in of_memory)))


class _OfModels(torch.autograd.Function):
    """A scan under `torch.func.vmap`: that of several models at once."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        raise RuntimeError(
            'of torch.func, the compiled scan has vmap alone: set_scan_backend("reference") has the rest'
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Torch asks for one."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        make: Callable[..., Plan],
        dtype: np.dtype,
        check: Callable[..., None],
        *tensors: Tensor | None,
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        models = info.batch_size
        stacked = tuple(
            part if part is None else part.expand(models, *part.shape) if dim is None else part.movedim(dim, 0)
            for part, dim in zip(tensors, in_dims[3:], strict=True)
        )
        if under_transform():  # a second one
            _OfModels.forward()
        results = _scan(make, dtype, models, stacked)
        check(*results[_VALUES:])
        return results, (0,) * len(results)


class _Block(NamedTuple):
    """What is kept of what one thread ran."""

    part: Part
    emitted: Any
    layers: Any
    memory: Any
    buffer: Any


class _Shelved(NamedTuple):
    """The place of an array among those that were put aside."""

    place: int


def _like(group: Any, parts: list[Any]) -> Any:
    return type(group)(*parts) if hasattr(group, "_fields") else tuple(parts)


def _put_aside(blocks: list[_Block]) -> tuple[list[_Block], list[Tensor]]:
    """Large arrays as tensors for `save_for_backward`, from where activation checkpointing lets go of them."""
    large: list[Tensor] = []

    def shelve(part: Any) -> Any:
        if not isinstance(part, np.ndarray) or part.nbytes < _LARGE:
            return part
        large.append(torch.from_numpy(part))
        return _Shelved(len(large) - 1)

    shelved = [
        _Block(block.part, *(group and _like(group, [shelve(part) for part in group]) for group in block[1:]))
        for block in blocks
    ]
    return shelved, large


def _take_back(blocks: list[_Block], large: Sequence[Tensor]) -> list[_Block]:
    def unshelve(part: Any) -> Any:
        return large[part.place].numpy() if isinstance(part, _Shelved) else part

    return [
        _Block(block.part, *(group and _like(group, [unshelve(part) for part in group]) for group in block[1:]))
        for block in blocks
    ]


_N_OTHERS = 4  # arguments that are no tensors, before what is given
_N_GIVEN = len(Given._fields)
_N_STATES = 5  # tensors, behind what is given: hidden, cell, reading, and two of the memory
_VALUES = 5  # the place of the memory's values or cells among the results


def _array(tensor: Tensor | None, one: bool) -> Any:
    """Its numbers, with a dimension of models."""
    return None if tensor is None else array(tensor)[None] if one else array(tensor)


def _add_up(of_threads: list[Parameters], share: int) -> None:
    """Add the gradients that all threads have found to those of the first: as many rows in each share."""
    shares = len(of_threads)
    for total, *others in zip(*of_threads, strict=True):
        flat, n = total.reshape(-1), total.size
        some = slice(n * share // shares, n * (share + 1) // shares)
        for other in others:
            flat[some] += other.reshape(-1)[some]


class _Scan(torch.autograd.Function):
    """`scan.forward` and `scan.backward` on tensors; both share the work out over threads."""

    @staticmethod
    def forward(
        ctx: Any,
        make: Callable[..., Plan],
        dtype: np.dtype,
        models: int | None,
        wanted: bool,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        one = models is None
        arrays = [_array(part, one) for part in tensors]
        states: Any = arrays[_N_GIVEN : _N_GIVEN + _N_STATES]
        given, parameters = Given(*arrays[:_N_GIVEN]), arrays[_N_GIVEN + _N_STATES :]
        plan = make(models or 1, dtype, given, parameters)
        m, n = plan.models, plan.batch_size
        weights = plan.pack(parameters, transposed=True)
        inputs = plan.empty(m, n, 0, 0) if plan.one_hot or plan.buffer else given.inputs
        outputs = plan.empty(m, n, plan.steps, plan.size)
        readings = plan.empty(m, n, plan.steps if plan.with_readings else 0, plan.depth)
        lasts = [part.copy() for part in states[:3]]
        results = plan.memory.results(*states[3:])
        all_live = ctx.needs_input_grad[_N_OTHERS + _N_GIVEN + 3]  # whether the memory's values or cells want gradients
        settings = plan.settings(all_live)

        def run(part: Part) -> _Block:
            m, n = part.shape
            running, layers = Running(*(last[part] for last in lasts)), plan.kept(part)
            emitted = plan.empty(m, plan.steps, n, plan.padded(plan.n_logits))
            memory, buffer = plan.memory.block(results, part, wanted), plan.buffer and plan.buffer.block(part)
            compiled.forward(
                settings,
                plan.of_models(weights, part),
                plan.sequence(inputs, part),
                running,
                outputs[part],
                readings[part],
                layers,
                emitted,
                memory,
                buffer or no_buffer(m, plan.dtype),
                np.zeros((m, n), np.int64),
            )
            return _Block(part, (emitted,), layers, memory, buffer)

        with _first_call("forward pass", plan):
            blocks = run_parts(lambda i: run(plan.part(i)), plan.parts)
        found = tuple(torch.from_numpy(part[0] if one else part) for part in (outputs, readings, *lasts, *results))
        if plan.memory.counts_losses:
            ctx.mark_non_differentiable(found[-1])
        if wanted:
            ctx.plan, ctx.settings, ctx.one, ctx.parameters = plan, settings, one, parameters
            ctx.blocks, large = _put_aside(blocks)
            # The values or cells, which are worked with: autograd notices if somebody changes them.
            ctx.save_for_backward(found[_VALUES], *tensors[_N_GIVEN:], *large)
        return found

    @staticmethod
    @first_derivative_only("the compiled scan", 'set_scan_backend("reference") has one that can')
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        one = ctx.one
        saved = ctx.saved_tensors  # once: under activation checkpointing each access unpacks them anew
        # Those of the parameters are the same numbers still: torch has looked whether somebody changed them.
        parameters, first_cell = ctx.parameters, _array(saved[2], one)
        blocks = _take_back(ctx.blocks, saved[1 + _N_STATES + len(parameters) :])
        weights = plan.pack(parameters, transposed=False)
        grad_outputs, grad_readings, *changes = (_array(grad, one) for grad in grads)
        states, of_memory = [part.copy() for part in changes[:3]], [part.copy() for part in changes[3:]]
        m, b, wanted = plan.models, plan.batch_size, ctx.needs_input_grad[_N_OTHERS]
        none = plan.empty(m, b, plan.steps, 0)
        of_inputs = plan.empty(m, b, plan.steps, plan.n_inputs) if wanted and not plan.buffer else none
        of_buffer = np.zeros_like(plan.buffer.values) if plan.buffer else none
        # Each its own, where the threads share the rows of a model out.
        of_weights = [plan.grads() for _ in range(plan.parts if m == 1 else 1)]

        def run(i: int) -> None:
            part, _, layers, memory, buffer = block = blocks[i]
            m, _ = part.shape
            memory, buffer = plan.memory.again(memory), plan.buffer and plan.buffer.again(buffer)
            compiled.backward(
                ctx.settings,
                plan.of_models(weights, part),
                plan.sequence(none, part),
                first_cell[part],
                layers,
                block.emitted[0],
                memory,
                buffer or no_buffer(m, plan.dtype),
                grad_outputs[part],
                grad_readings[part],
                Running(*(state[part] for state in states)),
                plan.memory.grad(of_memory, memory, part),
                plan.buffer.grad(of_buffer, part) if plan.buffer else no_buffer_grad(m, plan.dtype),
                of_inputs[part],
                plan.of_models(of_weights[i % len(of_weights)], part),
                plan.room(part),
            )

        with _first_call("backward pass", plan):
            run_parts(run, plan.parts)
        if len(of_weights) > 1:
            run_parts(lambda i: _add_up(of_weights, i), plan.parts)
        found = [
            (of_buffer if plan.buffer else of_inputs) if wanted else None,
            *[None] * (_N_GIVEN - 1),
            *states,
            *plan.memory.of_first(of_memory),
            *plan.unpack(of_weights[0], parameters),
        ]
        of_tensors = (None if part is None else torch.from_numpy(part[0] if one else part) for part in found)
        return *[None] * _N_OTHERS, *of_tensors
