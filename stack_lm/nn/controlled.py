"""A memory and its controls: the one place where controls, update, hold and report meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..core.errors import InputError
from ..kernels import dispatch
from ..kernels.protocol import Driver, GivenVectors, Inputs, MemoryState, Request, System
from ..memory import Memory, leaves, under_transform
from ..memory.base import numbers_hidden
from ..memory.controls import Controls, Noise

_Form = tuple[type[Any], list[tuple[int | None, ...]], list[bool]]


class Actions(dict[str, Tensor]):
    """The actions on a memory at each step, by name and as attributes.

    For a stack: `push_strength`, `pop_strength`, `read_strength` and `total_strength` [B, T], in elements, and for each
    expected-value control its distribution, such as `push_distribution` [B, T, K + 1]. For memories in superposition:
    `operation` [B, T, S, O], a distribution over the operations. At padded steps all are zero (log weights: minus
    infinity), except measures of the memory's state (`total_strength`, `depth`, `lost`), which keep their values. Empty
    without a memory.
    """

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self[name]
        except KeyError:
            names = ", ".join(self) or "no actions, because the model has no memory"
            raise AttributeError(f"no action {name!r}; there are {names}") from None


pytree.register_pytree_node(
    Actions,
    lambda actions: (list(actions.values()), list(actions)),
    lambda parts, names: Actions(zip(names, parts, strict=True)),
    serialized_type_name="stack_lm.nn.controlled.Actions",
    flatten_with_keys_fn=lambda actions: ([(pytree.MappingKey(n), part) for n, part in actions.items()], list(actions)),
)


class Scan(NamedTuple):
    """The result of a scan.

    Attributes:
        outputs: the controller's output [B, T, H]; of given vectors the readings [B, T, R], zeros at padding.
        readings: after each step [B, T, R], zeros at padding, if requested.
        layers: each controller layer's output [B, T, H], if requested.
        actions: see `Actions`; empty unless requested.
        state: after the last step.
    """

    outputs: Tensor
    readings: Tensor | None
    layers: tuple[Tensor, ...] | None
    actions: Actions
    state: Any


def blank(
    actions: Mapping[str, Tensor], mask: Tensor | None, padding: Mapping[str, float] | None = None
) -> dict[str, Tensor]:
    """Actions with zeros, or other given numbers by name, where the mask over their first dimensions is False."""
    if mask is None:
        return dict(actions)
    return {
        name: part.masked_fill(
            ~mask.view(*mask.shape, *[1] * (part.dim() - mask.dim())), 0 if padding is None else padding.get(name, 0)
        )
        for name, part in actions.items()
    }


def over_time(steps: Sequence[Mapping[str, Tensor]]) -> Actions:
    """The actions of a sequence [B, T, ...] from those of its steps [B, ...]; empty without steps."""
    return Actions({name: torch.stack([step[name] for step in steps], dim=1) for name in (steps[0] if steps else ())})


class ControlledMemory(nn.Module):
    """A memory driven by vectors; its step is defined here alone, wherever it runs.

    Attributes:
        memory: the memory, a function without parameters.
        controls: emit its actions from a vector.
        description: see `operator.describe`; None for a layer of a class from outside this package.
        output_size: size of a scan's outputs.
        dropout: probability of dropout between a controller's layers.
        scan_backend: the backend of `scan`: "auto", "reference", "numba", "triton" or "parallel"; None takes the
            environment variable STACK_LM_SCAN_BACKEND, or "auto" if it is not set.
    """

    memory: Memory[Any, Any]
    controls: Controls
    description: str | None = None
    output_size: int
    dropout: float = 0.0
    scan_backend: str | None = None
    _form: tuple[Memory[Any, Any], _Form] | None = None  # of the states of a memory, from the first that was checked

    @classmethod
    def from_settings(cls, settings: Any) -> ControlledMemory:
        """Build a layer from its description, given as attributes."""
        raise NotImplementedError

    def run(self, given: Inputs, state: Any, output_actions: bool = False, output_readings: bool = False) -> Scan:
        """A scan from the state that `begin` makes, with the noise drawn."""
        raise NotImplementedError

    def obstacle_to_operator(self) -> str | None:
        """The reason, in a few words, why its scan cannot be one torch operator; None if it can. See `operator`."""
        return f"a {type(self).__name__} cannot be rebuilt from a description"

    @property
    def reference_tensor(self) -> Tensor:
        """A tensor of the module's device and type; a direct controller without a memory has only a buffer."""
        return next(chain(self.parameters(), self.buffers()), torch.empty(0))

    @property
    def driver(self) -> Driver:
        """Supplies the vectors from which actions are emitted."""
        return GivenVectors()

    def choose_backend(
        self, reference: Tensor, *, system: System | None = None, **request: Any
    ) -> dispatch.BackendChoice:
        """The backend of a scan.

        Args:
            reference: a tensor of the device and type of the inputs.
            system: the system to run; by default this layer's own.
            **request: the fields of `Request` that differ from their defaults.

        Raises:
            ValueError: if `scan_backend` names a backend that cannot run this.
        """
        asked: dict[str, Any] = {
            "device": reference.device,
            "dtype": reference.dtype,
            "backend": self.scan_backend,
        } | request
        return dispatch.choose(self.system if system is None else system, Request(**asked))

    @property
    def system(self) -> System:
        """The system that a scan of this layer runs."""
        return System(self.memory, self.controls, self.driver)

    def empty(self, batch_size: int, length: int | None = None) -> MemoryState:
        """An empty memory for `batch_size` sequences of `length` steps, if known, and its reading."""
        reference = self.reference_tensor
        memory = self.memory.initial_state(batch_size, length, device=reference.device, dtype=reference.dtype)
        memory = self.memory.set_learned(memory, self.controls.first())
        return MemoryState(memory, self.memory.initial_reading(memory).to(reference.dtype))

    def check_state(self, state: Any, inputs: Tensor) -> None:
        """Reject a state of another layer or of other sequences: compiled code would read beyond its end.

        Raises:
            ValueError: naming both kinds, numbers of sequences, devices, or shapes; or under torch.jit.trace.
        """
        if torch.jit.is_tracing():
            raise InputError("a scan cannot be traced by torch.jit.trace, which torch deprecates: use torch.export")
        if not numbers_hidden():  # a tracer would record the construction of the form
            self._check_form(state)
        n_sequences = state.reading.shape[0]
        if n_sequences != inputs.shape[0]:
            raise ValueError(
                f"state and inputs must have the same number of sequences; got {n_sequences} and {inputs.shape[0]}"
            )
        if state.reading.device != inputs.device:
            raise ValueError(f"the state is on {state.reading.device}; the inputs are on {inputs.device}")

    def _check_form(self, state: Any) -> None:
        if self._form is None or self._form[0] is not self.memory:  # an intervention puts another in its place
            self._form = (self.memory, self._form_of_states())
        kind, shapes, floating = self._form[1]
        for part, expected in ((state, kind), (getattr(state, "memory", None), self.memory.state_type)):
            if not isinstance(part, expected):
                raise ValueError(f"the state of this layer has a {expected.__name__}; got a {type(part).__name__}")
        tensors = list(leaves(state))
        if len(tensors) != len(shapes) or not all(map(_fits, tensors, shapes)):
            here = [[*("any" if size is None else size for size in shape)] for shape in shapes]
            got = [[*tensor.shape[1:]] for tensor in tensors]
            raise ValueError(
                f"the state belongs to another layer: without the batch, its tensors are {got}; here {here}"
            )
        sizes = [tensor.shape[0] for tensor in tensors]
        if len({*sizes, state.reading.shape[0]}) > 1:
            raise ValueError(f"all tensors of a state must have the same number of sequences; got {sizes}")
        types = [tensor.dtype for tensor in tensors]
        if [dtype.is_floating_point for dtype in types] != floating:
            raise ValueError(f"the tensors of the state must be of floating-point type or not: {floating}; got {types}")

    def _form_of_states(self) -> _Form:
        """The type of a state; shapes without the batch, with None for a size that may change; which are floating."""
        with torch.no_grad():
            states = [self.initial_state(1), self.initial_state(1, 7)]
            # None for a memory that does not tell: its scans run in torch, which checks the sizes.
            grown = self.memory.after(states[0].memory, 2)
        if grown is not None:
            states.append(states[0]._replace(memory=grown))
        form = []
        for same in zip(*map(leaves, states), strict=True):  # one tensor in each of the states
            sizes = map(set, zip(*(tensor.shape[1:] for tensor in same), strict=True))
            form.append(tuple(size.pop() if len(size) == 1 and grown is not None else None for size in sizes))
        return type(states[0]), form, [tensor.is_floating_point() for tensor in leaves(states[0])]

    def check_type(self, name: str, inputs: Any) -> None:
        """Check that inputs are a tensor of the weights' type, or that autocast will make them so.

        Raises:
            ValueError: naming both types.
        """
        if not inputs.is_floating_point():
            raise ValueError(f"{name} must be of a floating-point type; got {inputs.dtype}")
        weights, device = self.reference_tensor.dtype, inputs.device.type
        if inputs.dtype == weights or not weights.is_floating_point:  # those of quantised layers are integers
            return
        if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            raise ValueError(f"{name} must be of the weights' type, {weights}; got {inputs.dtype}")

    def begin(self, state: Any, inputs: Tensor, mask: Tensor | None = None) -> Any:
        """The state from which a scan of inputs [B, T, ...] starts: an empty one for None.

        Raises:
            ValueError: as `check_state`, for a mask that is not [B, T] bool, and if the weights are on another device
                than the inputs.
        """
        batch_size, length = inputs.shape[:2]
        check_mask("mask", mask, (batch_size, length))
        if (here := self.reference_tensor.device) != inputs.device:
            name = type(self).__name__
            hint = f": offload with preload_module_classes=[{name!r}]" if here.type == "meta" else ""
            raise ValueError(f"the weights of a {name} are on {here}; the inputs are on {inputs.device}{hint}")
        if state is None:
            return self.initial_state(batch_size, length)
        self.check_state(state, inputs)
        return state._replace(memory=self.memory.compact(state.memory, length))

    def request(self, inputs: Tensor, reference: Tensor, mask: Tensor | None, all_layers: bool = False) -> Request:
        """The request to a backend for a scan of inputs [B, T, ...] in the type of `reference`."""
        batch_size, length = inputs.shape[:2]
        traced = torch.compiler.is_compiling()
        return Request(
            device=inputs.device,
            dtype=reference.dtype,
            backend=self.scan_backend,
            has_mask=mask is not None,
            all_layers=all_layers,
            single_step=length == 1 and not torch.is_grad_enabled(),
            n_steps=batch_size * length,
            several_models=under_transform(),
            traced=traced,
            not_operator=self.obstacle_to_operator() if traced else None,
        )

    def initial_state(self, batch_size: int, length: int | None = None) -> Any:
        """The state before the first step, of `length` if known: an empty memory and its reading."""
        return self.empty(batch_size, length)

    def reset(self, state: Any, rows: Tensor) -> Any:
        """Return the state with some sequences reset to the initial state.

        Args:
            state: after any step.
            rows: [B] bool, True for the sequences to reset.
        """
        first = self.initial_state(rows.shape[0]).reading.to(state.reading.dtype)
        reading = torch.where(rows.unsqueeze(-1), first, state.reading)
        memory = self.memory.set_learned(self.memory.reset(state.memory, rows), self.controls.first(), rows)
        return state._replace(memory=memory, reading=reading)

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Noise:
        """The noise of the steps of a scan, by name [*shape, ...]; see `Controls.draw_noise`."""
        return self.controls.draw_noise(shape, self.reference_tensor, generator)

    def drive(
        self, hidden: Tensor, state: MemoryState, active: Tensor | None = None, noise: Noise | None = None
    ) -> tuple[dict[str, Tensor], MemoryState]:
        """One step of controls and memory.

        Args:
            hidden: the vectors from which the actions are emitted, [B, H].
            state: after step t - 1.
            active: [B] bool; where False, the sequence skips the step and keeps its state.
            noise: from `Controls.draw_noise`; None to draw it here.

        Returns:
            The reported actions (see `Controls.forward`), and the next state.
        """
        actions, reported = self.controls(hidden, noise)
        return reported, MemoryState(*self.memory.advance(*state, actions, active))

    def report(self, reported: Mapping[str, Tensor], memory: Any, active: Tensor | None = None) -> Actions:
        """The actions of a step (see `Actions`, without the time), from the result of `drive`."""
        return Actions(blank(reported, active, self.padding) | self.memory.measure(memory))

    def report_over(
        self, hidden: Tensor, memory: Any, mask: Tensor | None = None, noise: Noise | None = None
    ) -> Actions:
        """The actions over a sequence whose states were not kept, for memories with `measure_over`.

        Args:
            hidden: [B, T, H].
            memory: the memory's state before the first step.
            mask: [B, T] bool, False at padding.
            noise: the noise of the steps, [B, T, ...].
        """
        _, reported = self.controls.over_time(hidden, noise)
        actions = blank(reported, mask, self.padding)
        return Actions(actions | self.memory.measure_over(memory, actions))

    @property
    def padding(self) -> dict[str, float]:
        """The values of reported actions at padding, if not 0."""
        return {field.name: field.padding for field in self.memory.actions if field.padding}


def check_mask(name: str, mask: Any, shape: tuple[int, ...]) -> None:
    """Check the mask of real steps: compiled code would take the zeros of an additive mask for padding.

    Raises:
        ValueError: naming the type and shape that it must have.
    """
    if mask is None or (isinstance(mask, Tensor) and mask.dtype == torch.bool and tuple(mask.shape) == shape):
        return
    got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else f"a {type(mask).__name__}"
    raise ValueError(f"{name} must be a tensor torch.bool {list(shape)}, False at padding; got {got}")


def _fits(tensor: Tensor, expected: tuple[int | None, ...]) -> bool:
    """Whether a tensor has an expected shape without the batch."""
    shape = tensor.shape[1:]
    return len(shape) == len(expected) and all(n in (None, size) for size, n in zip(shape, expected, strict=True))


def set_scan_backend(model: nn.Module, name: str) -> None:
    """Set the backend of the scans of all layers with a memory: "auto", "reference", "numba", "triton" or "parallel".

    Raises:
        ValueError: for another name. Only the scan checks that the backend can run.
    """
    dispatch.check_name(name)
    for module in model.modules():
        if isinstance(module, ControlledMemory):
            module.scan_backend = name


def explain_backend(model: nn.Module) -> str:
    """Explain the choice of backend for a model's scans on its device: one line for each distinct answer.

    Raises:
        ValueError: if the model has no layer with a scan, or is set to a backend that cannot run.
    """
    lines: dict[str, None] = {}
    for module in model.modules():
        if isinstance(module, ControlledMemory):
            name, reason = module.choose_backend(module.reference_tensor)
            lines[f"{name}: {reason}"] = None
    if not lines:
        raise ValueError(f"a {type(model).__name__} has no memory layer or StackRNNCell, and so no scan")
    return "\n".join(lines)
