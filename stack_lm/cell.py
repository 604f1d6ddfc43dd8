"""The recurrent cell: a controller, its controls and a memory.

`step` defines it; `scan` runs a sequence, step by step or in compiled code (see `stack_lm.kernels`). The reading of
step t enters the controller at step t + 1, so the cell, not the memory alone, is the unit that runs over a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from .controllers import ControllerState, make_controller
from .controls import Controls
from .kernels import dispatch
from .memory import make_memory, map_tensors

if TYPE_CHECKING:
    from .configuration_stack_rnn import StackRNNConfig


class Actions(dict[str, Tensor]):
    """What the controller did to its memory at each step, by name and as attributes.

    For a stack: `push_strength`, `pop_strength`, `read_strength` and `total_strength` [B, T], in elements, and for
    each control that is an expected value its distribution, such as `push_distribution` [B, T, K + 1]. For memories in
    superposition: `operation` [B, T, S, O], a distribution over the operations. At padded steps all are zero, but what
    the memory measures of its state (`total_strength`, `depth`, `lost`), which stays. Empty where there is no memory.
    """

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self[name]
        except KeyError:
            there = ", ".join(self) or "no actions, because the model has no memory"
            raise AttributeError(f"no action {name!r}; there are {there}") from None


class CellState(NamedTuple):
    """Everything that passes from one step to the next; the first dimension of every tensor is the batch."""

    controller: ControllerState
    memory: Any
    reading: Tensor


class Scan(NamedTuple):
    """What a scan returns.

    Attributes:
        outputs: the controller's output [B, T, H].
        layers: each controller layer's output [B, T, H], if asked for.
        actions: see `Actions`; empty if not asked for.
        state: after the last step.
    """

    outputs: Tensor
    layers: tuple[Tensor, ...] | None
    actions: Actions
    state: CellState


class StackRNNCell(nn.Module):
    """A recurrent cell with a memory: [B, T, E] to [B, T, H].

    One step is `o_t, h_t = controller(x_t, r_{t-1}, h_{t-1})`, actions from `o_t`, then the memory's step, which
    gives r_t (Grefenstette et al. 2015, figure 1b).

    Args:
        config: sizes, controller, memory and controls.

    Attributes:
        scan_backend: what runs `scan`: "auto", "reference", "numba" or "triton"; None leaves it to the environment
            variable STACK_LM_SCAN_BACKEND, and without that is "auto".
    """

    def __init__(self, config: StackRNNConfig) -> None:
        super().__init__()
        self.scan_backend: str | None = None
        self.memory = make_memory(config)
        self.controller = make_controller(config, self.memory.reading_size)
        self.controls = Controls.from_config(config, self.memory)

    @property
    def like(self) -> Tensor:
        """A tensor of the cell's device and type; a direct controller without a memory has a buffer alone."""
        return next(chain(self.parameters(), self.buffers()))

    def initial_state(self, batch_size: int) -> CellState:
        """The state before the first step: an empty memory and what is read from it."""
        memory = self.memory.initial_state(batch_size, device=self.like.device, dtype=self.like.dtype)
        reading = self.memory.initial_reading(memory).to(self.like.dtype)
        return CellState(self.controller.initial_state(batch_size), memory, reading)

    def step(
        self, inputs: Tensor, state: CellState, active: Tensor | None = None
    ) -> tuple[list[Tensor], dict[str, Tensor], CellState]:
        """One step.

        Args:
            inputs: x_t, [B, E].
            state: after step t - 1.
            active: [B] bool; where False, the sequence does not take the step and its state stays.

        Returns:
            Each controller layer's output [B, H], the actions (see `Actions`, without the time), and the next state.

        Raises:
            ValueError: if the state is of another number of sequences or on another device, or if a memory of limited
                size overflows and was told to raise then.
        """
        _check_state(inputs, state)
        outputs, actions, state = self._step(self.controller.project(inputs), state, active)
        self.memory.check_overflow(state.memory)
        return outputs, actions, state

    def _step(
        self, projected: Tensor, state: CellState, active: Tensor | None
    ) -> tuple[list[Tensor], dict[str, Tensor], CellState]:
        outputs, controller = self.controller.step(projected, state.reading, state.controller)
        actions, distributions = self.controls(outputs[-1])
        memory, reading = self.memory.update(state.memory, actions)
        if active is not None:
            column = active.unsqueeze(-1)
            controller = map_tensors(
                lambda new, old: torch.where(column.unsqueeze(-1), new, old), controller, state.controller
            )
            memory = self.memory.hold(active, memory, state.memory)
            reading = torch.where(column, reading, state.reading)
        return outputs, self.controls.report(actions, distributions), CellState(controller, memory, reading)

    def scan(
        self,
        inputs: Tensor,
        state: CellState | None = None,
        mask: Tensor | None = None,
        *,
        output_actions: bool = False,
        output_layers: bool = False,
    ) -> Scan:
        """Run a sequence.

        Args:
            inputs: x_1 .. x_T, [B, T, E].
            state: to start from; None starts anew.
            mask: [B, T] bool, False at padding. A padded step leaves the whole state as it is; its output is zeros.
            output_actions: collect the actions.
            output_layers: collect the outputs of every controller layer.

        Raises:
            ValueError: if `scan_backend` names a backend that cannot run this, and as `step`.
        """
        batch_size = inputs.shape[0]
        if state is None:
            state = self.initial_state(batch_size)
        else:
            _check_state(inputs, state)
            state = state._replace(memory=self.memory.compact(state.memory, inputs.shape[1]))
        backend, _ = dispatch.choose(
            self,
            inputs.device,
            inputs.dtype,
            has_mask=mask is not None,
            all_layers=output_layers,
            single_step=inputs.shape[1] == 1 and not torch.is_grad_enabled(),
        )
        if backend == "reference":
            return self._reference_scan(inputs, state, mask, output_actions, output_layers)
        outputs, last = dispatch.load(backend).scan(self, inputs, state, mask)
        actions = self._actions_over(outputs, state, mask) if output_actions else Actions()
        return Scan(outputs, (outputs,) if output_layers else None, actions, last)

    def _actions_over(self, outputs: Tensor, state: CellState, mask: Tensor | None) -> Actions:
        """What the controller did at each step, from its outputs [B, T, H]."""
        told = self.controls.report(*self.controls(outputs.flatten(0, 1)))
        actions = blank({name: part.unflatten(0, outputs.shape[:2]) for name, part in told.items()}, mask)
        return Actions(actions | self.memory.measure_over(state.memory, actions))

    def _reference_scan(
        self, inputs: Tensor, state: CellState, mask: Tensor | None, output_actions: bool, output_layers: bool
    ) -> Scan:
        length = inputs.shape[1]
        if not self.memory.actions and mask is None and not output_layers:
            fused = self.controller.run(inputs, state.controller)
            if fused is not None:
                return Scan(fused[0], None, Actions(), state._replace(controller=fused[1]))
        # Unbound at once, because the gradient of each slice would be a tensor of zeros as long as the sequence.
        projected = self.controller.project(inputs).unbind(1)
        outputs: list[list[Tensor]] = []
        actions: list[dict[str, Tensor]] = []
        for t in range(length):
            layers, step_actions, state = self._step(projected[t], state, None if mask is None else mask[:, t])
            outputs.append(layers if output_layers else layers[-1:])
            if output_actions:
                actions.append(step_actions | self.memory.measure(state.memory))
        self.memory.check_overflow(state.memory)
        stacked = tuple(torch.stack(layer, dim=1) for layer in zip(*outputs, strict=True))
        collected = Actions()
        if output_actions:
            collected = Actions({name: torch.stack([a[name] for a in actions], dim=1) for name in actions[0]})
        if mask is not None:
            stacked = tuple(layer.masked_fill(~mask.unsqueeze(-1), 0) for layer in stacked)
            measured = self.memory.measure(state.memory)
            collected.update(blank({name: part for name, part in collected.items() if name not in measured}, mask))
        return Scan(stacked[-1], stacked if output_layers else None, collected, state)


def blank(actions: Mapping[str, Tensor], mask: Tensor | None) -> dict[str, Tensor]:
    """Actions with zeros where the mask, of their first dimensions, is False."""
    if mask is None:
        return dict(actions)
    padding = ~mask
    return {
        name: part.masked_fill(padding.view(*mask.shape, *[1] * (part.dim() - mask.dim())), 0)
        for name, part in actions.items()
    }


def set_scan_backend(model: nn.Module, name: str) -> None:
    """Have all cells of a model run their scans on a backend: "auto", "reference", "numba" or "triton".

    Raises:
        ValueError: for another name. Whether the backend can run is found out by the scan.
    """
    dispatch.check_name(name)
    for module in model.modules():
        if isinstance(module, StackRNNCell):
            module.scan_backend = name


def explain_backend(model: nn.Module) -> str:
    """Which backend runs the scans of a model where it is now, and why: one line for each that differs.

    Raises:
        ValueError: if the model has no cell, or is set to a backend that cannot run.
    """
    lines: dict[str, None] = {}
    for module in model.modules():
        if isinstance(module, StackRNNCell):
            name, reason = dispatch.choose(module, module.like.device, module.like.dtype)
            lines[f"{name}: {reason}"] = None
    if not lines:
        raise ValueError(f"a {type(model).__name__} has no StackRNNCell, and so no scan")
    return "\n".join(lines)


def _check_state(inputs: Tensor, state: CellState) -> None:
    """A state of one sequence would otherwise be taken for one of many."""
    n_sequences = state.reading.shape[0]
    if n_sequences != inputs.shape[0]:
        raise ValueError(f"the state is of {n_sequences} sequences; the inputs are of {inputs.shape[0]}")
    if state.reading.device != inputs.device:
        raise ValueError(f"the state is on {state.reading.device}; the inputs are on {inputs.device}")
