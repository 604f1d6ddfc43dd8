"""The scan of a layer as one operator of torch, which `torch.compile` and `torch.export` do not trace.

Both trace Python. A loop over steps would become a graph as long as the sequence, and a compiled scan cannot be traced.
The scan is therefore one operator, `stack_lm::scan`. Its arguments are tensors and a description of the layer. It
rebuilds the layer without weights, gives it the tensors, and runs the scan as usual.

The operator's own autograd graph stays in this process, for the backward pass. A tensor with its number represents it
in the compiled graph; when torch frees that tensor, the graph is freed too.
"""

from __future__ import annotations

import itertools
import json
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..kernels.protocol import GivenVectors, Inputs
from ..memory import leaves, map_tensors, memory_class
from ..memory.base import MEMORIES
from .controlled import Actions, ControlledMemory, Scan, blank

Layer = TypeVar("Layer", bound="type[ControlledMemory]")
NAME = "stack_lm::scan"
_SETTINGS = (bool, int, float, str, type(None))
_MAKERS: dict[str, Callable[[SimpleNamespace], ControlledMemory]] = {}


def register_layer(cls: Layer) -> Layer:
    """Class decorator: layers of this class, but not of derived classes, can run as the operator."""
    _MAKERS[cls.__name__] = cls.from_settings
    return cls


def describe(layer: ControlledMemory, config: Any, *names: str) -> str | None:
    """Describe a layer as JSON from which `from_settings` rebuilds it; None if it cannot be rebuilt.

    Args:
        layer: the layer to describe.
        config: an object with the memory's settings as attributes, complete, and `names`.
        *names: the names of the other attributes that define the layer, if `config` has them.
    """
    memory = memory_class(config.memory)
    described = {"layer": type(layer).__name__, "memory": config.memory}
    described |= {name: getattr(config, name) for name in (*names, *memory.settings) if hasattr(config, name)}
    try:
        return json.dumps(described)
    except TypeError:  # a setting from outside the package
        return None


class _Runner(nn.Module):
    """A layer whose call runs a scan, for `functional_call`."""

    def __init__(self, layer: ControlledMemory) -> None:
        super().__init__()
        self.layer = layer
        self.names = [name for name, _ in (*self.named_parameters(), *self.named_buffers())]
        self.first = layer.initial_state(1)
        self.knows_size = layer.memory.after(self.first.memory, 2) is not None

    def forward(self, given: Inputs, state: Any, **options: bool) -> Scan:
        return self.layer.run(given, state, **options)


def _make(description: str) -> _Runner:
    settings = SimpleNamespace(**json.loads(description))
    with torch.device("meta"):
        return _Runner(_MAKERS[settings.layer](settings))


class _Runners(threading.local):
    """The rebuilt layers, one set for each thread, because a call puts its weights into them."""

    def __init__(self) -> None:
        self.made: dict[str, _Runner] = {}

    def of(self, description: str) -> _Runner:
        """The layer of a description."""
        runner = self.made.get(description)
        if runner is None:
            # Nothing is traced in a separate thread.
            with ThreadPoolExecutor(1) as thread:
                runner = self.made[description] = thread.submit(_make, description).result()
        return runner


_RUNNERS = _Runners()


def _kinds(layer: ControlledMemory) -> list[Any]:
    """List the exchangeable parts of a layer, with their settings."""
    driver: Any = layer.driver
    controller = getattr(driver, "controller", None)
    kinds: list[Any] = [type(controller), getattr(controller, "num_layers", 0)]
    parts = [layer.memory, *(layer.controls.emission(field.name) for field in layer.memory.actions)]
    for part in parts:
        public = ((name, value) for name, value in vars(part).items() if name[0] != "_" and name != "training")
        settings = {name: value for name, value in public if isinstance(value, _SETTINGS)}
        kinds += [type(part), settings]
    return kinds


@torch.compiler.assume_constant_result
def operator_obstacle(layer: ControlledMemory) -> str | None:
    """The reason, in a few words, why a layer cannot run as the operator; None if it can."""
    description = layer.description
    if description is None or type(layer).__name__ not in _MAKERS:
        return f"a {type(layer).__name__} with these settings cannot be rebuilt from a description"
    runner = _RUNNERS.of(description)
    if _kinds(runner.layer) != _kinds(layer) or MEMORIES.find(layer.memory.name) is not type(layer.memory):
        return f"the {type(layer).__name__} has been modified: its memory, controller or controls were exchanged"
    if not runner.knows_size:
        return f"memory={layer.memory.name!r} does not say how large its state is after a scan (`Memory.after`)"
    return None


def run_as_operator(
    layer: ControlledMemory, given: Inputs, state: Any, output_actions: bool, output_readings: bool
) -> Scan:
    """Run a scan through the operator, as `ControlledMemory.run` does without it."""
    assert layer.description is not None, "see `operator_obstacle`"
    first, weights = list(leaves(state)), [*layer.parameters(), *layer.buffers()]
    # Autocast, which casts vectors of another type elsewhere, has no effect inside an operator.
    values = given.values.to(layer.reference_tensor.dtype) if given.values.is_floating_point() else given.values
    # An exported program is for inference: without a backward pass, nothing needs to be kept.
    trains = torch.is_grad_enabled() and not torch.compiler.is_exporting()
    live = [trains and tensor.requires_grad for tensor in (values, *first, *weights)]
    outputs, readings, *rest = torch.ops.stack_lm.scan(
        layer.description,
        values,
        given.mask,
        first,
        list(given.noise.values()),
        ",".join(given.noise),
        weights,
        live,
        layer.scan_backend or "",
        layer.training,
        layer.dropout,
        output_actions,
        output_readings,
    )
    last = iter(rest)
    state = map_tensors(lambda _: next(last), state)
    actions = Actions()
    hidden = given.values if isinstance(layer.driver, GivenVectors) else outputs
    if output_actions:
        _, reported = layer.controls.over_time(hidden, given.noise)
        measured = {name: next(last) for name in layer.memory.measure(state.memory)}
        actions = Actions(blank(reported, given.mask, layer.padding) | measured)
    return Scan(outputs, readings if output_readings else None, None, actions, state)


# The live arguments and the results of scans, which the backward pass needs of their autograd graphs.
_SHELF: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
_NUMBERS = itertools.count(1)


def _shelve(live: list[Tensor], results: list[Tensor]) -> Tensor:
    """Keep a scan for as long as the returned tensor [1] exists."""
    number = np.array([next(_NUMBERS)])
    _SHELF[int(number[0])] = live, results
    weakref.finalize(number, _SHELF.pop, int(number[0]), None)
    return torch.from_numpy(number)


@torch.library.custom_op(NAME, mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def _scan(
    description: str,
    values: Tensor,
    mask: Tensor | None,
    state: Sequence[Tensor],
    noise: Sequence[Tensor],
    noisy: str,
    weights: Sequence[Tensor],
    live: Sequence[bool],
    backend: str,
    training: bool,
    dropout: float,
    measures: bool,
    readings: bool,
) -> list[Tensor]:
    """Outputs, readings, the last state and its measures over time; last the number of the kept scan."""
    runner = _RUNNERS.of(description)
    given = [values, *state, *weights]
    keep = any(live)
    # Below autograd, where operators run, tensors would not record their operations.
    with (
        torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, not keep),
        torch.set_grad_enabled(keep),
    ):
        given = [tensor.detach().requires_grad_(wanted) for tensor, wanted in zip(given, live, strict=True)]
        leaf = iter(given[1:])
        first = map_tensors(lambda _: next(leaf), runner.first)
        named = dict(zip(runner.names, leaf, strict=True))
        layer = runner.layer
        layer.scan_backend = backend or None
        layer.train(training)
        layer.dropout = dropout
        drawn = dict(zip(noisy.split(","), noise, strict=True)) if noise else {}
        inputs = Inputs(given[0], mask, drawn, None, values.shape[1])
        options = {"output_actions": measures, "output_readings": readings}
        scan: Scan = functional_call(runner, named, (inputs, first), options)
        read = scan.outputs[:, :0] if scan.readings is None else scan.readings
        results = [scan.outputs, read, *leaves(scan.state)]
        if measures:
            results += [scan.actions[name] for name in layer.memory.measure(scan.state.memory)]
    alive = [tensor for tensor, wanted in zip(given, live, strict=True) if wanted]
    number = _shelve(alive, results) if keep else torch.empty(0, dtype=torch.int64)
    storages = {tensor.untyped_storage()._cdata for tensor in given}
    return [*(_own(part.detach(), storages) for part in results), number]


def _own(part: Tensor, storages: set[int]) -> Tensor:
    """A result as operators return it: contiguous, and in a storage not yet among `storages`, to which it is added."""
    part = part.contiguous()
    if part.untyped_storage()._cdata in storages:
        part = part.clone()
    storages.add(part.untyped_storage()._cdata)
    return part


@_scan.register_fake
def _(description: str, values: Tensor, mask: Tensor | None, state: Sequence[Tensor], *others: Any) -> list[Tensor]:
    *_, live, _, _, _, measures, readings = others
    runner = _RUNNERS.of(description)
    memory, (batch_size, length) = runner.layer.memory, values.shape[:2]
    parts = iter(state)
    first = map_tensors(lambda _: next(parts), runner.first)
    last = first._replace(memory=memory.after(first.memory, length))
    outputs = first.reading.new_empty(batch_size, length, runner.layer.output_size)
    read = first.reading.new_empty(batch_size, length, memory.reading_size) if readings else outputs[:, :0]
    results = [outputs, read, *leaves(last)]
    if measures:
        results += [part.new_empty(batch_size, length) for part in memory.measure(last.memory).values()]
    number = torch.empty(int(any(live)), dtype=torch.int64, device="cpu")
    return [*(torch.empty(part.shape, dtype=part.dtype, device=part.device) for part in results), number]


@torch.library.custom_op(f"{NAME}_backward", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def _backward(number: Tensor, grads: Sequence[Tensor | None], live: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of live arguments from those of results."""
    kept = _SHELF.get(int(number[0]))
    if kept is None:
        raise RuntimeError("the compiled scan's graph is gone: something has copied the tensor that it hangs on")
    arguments, results = kept
    pairs = [
        (result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None and result.requires_grad
    ]
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False), torch.enable_grad():
        found = torch.autograd.grad(
            [result for result, _ in pairs],
            arguments,
            [grad for _, grad in pairs],
            retain_graph=True,  # it lives as long as its number
            allow_unused=True,
            materialize_grads=True,
        )
    return [grad.detach().contiguous() for grad in found]


@_backward.register_fake
def _(number: Tensor, grads: Sequence[Tensor | None], live: Sequence[Tensor]) -> list[Tensor]:
    return [torch.empty(part.shape, dtype=part.dtype, device=part.device) for part in live]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _, values, _, state, noise, _, weights, ctx.live, *_ = inputs
    ctx.n_state, ctx.n_noise = len(state), len(noise)
    live = [tensor for tensor, wanted in zip((values, *state, *weights), ctx.live, strict=True) if wanted]
    ctx.save_for_backward(output[-1], *live)


def _gradients(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    number, *live = ctx.saved_tensors
    if not live:
        raise RuntimeError("an exported scan has no gradients; compile the model, or train it as it is")
    found = iter(torch.ops.stack_lm.scan_backward(number, list(grads[:-1]), live))
    of_values, *rest = (next(found) if wanted else None for wanted in ctx.live)
    state, weights = rest[: ctx.n_state], rest[ctx.n_state :]
    return None, of_values, None, state, [None] * ctx.n_noise, None, weights, *[None] * 6


_scan.register_autograd(_gradients, setup_context=_setup_context)
