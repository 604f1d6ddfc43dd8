"""A scan with a controller: its sizes, its weights packed for compiled code, and its workspace."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...controllers import Controller, DirectController
from ..layout import CONTROLLERS, DIRECT, GRU, LSTM
from ..protocol import System
from . import packing
from . import scan as compiled
from .autograd import First, Given, Kept, Results, Tensors
from .blocks import BlockOf, Part, block_of
from .buffer_block import BufferBlock, no_buffer
from .controller import Grads, Layers, Parameters, Running, Sequence
from .gemm import packing_room, padded, panels
from .scan import Settings
from .threads import number_of_parts, run_parts

KINDS: dict[type[Controller], int] = {**CONTROLLERS, DirectController: DIRECT}
# Multiply-adds per thread that justify the cost of waking it.
_WORK_OF_A_THREAD = 10_000_000
# Rows, over all steps, per product with the gradients of the gates: as many as fit in the cache.
ROWS_OF_A_PRODUCT = 256


class LayerParameters(NamedTuple):
    """A layer's parameters, as tensors, arrays or gradients; None if absent.

    Attributes:
        below, state: from the layer or input below and from the state [gates * H, E or H] and [gates * H, H].
        bias_below, bias_state: [gates * H].
        skip: from x_t to a layer that is not the first [gates * H, E].
    """

    below: Any
    state: Any
    bias_below: Any
    bias_state: Any
    skip: Any


class SystemParameters(NamedTuple):
    """The parameters of a controller and its controls, as tensors, arrays or gradients; None if absent.

    Attributes:
        layers: of each.
        reading, bias_reading: of the reading's entry.
        controls, controls_bias: from the controller's output to the logits of all actions.
        buffer, buffer_bias: and to those of the pop strength of an input buffer.
    """

    layers: tuple[LayerParameters, ...]
    reading: Any
    bias_reading: Any
    controls: Any
    controls_bias: Any
    buffer: Any
    buffer_bias: Any

    @property
    def flat(self) -> tuple[Any, ...]:
        """All parameters as one tuple."""
        return *chain.from_iterable(self.layers), *self[1:]

    @classmethod
    def of(cls, flat: tuple[Any, ...]) -> SystemParameters:
        """The parameters in a tuple made by `flat`."""
        n = len(cls._fields) - 1
        layers = zip(*[iter(flat[:-n])] * len(LayerParameters._fields), strict=True)
        return cls(tuple(LayerParameters(*layer) for layer in layers), *flat[-n:])


def parameters_of(system: System) -> SystemParameters:
    """The parameters of a system, unpacked."""
    controller, projection, buffer = system.controller, system.controls.projection, system.buffer
    own = controller._parameters  # which is faster than one attribute of a module after the other
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_skip")
    layers = tuple(
        LayerParameters(*(own.get(f"{name}_l{controller.first_layer + layer}") for name in names))
        for layer in range(controller.num_layers)
    )
    weight: Tensor | None = None
    bias: Tensor | None = None
    if buffer is not None and buffer.projection is not None and buffer.pop.width:
        weight, bias = buffer.projection.weight[: buffer.pop.width], buffer.projection.bias
        bias = None if bias is None else bias[: buffer.pop.width]
    return SystemParameters(
        layers,
        own.get("weight_reading"),
        own.get("bias_reading"),
        None if projection is None else projection.weight,
        None if projection is None else projection.bias,
        weight,
        bias,
    )


def _rows(weight: np.ndarray | None) -> int:
    return 0 if weight is None else weight.shape[1]


class ControllerPlan:
    """One scan: its sizes, and the arrays passed to compiled code.

    Args:
        system: the system to run.
        steps: number of steps.
        output_readings: whether the readings of all steps are results.
        models: number of models run at once, the first dimension of all arrays.
        dtype: of the numbers.
        arrays: the inputs, first state and parameters.
    """

    def __init__(
        self, system: System, steps: int, output_readings: bool, models: int, dtype: np.dtype, arrays: Tensors
    ) -> None:
        controller = system.controller
        given: Given = arrays.given
        parameters = self.parameters = SystemParameters.of(arrays.parameters)
        inputs = given.inputs
        self.one_hot = inputs.dtype == np.int64
        self.models, self.dtype, self.output_readings = models, dtype, output_readings
        self.batch_size = inputs.shape[1]
        self.steps = steps
        self.kind = KINDS[type(controller)]
        self.direct = self.kind == DIRECT
        self.layers, self.size, self.depth = controller.num_layers, controller.hidden_size, controller.reading_size
        self.gates = controller.gates * self.size
        self.width = 4 * self.size if self.kind == GRU else self.gates
        self.into_state = controller.reading_entry == "hidden_state" and controller.weight_reading is not None
        self.n_state = self.size if controller.recurrent else 0
        self.n_inputs = 0 if self.one_hot else inputs.shape[3]
        self.n_symbols = controller.input_size if self.one_hot else 0
        self.n_given = 0 if self.direct else (self.layers if controller.skips else 1)  # layers that x_t enters
        self.n_layers = 0 if self.direct else self.layers  # that have gates
        self.n_first = 0 if self.direct else self.n_state + (0 if self.into_state else self.depth)
        self.n_memory = _rows(parameters.controls)
        self.n_logits = self.n_memory + _rows(parameters.buffer)
        block = block_of(system.memory)
        assert block is not None
        self.block = block(BlockOf(system.memory, system.controls, models, steps, dtype, given.noise))
        self.buffer = None
        if system.buffer is not None:
            self.buffer = BufferBlock(system.buffer.pop, self.n_memory, inputs, given.held, steps)
        none = np.zeros((models, self.batch_size, 0), np.int64)
        self.active = none.view(np.bool_) if given.mask is None else given.mask
        self.ids = inputs if self.one_hot else none
        if self.one_hot:
            self._check_ids()
        self.dropped = given.dropped
        if self.dropped is None:
            self.dropped = np.empty((models, self.batch_size, self.layers - 1, self.steps, 0), dtype)
        work = self.batch_size * self.steps * sum(part.size for part in arrays.parameters if part is not None)
        self.parts = number_of_parts(models, self.batch_size, work // _WORK_OF_A_THREAD)

    def _check_ids(self) -> None:
        n = self.n_symbols
        if self.ids.size and not 0 <= self.ids.min() <= self.ids.max() < n:
            wrong = self.ids[(self.ids < 0) | (self.ids >= n)][0]
            raise IndexError(f"one-hot inputs must be in [0, {n}); got {wrong}")

    def zeros(self, *shape: int) -> np.ndarray:
        """Zeros of the scan's type."""
        return np.zeros(shape, self.dtype)

    def empty(self, *shape: int) -> np.ndarray:
        """An uninitialised array of the scan's type."""
        return np.empty(shape, self.dtype)

    def padded(self, columns: int) -> int:
        """The number of columns rounded up to whole panels."""
        return padded(columns, self.dtype)

    def _layer(self, layer: int, parameters: SystemParameters) -> packing.LayerArrays:
        """A layer's parameters; those from x_t are left out."""
        own = parameters.layers[layer]
        reading = parameters.reading if layer == 0 and not self.into_state else None
        m = self.models
        below = self.empty(m, self.gates, 0) if layer == 0 or own.below is None else own.below
        matrices = (self.empty(m, 0, 0) if part is None else part for part in (own.state, reading))
        biases = (self.empty(m, 0) if part is None else part for part in (own.bias_below, own.bias_state))
        return packing.LayerArrays(below, *matrices, *biases)

    def _of_inputs(self, parameters: SystemParameters) -> list[Any]:
        """The weights from x_t to the gates of the first layer, and of the others where there are skip connections."""
        return [own.skip if i else own.below for i, own in enumerate(parameters.layers[: self.n_given])]

    def _of_controls(self, parameters: SystemParameters) -> list[tuple[int, Any, Any]]:
        """The first logits of the memory and of the input buffer, with their weights and biases."""
        parts = (
            (0, parameters.controls, parameters.controls_bias),
            (self.n_memory, parameters.buffer, parameters.buffer_bias),
        )
        return [part for part in parts if part[1] is not None]

    def pack(self, parameters: SystemParameters, *, transposed: bool) -> Parameters:
        """The parameters packed for products with their transposes, or with themselves and without biases."""
        m, n_given = self.models, 0 if self.one_hot else self.n_given
        put = partial(packing.put, transposed)

        def room(k: int, n: int, *leading: int) -> np.ndarray:
            return panels(*((k, n) if transposed else (n, k)), self.dtype, m, *leading)

        inputs = room(self.n_inputs, self.gates, n_given)
        first, rest = room(self.n_first, self.width), room(self.size + self.n_state, self.width, self.layers - 1)
        entry, controls = room(self.depth if self.into_state else 0, self.size), room(self.size, self.n_logits)
        biases = self.zeros(m, self.n_layers, self.width)
        of_inputs = self._of_inputs(parameters)
        symbols = self.empty(m, 0, 0, 0)
        if self.one_hot and self.n_given:
            symbols = of_inputs[0][:, None] if self.n_given == 1 else np.stack(of_inputs, axis=1)
            of_inputs = []

        def put_large(share: int) -> None:
            for layer in range(self.n_layers):
                matrices, place = (first[:, None], 0) if layer == 0 else (rest, layer - 1)
                own = self._layer(layer, parameters)
                packing.put_layer(self.kind, transposed, matrices, place, biases, layer, own, share, self.parts)
            for i, weight in enumerate(of_inputs):
                put(inputs, i, weight, 0, 0, share, self.parts)

        run_parts(put_large, self.parts)
        entry_bias, controls_bias = self.zeros(m, self.size), self.zeros(m, self.n_logits)
        if self.into_state:
            put(entry[:, None], 0, parameters.reading, 0, 0, 0, 1)
            if parameters.bias_reading is not None:
                entry_bias[:] = parameters.bias_reading
        for start, weight, bias in self._of_controls(parameters):
            put(controls[:, None], 0, weight, 0, start, 0, 1)
            if bias is not None:
                controls_bias[:, start : start + bias.shape[1]] = bias
        return Parameters(inputs, symbols, entry, entry_bias, first, rest, biases, controls, controls_bias)

    def grads(self) -> Parameters:
        """Zeros to which `controller.collect` adds the gradients of the parameters."""
        m, symbols, padded = self.models, self.n_given if self.one_hot else 0, self.padded
        return Parameters(
            inputs=self.zeros(m, 0 if self.one_hot else self.n_given, self.gates, padded(self.n_inputs)),
            symbols=self.zeros(m, symbols, self.gates, self.n_symbols),
            entry=self.zeros(m, self.size if self.into_state else 0, padded(self.depth)),
            entry_bias=self.zeros(m, self.size),
            first=self.zeros(m, self.width, padded(self.n_first)),
            rest=self.zeros(m, self.layers - 1, self.width, padded(self.size + self.n_state)),
            biases=self.zeros(m, self.n_layers, self.width),
            controls=self.zeros(m, self.n_logits, padded(self.size)),
            controls_bias=self.zeros(m, self.n_logits),
        )

    def unpack(self, grads: Parameters, parameters: SystemParameters) -> SystemParameters:
        """Turn the gradients of matrices into those of the parameters."""
        found = SystemParameters.of(tuple(None if part is None else np.empty_like(part) for part in parameters.flat))
        for layer in range(self.n_layers):
            matrices, place = (grads.first[:, None], 0) if layer == 0 else (grads.rest, layer - 1)
            packing.take_layer(self.kind, matrices, place, grads.biases, layer, self._layer(layer, found))
        for i, weight in enumerate(self._of_inputs(found)):
            if self.one_hot:
                weight[:] = grads.symbols[:, i]
            else:
                packing.take(grads.inputs, i, weight, 0, 0)
        if self.into_state:
            packing.take(grads.entry[:, None], 0, found.reading, 0, 0)
            if found.bias_reading is not None:
                found.bias_reading[:] = grads.entry_bias
        for start, weight, bias in self._of_controls(found):
            packing.take(grads.controls[:, None], 0, weight, 0, start)
            if bias is not None:
                bias[:] = grads.controls_bias[:, start : start + bias.shape[1]]
        return found

    def of_models(self, weights: Parameters, part: Part) -> Parameters:
        """The parameters of a part's models, or their gradients."""
        return weights if self.models == 1 else Parameters(*(matrix[part.models] for matrix in weights))

    def sequence(self, inputs: np.ndarray, part: Part) -> Sequence:
        """The inputs of a part."""
        return Sequence(inputs[part], self.ids[part], self.active[part], self.dropped[part])

    def kept(self, part: Part) -> Layers:
        """Arrays for the results that a part's layers keep for the backward pass."""
        m, n = part.shape
        steps = self.steps
        return Layers(
            inputs=self.empty(m, steps, n, self.n_inputs),
            readings=self.empty(m, steps, n, self.depth if self.into_state else 0),
            first=self.empty(m, steps, n, self.n_first),
            rest=self.empty(m, self.layers - 1, steps, n, self.size + self.n_state),
            gates=self.empty(m, self.n_layers, steps, n, self.padded(self.width)),
            cells=self.empty(m, self.n_layers, steps, n, self.size if self.kind == LSTM else 0),
            tops=self.empty(m, steps, n, self.size),
            entered=self.empty(m, n, self.padded(self.size)),
        )

    def room(self, part: Part) -> Grads:
        """Workspace for a part's backward pass, one model after the other."""
        _, n = part.shape
        steps = min(self.steps, max(1, ROWS_OF_A_PRODUCT // max(1, n)))
        widest = max(
            self.n_inputs, self.n_first, self.size + self.n_state if self.layers > 1 else 0, self.size, self.depth
        )
        return Grads(
            gates=self.empty(self.n_layers, steps, n, self.padded(self.width)),
            logits=self.zeros(steps, n, self.padded(self.n_logits)),
            states=self.empty(steps, n, self.padded(self.size) if self.into_state else 0),
            given=self.empty(steps * n, self.padded(widest)),
            straight=self.empty(n, self.size),
            packing=self.empty(
                packing_room(self.padded(max(self.width, self.n_logits, self.size)), self.dtype.itemsize)
            ),
        )

    def part(self, i: int) -> Part:
        """The part of the work for thread i."""
        return Part.share(i, self.parts, self.models, self.batch_size)

    def forward(self, arrays: Tensors, wanted: bool, all_live: bool) -> tuple[Results, list[Kept]]:
        """Run the scan forwards; see `autograd.Plan`."""
        m, n = self.models, self.batch_size
        weights = self.pack(self.parameters, transposed=True)
        inputs = self.empty(m, n, 0, 0) if self.one_hot or self.buffer else arrays.given.inputs
        outputs = self.empty(m, n, self.steps, self.size)
        readings = self.empty(m, n, self.steps if self.output_readings else 0, self.depth)
        last = Running(*(part.copy() for part in arrays.state[:3]))
        memories = self.block.results(*arrays.state.memory)
        settings = Settings(self.kind, self.n_memory, all_live)

        def run(part: Part) -> Kept:
            m, n = part.shape
            layers = self.kept(part)
            emitted = self.empty(m, self.steps, n, self.padded(self.n_logits))
            memory, buffer = self.block.block(memories, part, wanted), self.buffer and self.buffer.block(part)
            compiled.forward(
                settings,
                self.of_models(weights, part),
                self.sequence(inputs, part),
                Running(*(state[part] for state in last)),
                outputs[part],
                readings[part],
                layers,
                emitted,
                memory,
                buffer or no_buffer(m, self.dtype)[0],
                np.zeros((m, n), np.int64),
            )
            return Kept(part, emitted, layers, memory, buffer)

        kept = run_parts(lambda i: run(self.part(i)), self.parts)
        return Results(outputs, readings, First(*last, *memories)), kept

    def backward(self, arrays: Tensors, kept: list[Kept], grads: Results, wanted: bool) -> Tensors:
        """Backpropagate through `forward`; see `autograd.Plan`."""
        weights = self.pack(self.parameters, transposed=False)
        states = Running(*(part.copy() for part in grads.state[:3]))
        of_memory = [part.copy() for part in grads.state.memory]
        m, b = self.models, self.batch_size
        none = self.empty(m, b, self.steps, 0)
        of_inputs = self.empty(m, b, self.steps, self.n_inputs) if wanted and not self.buffer else none
        of_buffer = np.zeros_like(self.buffer.values) if self.buffer else none
        # One for each thread, if the threads share the rows of one model.
        of_weights = [self.grads() for _ in range(self.parts if m == 1 else 1)]
        settings = Settings(self.kind, self.n_memory, False)

        def run(i: int) -> None:
            part, emitted, layers, memory, buffer = kept[i]
            m, _ = part.shape
            memory, buffer = self.block.again(memory), self.buffer and self.buffer.again(buffer)
            compiled.backward(
                settings,
                self.of_models(weights, part),
                self.sequence(none, part),
                arrays.state.cell[part],
                layers,
                emitted,
                memory,
                buffer or no_buffer(m, self.dtype)[0],
                grads.outputs[part],
                grads.readings[part],
                Running(*(state[part] for state in states)),
                self.block.grad(of_memory, memory, part),
                self.buffer.grad(of_buffer, part) if self.buffer else no_buffer(m, self.dtype)[1],
                of_inputs[part],
                self.of_models(of_weights[i % len(of_weights)], part),
                self.room(part),
            )

        run_parts(run, self.parts)
        if len(of_weights) > 1:
            run_parts(lambda i: _add_up(of_weights, i), self.parts)
        of_given = (of_buffer if self.buffer else of_inputs) if wanted else None
        first = First(*states, *self.block.of_first(of_memory))
        return Tensors(Given(of_given), first, self.unpack(of_weights[0], self.parameters).flat)


def _add_up(of_threads: list[Parameters], share: int) -> None:
    """Add the gradients of all threads to those of the first: each thread adds an equal share of the rows."""
    shares = len(of_threads)
    for total, *others in zip(*of_threads, strict=True):
        flat, n = total.reshape(-1), total.size
        some = slice(n * share // shares, n * (share + 1) // shares)
        for other in others:
            flat[some] += other.reshape(-1)[some]
