"""The recurrent cell: a controller, its controls and a memory.

`step` defines it; `scan` runs a sequence, step by step or in compiled code (see `stack_lm.kernels`). The reading of
step t enters the controller at step t + 1, so the cell, not the memory alone, is the unit that runs over a sequence.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import dispatch
from ..kernels.protocol import CellState, Controlled, Inputs, MemoryState
from ..memory import make_memory, map_tensors, under_transform
from ..memory.controls import Controls, Noise
from .controlled import Actions, ControlledMemory, Scan, over_time
from .controllers import DROPOUT, Controller, make_controller
from .operator import describe, operator_obstacle, register_layer, run_as_operator

# The attributes of a configuration that define a cell, besides the memory and its settings.
_DESCRIBED = (
    *("controller", "embedding_size", "hidden_size", "num_layers", "hidden_dropout", "bias", "learn_initial_state"),
    *("reading_entry", "input_skip_connections", "first_layer", "cell_size"),
)


@register_layer
class StackRNNCell(ControlledMemory):
    """A recurrent cell with a memory: [B, T, E] to [B, T, H].

    One step is `o_t, h_t = controller(x_t, r_{t-1}, h_{t-1})`, actions from `o_t`, then the memory's step, which
    gives r_t (Grefenstette et al. 2015, figure 1b).

    Args:
        config: sizes, controller, memory and controls.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.memory = make_memory(config)
        self.controller = make_controller(config, self.memory.reading_size)
        self.controls = Controls.from_config(config, self.memory)
        self.output_size = self.controller.hidden_size
        self.description = describe(self, config, *_DESCRIBED)

    @classmethod
    def from_settings(cls, settings: Any) -> StackRNNCell:
        return cls(settings)

    @property
    def dropout(self) -> float:
        return self.bare_controller.dropout

    @dropout.setter
    def dropout(self, probability: float) -> None:
        self.bare_controller.dropout = probability

    @property
    def driver(self) -> Controlled:
        return Controlled(self.controller)

    @property
    def bare_controller(self) -> Controller:
        """The controller itself, even if adapters of its weights (PEFT's, for `target_parameters`) wrap it."""
        return self.driver.controller

    @property
    def reference_tensor(self) -> Tensor:
        """A tensor of the cell's device and type; searching the parameters for one is slower."""
        weight: Tensor | None = self.bare_controller.parameter_of("weight_ih", 0)
        if weight is not None:
            return weight
        projection = self.controls.projection  # a direct controller has none
        return super().reference_tensor if projection is None else projection.weight

    def initial_state(self, batch_size: int, length: int | None = None) -> CellState:
        """The state before the first step, of `length` if known: an empty memory and its reading."""
        return CellState(self.bare_controller.initial_state(batch_size), *self.empty(batch_size, length))

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Noise:
        """The noise of actions and, while training, the factors of dropout between the controller's layers."""
        return {**super().draw_noise(shape, generator), **self.bare_controller.draw_dropout(shape, generator)}

    def reset(self, state: CellState, rows: Tensor) -> CellState:
        """See `ControlledMemory.reset`."""
        first = self.bare_controller.initial_state(rows.shape[0])
        controller = map_tensors(lambda new, old: torch.where(rows.view(-1, 1, 1), new, old), first, state.controller)
        reset: CellState = super().reset(state._replace(controller=controller), rows)
        return reset

    def step(
        self,
        inputs: Tensor,
        state: CellState,
        active: Tensor | None = None,
        *,
        noise: Noise | None = None,
        output_actions: bool = True,
    ) -> tuple[list[Tensor], Actions, CellState]:
        """One step.

        Args:
            inputs: x_t, [B, E].
            state: after step t - 1.
            active: [B] bool; where False, the sequence skips the step and keeps its state.
            noise: from `Controls.draw_noise`; None to draw it here.
            output_actions: return the actions; otherwise they are empty.

        Returns:
            Each controller layer's output [B, H], the actions (see `Actions`, without the time), and the next state.

        Raises:
            ValueError: if the state has another number of sequences or is on another device, or if a memory of limited
                size overflows and is set to raise an error then.
        """
        self.check_state(state, inputs)
        outputs, reported, state = self.controller(
            inputs, lambda inputs: self._step(self.bare_controller.project(inputs), state, active, noise)
        )
        self.memory.check_overflow(state.memory)
        return outputs, self.report(reported, state.memory, active) if output_actions else Actions(), state

    def _step(
        self, projected: Tensor, state: CellState, active: Tensor | None, noise: Noise | None
    ) -> tuple[list[Tensor], dict[str, Tensor], CellState]:
        dropped = None if noise is None else noise.get(DROPOUT)
        outputs, controller = self.bare_controller.step(projected, state.reading, state.controller, dropped)
        reported, driven = self.drive(outputs[-1], MemoryState(state.memory, state.reading), active, noise)
        if active is not None:
            of_layers = active.view(-1, 1, 1)
            controller = map_tensors(lambda new, old: torch.where(of_layers, new, old), controller, state.controller)
        return outputs, reported, CellState(controller, *driven)

    def scan(self, inputs: Tensor, state: CellState | None = None, mask: Tensor | None = None, **outputs: bool) -> Scan:
        """Run a sequence.

        Args:
            inputs: x_1 .. x_T, [B, T, E]; or integers [B, T], the numbers of one-hot vectors of size E.
            state: the initial state; None is an empty one.
            mask: [B, T] bool, False at padding. A padded step leaves the whole state unchanged; its output is zeros.
            **outputs: the results besides the controller's outputs: `output_actions`; `output_layers`, the outputs of
                every controller layer; `output_readings`.

        Raises:
            ValueError: if `scan_backend` names a backend that cannot run this, and as `step`.
        """
        # A call of the module, so that hooks on it run; with backward hooks, torch makes a plain tuple of a scan.
        return Scan(*self(inputs, state, mask, **outputs))

    def forward(
        self, inputs: Tensor, state: CellState | None = None, mask: Tensor | None = None, **outputs: bool
    ) -> Scan:
        """See `scan`."""
        batch_size, length = inputs.shape[:2]
        state = self.begin(state, inputs, mask)
        reference = inputs if inputs.is_floating_point() else self.reference_tensor
        # Drawn ahead and given to every backend, so that the result of a seed does not depend on the backend.
        given = Inputs(inputs, mask, self.controls.draw_noise((batch_size, length), reference), None, length)
        return self.run(given, state, **outputs)

    def obstacle_to_operator(self) -> str | None:
        return operator_obstacle(self)

    def run(
        self,
        given: Inputs,
        state: CellState,
        output_actions: bool = False,
        output_readings: bool = False,
        output_layers: bool = False,
    ) -> Scan:
        """`scan`, from the state that `begin` makes and with the noise drawn."""
        inputs, mask = given.values, given.mask
        reference = inputs if inputs.is_floating_point() else self.reference_tensor
        size = self.bare_controller.input_size
        if inputs.is_floating_point() and inputs.shape[-1] != size:
            raise ValueError(f"the input must be vectors of {size} numbers; got {list(inputs.shape)}")
        system = self.system
        backend, _ = dispatch.choose(system, self.request(inputs, reference, mask, output_layers))
        if backend == "operator":
            scan = run_as_operator(self, given, state, output_actions, output_readings)
            return scan._replace(layers=(scan.outputs,) if output_layers else None)
        compiled = None
        if backend != "reference":
            compiled = dispatch.run_compiled(backend, system, given, state, output_readings)
        if compiled is None:
            scan = self.controller(
                inputs,
                lambda inputs: self._reference_scan(
                    given._replace(values=inputs), state, output_actions, output_layers, output_readings
                ),
            )
            return Scan(*scan)  # see `scan`
        outputs, readings, last = compiled
        self.memory.check_overflow(last.memory)
        actions = self.report_over(outputs, state.memory, mask, given.noise) if output_actions else Actions()
        return Scan(outputs, readings, (outputs,) if output_layers else None, actions, last)

    def _reference_scan(
        self, given: Inputs, state: CellState, output_actions: bool, output_layers: bool, output_readings: bool
    ) -> Scan:
        inputs, mask = given.values, given.mask
        if not inputs.is_floating_point():
            inputs = F.one_hot(inputs, self.bare_controller.input_size).to(self.reference_tensor.dtype)
        alone = len(self.memory.actions) == 0 and mask is None and not output_layers and not output_readings
        alone &= DROPOUT not in given.noise  # torch's own networks draw it
        if alone and not under_transform():  # torch's own networks have no rule for vmap
            fused = self.bare_controller.run(inputs, state.controller)
            if fused is not None:
                return Scan(fused[0], None, None, Actions(), state._replace(controller=fused[1]))
        outputs: list[list[Tensor]] = []
        readings: list[Tensor] = []
        actions: list[Actions] = []
        # Unbound at once: the gradient of each slice would be a tensor of zeros as long as the sequence.
        for t, projected in enumerate(self.bare_controller.project(inputs).unbind(1)):
            active, noise = given.step(t)
            layers, reported, state = self._step(projected, state, active, noise)
            outputs.append(layers if output_layers else layers[-1:])
            readings.append(state.reading)
            if output_actions:
                actions.append(self.report(reported, state.memory, active))
        self.memory.check_overflow(state.memory)
        stacked = tuple(torch.stack(layer, dim=1) for layer in zip(*outputs, strict=True))
        read = torch.stack(readings, dim=1) if output_readings else None
        if mask is not None:
            stacked = tuple(layer.masked_fill(~mask.unsqueeze(-1), 0) for layer in stacked)
            read = None if read is None else read.masked_fill(~mask.unsqueeze(-1), 0)
        return Scan(stacked[-1], read, stacked if output_layers else None, over_time(actions), state)

    def output_features(self, outputs: Tensor, readings: Tensor) -> Tensor:
        """The features [..., X] that a head sees beside the controller's outputs; see `Memory.output_features`.

        Args:
            outputs: the outputs of the controller, o_t [..., H].
            readings: the readings of the same steps, r_t [..., R].
        """
        actions, _ = self.controls(outputs.flatten(0, -2))
        return self.memory.output_features(actions, readings.flatten(0, -2)).unflatten(0, readings.shape[:-1])
