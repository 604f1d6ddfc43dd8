"""A scan with a controller: its sizes, its weights packed for compiled code, and its workspace."""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import Tensor

from ..layout import DIRECT, GRU, LSTM, controller_kind
from ..protocol import System
from . import packing
from . import scan as compiled
from .autograd import First, Given, Kept, Plan, Results, Tensors
from .blocks import BlockSpec, Part
from .buffer_block import BufferBlock, no_buffer
from .controller import Grads, Layers, Parameters, Running, Sequence
from .gemm import packing_room, padded, panels
from .scan import Backward, Forward, Settings
from .threads import run_parts

# Multiply-adds per thread that justify the cost of waking it.
_WORK_OF_A_THREAD = 10_000_000
# Rows, over all steps, per product with the gradients of the gates: as many as fit in the cache.
ROWS_OF_A_PRODUCT = 256


def parameters_of(system: System) -> dict[str, Tensor]:
    """The parameters of a system: the controller's by their names, then `controls` and `buffer` with their biases.

    Those last two are the weights from the controller's output to the logits of all actions, and to those of the pop
    strength of an input buffer.
    """
    projection, buffer = system.controls.projection, system.buffer
    named: dict[str, Tensor | None] = dict(system.controller._parameters)
    if projection is not None:
        named |= {"controls": projection.weight, "controls_bias": projection.bias}
    if buffer is not None and buffer.projection is not None and buffer.pop.width:
        pop, bias = slice(buffer.pop.width), buffer.projection.bias
        named |= {"buffer": buffer.projection.weight[pop], "buffer_bias": None if bias is None else bias[pop]}
    return {name: parameter for name, parameter in named.items() if parameter is not None}


class ControllerPlan(Plan):
    """One scan: its sizes, and the arrays passed to compiled code.

    Args:
        system: the system to run.
        steps: number of steps.
        output_readings: whether the readings of all steps are results.
        names: of the parameters, as `parameters_of` has them.
        models: number of models run at once, the first dimension of all arrays.
        dtype: of the numbers.
        arrays: the inputs, first state and parameters.
    """

    def __init__(
        self,
        system: System,
        steps: int,
        output_readings: bool,
        names: tuple[str, ...],
        models: int,
        dtype: np.dtype,
        arrays: Tensors,
    ) -> None:
        controller = system.controller
        given: Given = arrays.given
        parameters = self.parameters = dict(zip(names, arrays.parameters, strict=True))
        inputs = given.inputs
        spec = BlockSpec(system.memory, system.controls, models, steps, dtype, given.noise)
        work = inputs.shape[1] * steps * sum(part.size for part in arrays.parameters if part is not None)
        super().__init__(spec, inputs.shape[1], work // _WORK_OF_A_THREAD)
        self.one_hot, self.output_readings = inputs.dtype == np.int64, output_readings
        kind = controller_kind(controller)
        assert kind is not None  # the backend has looked
        self.kind = kind
        self.direct = self.kind == DIRECT
        self.layers, self.size, self.depth = controller.num_layers, controller.hidden_size, controller.reading_size
        self.first_layer = controller.first_layer
        self.gates = controller.gates * self.size
        self.width = 4 * self.size if self.kind == GRU else self.gates
        self.into_state = controller.reading_entry == "hidden_state" and controller.weight_reading is not None
        self.n_state = self.size if controller.recurrent else 0
        self.n_inputs = 0 if self.one_hot else inputs.shape[3]
        self.n_symbols = controller.input_size if self.one_hot else 0
        self.n_given = 0 if self.direct else (self.layers if controller.skips else 1)  # layers that x_t enters
        self.n_layers = 0 if self.direct else self.layers  # that have gates
        self.n_first = 0 if self.direct else self.n_state + (0 if self.into_state else self.depth)
        self.n_memory, n_buffer = (parameters[n].shape[1] if n in parameters else 0 for n in ("controls", "buffer"))
        self.n_logits = self.n_memory + n_buffer
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

    def _named(self, name: str, layer: int) -> str:
        return f"{name}_l{self.first_layer + layer}"

    def _layer(self, layer: int) -> packing.LayerArrays:
        """A layer's parameters; those from x_t are left out."""
        m, named = self.models, self.parameters
        below = named.get(self._named("weight_ih", layer)) if layer else None
        reading = named.get("weight_reading") if layer == 0 and not self.into_state else None
        matrices = (below, named.get(self._named("weight_hh", layer)), reading)
        biases = (named.get(self._named(name, layer)) for name in ("bias_ih", "bias_hh"))
        return packing.LayerArrays(
            self.empty(m, self.gates, 0) if below is None else below,
            *(self.empty(m, 0, 0) if part is None else part for part in matrices[1:]),
            *(self.empty(m, 0) if part is None else part for part in biases),
        )

    @property
    def _input_weights(self) -> list[str]:
        """The weights from x_t to the gates of the first layer, and of the others where there are skip connections."""
        return [self._named("weight_skip" if layer else "weight_ih", layer) for layer in range(self.n_given)]

    @property
    def _controls(self) -> list[tuple[str, slice]]:
        """The weights to the logits of the memory and of the input buffer, with the logits' places."""
        parts = (("controls", slice(0, self.n_memory)), ("buffer", slice(self.n_memory, self.n_logits)))
        return [part for part in parts if part[0] in self.parameters]

    def pack(self, *, transposed: bool) -> Parameters:
        """The parameters packed for products with their transposes, or with themselves and without biases."""
        m, n_given, named = self.models, 0 if self.one_hot else self.n_given, self.parameters
        put = partial(packing.put, transposed)

        def room(k: int, n: int, *leading: int) -> np.ndarray:
            return panels(*((k, n) if transposed else (n, k)), self.dtype, m, *leading)

        inputs = room(self.n_inputs, self.gates, n_given)
        first, rest = room(self.n_first, self.width), room(self.size + self.n_state, self.width, self.layers - 1)
        entry, controls = room(self.depth if self.into_state else 0, self.size), room(self.size, self.n_logits)
        biases = self.zeros(m, self.n_layers, self.width)
        input_weights = [named[name] for name in self._input_weights]
        symbols = self.empty(m, 0, 0, 0)
        if self.one_hot and self.n_given:
            symbols = input_weights[0][:, None] if self.n_given == 1 else np.stack(input_weights, axis=1)
            input_weights = []

        def put_large(share: int) -> None:
            for layer in range(self.n_layers):
                matrices, place = (first[:, None], 0) if layer == 0 else (rest, layer - 1)
                own = self._layer(layer)
                packing.put_layer(self.kind, transposed, matrices, place, biases, layer, own, share, self.parts)
            for i, weight in enumerate(input_weights):
                put(inputs, i, weight, 0, 0, share, self.parts)

        run_parts(put_large, self.parts)
        entry_bias, controls_bias = self.zeros(m, self.size), self.zeros(m, self.n_logits)
        if self.into_state:
            put(entry[:, None], 0, named["weight_reading"], 0, 0, 0, 1)
            entry_bias[:] = named.get("bias_reading", 0)
        for name, logits in self._controls:
            put(controls[:, None], 0, named[name], 0, logits.start, 0, 1)
            controls_bias[:, logits] = named.get(f"{name}_bias", 0)
        return Parameters(inputs, symbols, entry, entry_bias, first, rest, biases, controls, controls_bias)

    def grads(self) -> Parameters:
        """Zeros to which `controller_gradients.collect` adds the gradients of the parameters."""
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

    def unpack(self, grads: Parameters) -> tuple[np.ndarray, ...]:
        """The gradients of the parameters: parts of those of the matrices, which `pack` describes."""
        grad_of, size, gates = {}, self.size, self.gates
        for layer in range(self.n_layers):
            matrix, bias = grads.first if layer == 0 else grads.rest[:, layer - 1], grads.biases[:, layer]
            state = size if layer else 0  # the first column from the state
            grad_of[self._named("weight_hh", layer)] = self._state_rows(matrix[:, :, state : state + size])
            grad_of[self._named("bias_ih", layer)] = bias[:, :gates]
            grad_of[self._named("bias_hh", layer)] = self._state_rows(bias).copy()  # not the memory of the other bias
            if layer == 0:
                grad_of["weight_reading"] = matrix[:, :gates, self.n_state : self.n_first]
            else:
                grad_of[self._named("weight_ih", layer)] = matrix[:, :gates, :size]
        for i, name in enumerate(self._input_weights):
            grad_of[name] = grads.symbols[:, i] if self.one_hot else grads.inputs[:, i, :, : self.n_inputs]
        if self.into_state:
            grad_of |= {"weight_reading": grads.entry[:, :, : self.depth], "bias_reading": grads.entry_bias}
        for name, logits in self._controls:
            grad_of |= {name: grads.controls[:, logits, :size], f"{name}_bias": grads.controls_bias[:, logits]}
        return tuple(grad_of[name] for name in self.parameters)

    def _state_rows(self, blocks: np.ndarray) -> np.ndarray:
        """The rows from the state [M, gates * H, ...]: all, but of a GRU's blocks not the new gate's from below."""
        if self.kind == GRU:
            return np.concatenate((blocks[:, : 2 * self.size], blocks[:, 3 * self.size :]), axis=1)
        return blocks

    def select_models(self, weights: Parameters, part: Part) -> Parameters:
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

    def forward(self, arrays: Tensors, wanted: bool, all_live: bool) -> tuple[Results, list[Kept]]:
        """Run the scan forwards; see `autograd.Plan`."""
        m, n = self.models, self.batch_size
        weights = self.pack(transposed=True)
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
            arguments = Forward(
                weights=self.select_models(weights, part),
                sequence=self.sequence(inputs, part),
                running=Running(*(state[part] for state in last)),
                outputs=outputs[part],
                readings=readings[part],
                layers=layers,
                emitted=emitted,
                memory=memory,
                buffer=buffer or no_buffer(m, self.dtype)[0],
            )
            compiled.forward(settings, arguments)
            self.block.finish(memory, memories, part)
            return Kept(part, emitted, layers, memory, buffer)

        kept = run_parts(lambda i: run(self.part(i)), self.parts)
        return Results(outputs, readings, First(*last, *memories)), kept

    def backward(self, arrays: Tensors, kept: list[Kept], grads: Results, wanted: bool) -> Tensors:
        """Backpropagate through `forward`; see `autograd.Plan`."""
        weights = self.pack(transposed=False)
        states = Running(*(part.copy() for part in grads.state[:3]))
        memory_grads = [part.copy() for part in grads.state.memory]
        m, b = self.models, self.batch_size
        none = self.empty(m, b, self.steps, 0)
        input_grads = self.empty(m, b, self.steps, self.n_inputs) if wanted and not self.buffer else none
        buffer_grads = np.zeros_like(self.buffer.values) if self.buffer else none
        # One for each thread, if the threads share the rows of one model.
        weight_grads = [self.grads() for _ in range(self.parts if m == 1 else 1)]
        settings = Settings(self.kind, self.n_memory, False)

        def run(i: int) -> None:
            part, emitted, layers, memory, buffer = kept[i]
            m, _ = part.shape
            memory, buffer = self.block.fresh_workspace(memory), self.buffer and self.buffer.fresh_workspace(buffer)
            arguments = Backward(
                weights=self.select_models(weights, part),
                sequence=self.sequence(none, part),
                first_cell=arrays.state.cell[part],
                layers=layers,
                emitted=emitted,
                memory=memory,
                buffer=buffer or no_buffer(m, self.dtype)[0],
                grad_outputs=grads.outputs[part],
                grad_readings=grads.readings[part],
                grads=Running(*(state[part] for state in states)),
                grad_memory=self.block.grad(memory_grads, memory, part),
                grad_buffer=self.buffer.grad(buffer_grads, part) if self.buffer else no_buffer(m, self.dtype)[1],
                grad_inputs=input_grads[part],
                grad_weights=self.select_models(weight_grads[i % len(weight_grads)], part),
            )
            compiled.backward(settings, arguments, self.room(part))

        run_parts(run, self.parts)
        if len(weight_grads) > 1:
            run_parts(lambda i: _add_up(weight_grads, i), self.parts)
        inputs_grad = (buffer_grads if self.buffer else input_grads) if wanted else None
        first = First(*states, *self.block.initial_state_grads(memory_grads))
        return Tensors(Given(inputs_grad), first, self.unpack(weight_grads[0]))


def _add_up(thread_grads: list[Parameters], share: int) -> None:
    """Add the gradients of all threads to those of the first: each thread adds an equal share of the rows."""
    shares = len(thread_grads)
    for total, *others in zip(*thread_grads, strict=True):
        flat, n = total.reshape(-1), total.size
        some = slice(n * share // shares, n * (share + 1) // shares)
        for other in others:
            flat[some] += other.reshape(-1)[some]
