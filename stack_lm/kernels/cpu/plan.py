"""A scan's sizes, its weights as the compiled code wants them, and the room that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from ...controllers import Controller, DirectController
from ..layout import CONTROLLERS, DIRECT, GRU, LSTM, Buffered
from . import packing
from .arrays import BufferArrays, ElementArrays, Part, SuperpositionArrays
from .controller import Grads, Layers, Parameters, Sequence
from .gemm import packing_room, padded, panels
from .scan import Settings
from .threads import available, run_parts

if TYPE_CHECKING:
    from ...controls import Control
    from ...layers.cell import StackRNNCell

KINDS: dict[type[Controller], int] = {**CONTROLLERS, DirectController: DIRECT}
# Multiply-adds that keep a thread busy for much longer than it takes to wake it.
_WORK_OF_A_THREAD = 10_000_000
# Rows, of all steps, whose products with the gradients of the gates are taken at a time: as many as stay in the cache.
ROWS_OF_A_PRODUCT = 256
# The names of a layer's parameters in a controller, in the order in which they go to the compiled code.
_OF_LAYER = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_skip")
Arrays = list[np.ndarray | None]


class Given(NamedTuple):
    """What a scan is given beside states and parameters: tensors, or None where there is none.

    Attributes:
        inputs: x_t [B, T, E]; or the numbers [B, T] of one-hot vectors; or the values of an input buffer [B, N, E].
        mask: [B, T], False at padding.
        noise: of choices [B, T, S, O].
        held: False at padding of the input buffer [B, N].
        dropped: what a layer's output is multiplied with before the next [B, L - 1, T, H].
    """

    inputs: Any
    mask: Any
    noise: Any
    held: Any
    dropped: Any


def parameters_of(cell: StackRNNCell, buffered: Buffered | None) -> list[Tensor | None]:
    """Of each layer the weights and biases from below and the state, and from x_t with skip connections; of the
    reading's entry; of the controls; of the input buffer's control."""
    controller, projection = cell.controller, cell.controls.projection
    own = controller._parameters  # which is faster than one attribute of a module after the other
    names = [f"{name}_l{layer}" for layer in range(controller.num_layers) for name in _OF_LAYER]
    found: list[Tensor | None] = [own.get(name) for name in (*names, "weight_reading", "bias_reading")]
    found += [None, None] if projection is None else [projection.weight, projection.bias]
    return found + ([None, None] if buffered is None else [buffered.weight, buffered.bias])


def memory_of(cell: StackRNNCell) -> type[ElementArrays] | type[SuperpositionArrays]:
    """The arrays of a cell's memory."""
    return SuperpositionArrays if cell.controls.choices else ElementArrays


class Plan:
    """One scan: its sizes, and the arrays that its compiled code is given.

    Args:
        cell: whose scan it is.
        pop: how an input buffer's pop strength is controlled, and how many steps are taken; None where there is none.
        with_readings: whether the readings of all steps are results.
        models: how many run at once, the first dimension of all arrays.
        dtype: of the numbers.
        given: as arrays.
        parameters: as `parameters_of`, as arrays.
    """

    def __init__(
        self,
        cell: StackRNNCell,
        pop: tuple[Control, int] | None,
        with_readings: bool,
        models: int,
        dtype: np.dtype,
        given: Given,
        parameters: Arrays,
    ) -> None:
        controller, inputs = cell.controller, given.inputs
        self.one_hot = inputs.dtype == np.int64
        self.models, self.dtype, self.with_readings = models, dtype, with_readings
        self.batch_size = inputs.shape[1]
        self.steps = inputs.shape[2] if pop is None else pop[1]
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
        self.n_memory, of_buffer = (0 if weight is None else weight.shape[1] for weight in parameters[-4::2])
        self.n_logits = self.n_memory + of_buffer
        self.memory: Any = memory_of(cell)(cell, models, self.steps, dtype, given.noise)
        self.buffer = None if pop is None else BufferArrays(pop[0], self.n_memory, inputs, given.held, self.steps)
        none = np.zeros((models, self.batch_size, 0), np.int64)
        self.active = none.view(np.bool_) if given.mask is None else given.mask
        self.ids = inputs if self.one_hot else none
        if self.one_hot:
            self._check_ids()
        self.dropped = given.dropped
        if self.dropped is None:
            self.dropped = np.empty((models, self.batch_size, self.layers - 1, self.steps, 0), dtype)
        work = self.batch_size * self.steps * sum(part.size for part in parameters if part is not None)
        # The threads share the models if there are several, otherwise the rows of the batch.
        self.shared = models if models > 1 else self.batch_size
        self.parts = max(1, min(available(), self.shared, work // _WORK_OF_A_THREAD))

    def _check_ids(self) -> None:
        n = self.n_symbols
        if self.ids.size and not 0 <= self.ids.min() <= self.ids.max() < n:
            wrong = self.ids[(self.ids < 0) | (self.ids >= n)][0]
            raise IndexError(f"one-hot inputs must be in [0, {n}); got {wrong}")

    def zeros(self, *shape: int) -> np.ndarray:
        """Zeros of the scan's type."""
        return np.zeros(shape, self.dtype)

    def empty(self, *shape: int) -> np.ndarray:
        """Room for numbers of the scan's type."""
        return np.empty(shape, self.dtype)

    def padded(self, columns: int) -> int:
        """Columns that a result with that many needs room for."""
        return padded(columns, self.dtype)

    def _layer(self, layer: int, parameters: Arrays) -> list[np.ndarray]:
        """A layer's parameters from below, from the state and from the reading, and its two biases; empty where there
        is none, and for what comes from x_t."""
        below, state, *biases = parameters[len(_OF_LAYER) * layer :][:4]
        reading = parameters[len(_OF_LAYER) * self.layers] if layer == 0 and not self.into_state else None
        m = self.models
        if layer == 0 or below is None:
            below = self.empty(m, self.gates, 0)
        matrices = (self.empty(m, 0, 0) if part is None else part for part in (state, reading))
        return [below, *matrices, *(self.empty(m, 0) if bias is None else bias for bias in biases)]

    def _of_inputs(self, parameters: Arrays) -> list[Any]:
        """The weights from x_t to the gates of the first layer, and of the others where there are skip connections."""
        return [parameters[len(_OF_LAYER) * i + (len(_OF_LAYER) - 1 if i else 0)] for i in range(self.n_given)]

    def _tail(self, parameters: Arrays) -> tuple[Any, Any, list[tuple[int, Any, Any]]]:
        """The weight and bias of the reading's entry; and where the logits of the memory and of the input buffer begin,
        with their weights and biases."""
        reading, bias, *controls = parameters[len(_OF_LAYER) * self.layers :]
        parts = zip((0, self.n_memory), controls[::2], controls[1::2], strict=True)
        return reading, bias, [part for part in parts if part[1] is not None]

    def pack(self, parameters: Arrays, *, transposed: bool) -> Parameters:
        """The parameters packed for products with their transposes, or with themselves and without biases."""
        m, n_given = self.models, 0 if self.one_hot else self.n_given
        put = packing.put if transposed else packing.put_as_it_is
        put_layer = packing.put_layer if transposed else packing.put_layer_as_it_is

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
                put_layer(self.kind, matrices, place, biases, layer, *self._layer(layer, parameters), share, self.parts)
            for i, weight in enumerate(of_inputs):
                put(inputs, i, weight, 0, 0, share, self.parts)

        run_parts(put_large, self.parts)
        entry_bias, controls_bias = self.zeros(m, self.size), self.zeros(m, self.n_logits)
        reading, bias_reading, of_controls = self._tail(parameters)
        if self.into_state:
            put(entry[:, None], 0, reading, 0, 0, 0, 1)
            if bias_reading is not None:
                entry_bias[:] = bias_reading
        for start, weight, bias in of_controls:
            put(controls[:, None], 0, weight, 0, start, 0, 1)
            if bias is not None:
                controls_bias[:, start : start + bias.shape[1]] = bias
        return Parameters(inputs, symbols, entry, entry_bias, first, rest, biases, controls, controls_bias)

    def grads(self) -> Parameters:
        """Zeros to add the gradients of the parameters to, as `controller.collect` says."""
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

    def unpack(self, grads: Parameters, parameters: Arrays) -> Arrays:
        """From the gradients of matrices to those of the parameters."""
        found: Arrays = [None if part is None else np.empty_like(part) for part in parameters]
        for layer in range(self.n_layers):
            matrices, place = (grads.first[:, None], 0) if layer == 0 else (grads.rest, layer - 1)
            packing.take_layer(self.kind, matrices, place, grads.biases, layer, *self._layer(layer, found))
        for i, weight in enumerate(self._of_inputs(found)):
            if self.one_hot:
                weight[:] = grads.symbols[:, i]
            else:
                packing.take(grads.inputs, i, weight, 0, 0)
        reading, bias_reading, of_controls = self._tail(found)
        if self.into_state:
            packing.take(grads.entry[:, None], 0, reading, 0, 0)
            if bias_reading is not None:
                bias_reading[:] = grads.entry_bias
        for start, weight, bias in of_controls:
            packing.take(grads.controls[:, None], 0, weight, 0, start)
            if bias is not None:
                bias[:] = grads.controls_bias[:, start : start + bias.shape[1]]
        return found

    def of_models(self, weights: Parameters, part: Part) -> Parameters:
        """The parameters of a part's models, or their gradients."""
        return weights if self.models == 1 else Parameters(*(matrix[part.models] for matrix in weights))

    def sequence(self, inputs: np.ndarray, part: Part) -> Sequence:
        """What a part is given."""
        return Sequence(inputs[part], self.ids[part], self.active[part], self.dropped[part])

    def settings(self, all_live: bool) -> Settings:
        """The constants of the scan."""
        return Settings(self.kind, self.n_memory, all_live)

    def kept(self, part: Part) -> Layers:
        """Room for what the layers of a part keep."""
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
        """Room for the backward pass of a part to work in, one model after the other."""
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
        """What a thread runs."""
        share = slice(self.shared * i // self.parts, self.shared * (i + 1) // self.parts)
        return Part(share, slice(0, self.batch_size)) if self.models > 1 else Part(slice(0, 1), share)
