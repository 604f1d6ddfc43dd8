"""A compiled scan as one differentiable torch function, for any driver.

A plan (`plan.ControllerPlan`, `given.GivenPlan`) knows the sizes of a scan and runs it on arrays. This module handles
tensors, gradients, several models under `torch.func.vmap`, and the memory that activation checkpointing may free.
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numba.core.event import install_recorder
from torch import Tensor

from ...memory import under_transform
from ..derivatives import first_derivative_only
from . import compilation
from .blocks import BlockSpec, Part, array, block_of
from .threads import number_of_parts

# Arrays of at least this many bytes are saved so that activation checkpointing can free them.
_LARGE = 2**8
_PATIENCE = 1.5  # seconds


class Given(NamedTuple):
    """The inputs of a scan, as tensors, or None where there is none.

    Attributes:
        inputs: x_t [B, T, E]; or the numbers [B, T] of one-hot vectors; or the items of an input buffer [B, N, E]; or
            of given vectors the logits of all actions [B, T, P].
        mask: [B, T], False at padding.
        noise: of choices [B, T, S, O].
        held: False at padding of the input buffer [B, N].
        dropped: dropout factors applied to a layer's output before the next layer [B, L - 1, T, H].
    """

    inputs: Any
    mask: Any = None
    noise: Any = None
    held: Any = None
    dropped: Any = None


class First(NamedTuple):
    """The state before the first step, or after the last: of the controller, if there is one, and of the memory.

    Attributes:
        hidden, cell: of the controller's layers [B, L, H] each.
        reading: [B, R].
        contents, extra: of the memory: its elements, cells or table, and the other tensor of `blocks.Block.first`.
    """

    hidden: Any
    cell: Any
    reading: Any
    contents: Any
    extra: Any

    @property
    def memory(self) -> tuple[Any, Any]:
        """The tensors of the memory."""
        return self.contents, self.extra


class Tensors(NamedTuple):
    """Arguments of a scan, or their gradients.

    Attributes:
        given: the inputs.
        state: before the first step.
        parameters: of the driver; None without one.
    """

    given: Given
    state: First
    parameters: tuple[Any, ...] = ()

    @property
    def flat(self) -> tuple[Any, ...]:
        """All tensors as one tuple."""
        return *self.given, *self.state, *self.parameters

    @classmethod
    def of(cls, flat: Sequence[Any]) -> Tensors:
        """The tensors in a sequence made by `flat`."""
        n, m = len(Given._fields), len(First._fields)
        return cls(Given(*flat[:n]), First(*flat[n : n + m]), tuple(flat[n + m :]))


class Results(NamedTuple):
    """Results of a scan, or their gradients.

    Attributes:
        outputs: the controller's [B, T, H]; or [B, T, 0].
        readings: after each step [B, T, R]; [B, 0, R] if unused.
        state: after the last step.
    """

    outputs: Any
    readings: Any
    state: First

    @property
    def flat(self) -> tuple[Any, ...]:
        """All tensors as one tuple."""
        return self.outputs, self.readings, *self.state

    @classmethod
    def of(cls, flat: Sequence[Any]) -> Results:
        """The tensors in a sequence made by `flat`."""
        return cls(flat[0], flat[1], First(*flat[2:]))


class Kept(NamedTuple):
    """The arrays that one thread keeps for the backward pass: named tuples, some of them absent for some drivers."""

    part: Part
    emitted: Any
    layers: Any
    memory: Any
    buffer: Any


class Plan(ABC):
    """One scan: its sizes, and the arrays passed to compiled code. The first dimension of all arrays is the models'.

    Args:
        spec: the memory, and the number of models, steps and their type.
        batch_size: number of sequences.
        threads: the most that are worth to be woken.
    """

    def __init__(self, spec: BlockSpec, batch_size: int, threads: int) -> None:
        block = block_of(spec.memory)
        assert block is not None, "see `Block.obstacle`"
        self.block = block(spec)
        self.models, self.batch_size, self.steps, self.dtype = spec.models, batch_size, spec.steps, spec.dtype
        self.parts = number_of_parts(self.models, batch_size, threads)

    def part(self, i: int) -> Part:
        """The part of the work for thread i."""
        return Part.share(i, self.parts, self.models, self.batch_size)

    @abstractmethod
    def forward(self, arrays: Tensors, wanted: bool, all_live: bool) -> tuple[Results, list[Kept]]:
        """Run the scan forwards.

        Args:
            arrays: with a leading model dimension.
            wanted: whether a backward pass will follow.
            all_live: whether the memory's first values or cells want gradients.
        """

    @abstractmethod
    def backward(self, arrays: Tensors, kept: list[Kept], grads: Results, wanted: bool) -> Tensors:
        """Gradients of the arrays from those of the results; of the inputs only if needed."""


Make = Callable[[int, np.dtype, Tensors], Plan]


def differentiable(make: Make, tensors: Tensors, dtype: torch.dtype, check: Callable[[First], None]) -> Results:
    """Run a scan.

    Args:
        make: builds the plan from the number of models and the arrays.
        tensors: contiguous or not.
        dtype: of the numbers, float32 or float64.
        check: called under vmap with the models' last states [M, B, ...], which no other code may inspect.
    """
    numbers = np.dtype(str(dtype).removeprefix("torch."))
    if under_transform():
        return Results.of(_OfModels.apply(make, numbers, check, *tensors.flat))
    return Results.of(_scan(make, numbers, None, tensors.flat))


def _scan(make: Make, dtype: np.dtype, models: int | None, tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Run a scan of one model, or of several stacked along the first dimension of all tensors."""
    wanted = torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in tensors)
    results: tuple[Tensor, ...] = _Scan.apply(make, dtype, models, wanted, *tensors)
    return results


class _OfModels(torch.autograd.Function):
    """A scan under `torch.func.vmap`: that of several models at once."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        raise RuntimeError(
            "under torch.func.vmap the compiled scan runs several models, and here nothing differs between them: "
            'set_scan_backend(model, "reference") supports this'
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Do nothing; torch requires the method."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        make: Make,
        dtype: np.dtype,
        check: Callable[[First], None],
        *tensors: Tensor | None,
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        models = info.batch_size
        stacked = [
            part if part is None else part.expand(models, *part.shape) if dim is None else part.movedim(dim, 0)
            for part, dim in zip(tensors, in_dims[len(in_dims) - len(tensors) :], strict=True)
        ]
        results = _scan(make, dtype, models, stacked)
        check(Results.of(results).state)
        return results, (0,) * len(results)


class _Shelved(int):
    """The index of an array among those put aside."""


def _put_aside(kept: list[Kept]) -> tuple[list[Kept], list[Tensor]]:
    """Large arrays as tensors for `save_for_backward`, so that activation checkpointing can free them."""
    large: list[Tensor] = []
    return [Kept(each.part, *[_shelve(part, large) for part in each[1:]]) for each in kept], large


# No nested functions: a recursive one is a reference cycle, and would keep the arrays alive until garbage collection.
def _shelve(part: Any, large: list[Tensor]) -> Any:
    if isinstance(part, np.ndarray):
        if part.nbytes < _LARGE:
            return part
        large.append(torch.from_numpy(part))
        return _Shelved(len(large) - 1)
    return type(part)(*[_shelve(each, large) for each in part]) if isinstance(part, tuple) else part


def _take_back(part: Any, large: Sequence[Tensor]) -> Any:
    if isinstance(part, _Shelved):
        return large[part].numpy()
    return type(part)(*[_take_back(each, large) for each in part]) if isinstance(part, tuple) else part


_called: set[tuple[str, type, np.dtype, type]] = set()


@contextmanager
def _first_call(what: str, plan: Plan) -> Iterator[None]:
    """Print a notice if first-time compilation is slow, because no compiled code is kept."""
    key = (what, type(plan), plan.dtype, type(plan.block))
    if key in _called or compilation.IN_PYTHON:
        yield
        return

    def tell(text: str) -> None:
        print(f"stack-lm: {text}", file=sys.stderr, flush=True)

    def tell_of_compilation() -> None:
        if compilations.buffer:  # reading kept code is slow, too, on a busy machine
            tell(f"compiling the {what} for {plan.dtype}, once for this machine ...")

    start = time.perf_counter()
    with install_recorder("numba:compile") as compilations:
        timer = threading.Timer(_PATIENCE, tell_of_compilation)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
    _called.add(key)
    seconds = time.perf_counter() - start
    if compilations.buffer and seconds > _PATIENCE:
        tell(f"compiled the {what} in {seconds:.0f} s (`stack-lm warmup` does it ahead)")


class _Scan(torch.autograd.Function):
    """A plan's `forward` and `backward` on tensors."""

    @staticmethod
    def forward(
        ctx: Any, make: Make, dtype: np.dtype, models: int | None, wanted: bool, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        single = models is None
        arrays = Tensors.of([_array(part, single) for part in _unshared(tensors)])
        needs = Tensors.of(ctx.needs_input_grad[-len(tensors) :])
        plan = make(models or 1, dtype, arrays)
        with _first_call("forward pass", plan):
            results, kept = plan.forward(arrays, wanted, needs.state.contents)
        outputs = tuple(torch.from_numpy(part[0] if single else part) for part in results.flat)
        last = Results.of(outputs).state
        if plan.block.counts_losses:
            ctx.mark_non_differentiable(last.extra)
        if wanted:
            ctx.plan, ctx.single, ctx.wants_inputs = plan, single, needs.given.inputs
            ctx.kept, large = _put_aside(kept)
            # The backward pass does not need the inputs.
            ctx.arrays = arrays._replace(given=Given(None))
            # Saving the values or cells, which are worked with, lets autograd notice changes to them; likewise states
            # and parameters, whose numbers `ctx.arrays` shares.
            ctx.save_for_backward(*large, last.contents, *tensors[len(Given._fields) :])
        return outputs

    @staticmethod
    @first_derivative_only("the compiled scan", 'set_scan_backend(model, "reference") selects one that can')
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        saved = ctx.saved_tensors  # once: under activation checkpointing each access unpacks them anew
        kept = [Kept(each.part, *[_take_back(part, saved) for part in each[1:]]) for each in ctx.kept]
        result_grads = Results.of([_array(grad, ctx.single) for grad in grads])
        with _first_call("backward pass", plan):
            flat = plan.backward(ctx.arrays, kept, result_grads, ctx.wants_inputs).flat
        tensor_grads = [None if part is None else torch.from_numpy(part[0] if ctx.single else part) for part in flat]
        return *[None] * (len(ctx.needs_input_grad) - len(flat)), *tensor_grads


def _unshared(tensors: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """The tensors; of states and parameters copies, where FSDP may free what it has gathered.

    It frees storage between the passes, which storage that NumPy has seen forbids.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return tensors
    n = len(Given._fields)
    return [*tensors[:n], *(None if part is None else part.detach().clone() for part in tensors[n:])]


def _array(tensor: Tensor | None, single: bool) -> Any:
    """A tensor's data as an array, with a model dimension."""
    return None if tensor is None else array(tensor)[None] if single else array(tensor)
