"""A memory for your own network: between the layers of a transformer, or after an encoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.checks import check_of
from ..kernels import dispatch
from ..kernels.protocol import Inputs, MemoryState
from ..memory import memory_class
from ..memory.controls import Controls
from ..memory.fields import Size
from ..memory.settings import complete_settings, layer_defaults, settings_of
from .controlled import Actions, ControlledMemory, Scan, blank, check_mask
from .operator import describe, operator_obstacle, register_layer, run_as_operator
from .packing import Texts, starts_of


@register_layer
class MemoryLayer(ControlledMemory):
    """A differentiable memory driven by given vectors: [B, T, H] to readings [B, T, R].

    A linear layer emits the memory's actions from each vector h_t. All vectors are known in advance, so the actions of
    all steps are one product. Only the memory runs over time, in compiled code where possible (see
    `stack_lm.explain_backend`). Your own controller, which needs the last reading at each step, calls `step`.

    Args:
        input_size: size of h_t, H.
        memory: the name of a registered memory, such as "stack".
        bias: whether the linear layer has biases.
        device: the device of the parameters, as in torch's modules.
        dtype: the dtype of the parameters.
        settings: the memory's settings; see `StackRNNConfig` for their meanings and
            `stack_lm.memory.memory_class(memory).settings` for those of a memory, with its defaults. Here a stack,
            queue or deque reads before it pushes (`read_order`).

    Attributes:
        reading_size: size of a reading, R.

    Raises:
        ValueError: for an unknown memory or setting, or a value that a setting does not allow.

    Example:
        >>> stack = MemoryLayer(64, memory="stack", memory_size=32, pop_control="sigmoid")
        >>> readings, state, actions = stack(torch.randn(8, 20, 64), output_actions=True)
        >>> readings.shape, actions.push_strength.shape
        (torch.Size([8, 20, 32]), torch.Size([8, 20]))
    """

    def __init__(
        self,
        input_size: int,
        memory: str = "stack",
        *,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        hidden_size = check_of(Size)("input_size", input_size)
        settings = layer_defaults(memory) | settings
        config = settings_of(memory, settings, hidden_size=hidden_size, bias=check_of(bool)("bias", bias))
        if memory == "none":
            raise ValueError("memory='none' reads nothing; a MemoryLayer needs a memory")
        self.memory = complete_settings(config)
        self.controls = Controls.from_config(config, self.memory)
        self.input_size = input_size
        self.reading_size = self.output_size = self.memory.reading_size
        self.description = describe(self, config, "hidden_size", "bias")
        if device is not None or dtype is not None:  # under a FakeTensorMode this fails even if nothing changes
            self.to(device=device, dtype=dtype)

    @classmethod
    def from_settings(cls, settings: Any) -> MemoryLayer:
        own = {name: getattr(settings, name) for name in memory_class(settings.memory).settings}
        return cls(settings.hidden_size, settings.memory, bias=settings.bias, **own)

    def extra_repr(self) -> str:
        return f"{self.input_size}, memory={self.memory.name!r}, reading_size={self.reading_size}"

    def forward(
        self,
        hidden: Tensor,
        state: MemoryState | None = None,
        mask: Tensor | None = None,
        *,
        output_actions: bool = False,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, MemoryState, Actions]:
        """Run the memory over given vectors h_1 .. h_T.

        Args:
            hidden: [B, T, H].
            state: initial state; None: an empty memory.
            mask: [B, T] bool, False at padding. A padded step leaves the whole state unchanged; its reading is zeros.
            output_actions: return the actions.
            cu_seqlens: [N + 1], for a row of N texts (B = 1): 0 and the end of each, as flash attention has them. Each
                text begins with an empty memory; the last state is that of the N texts. They run as a padded batch, so
                one long text among many short ones takes the time and memory of N long ones.

        Returns:
            The readings [B, T, R], the last state, and the actions [B, T, ...], empty unless requested.

        Raises:
            ValueError: if shapes or types do not fit, if there is no step, if `scan_backend` names a backend that
                cannot run this, or if a memory of limited size overflows and is set to raise an error then.
        """
        if hidden.dim() != 3 or hidden.shape[1] == 0 or hidden.shape[2] != self.input_size:
            raise ValueError(f"hidden must be [B, T, {self.input_size}] with T of at least 1; got {list(hidden.shape)}")
        if cu_seqlens is not None:
            if state is not None:
                raise ValueError("with cu_seqlens each text begins with an empty memory: state must be None")
            batch = (hidden.shape[0], hidden.shape[1])
            check_mask("mask", mask, batch)
            texts = Texts.from_starts(starts_of(cu_seqlens, batch, hidden.device))
            rows, masked = texts.apart(hidden), texts.mask_with(mask)
            readings, state, actions = self(rows, None, masked, output_actions=output_actions)
            return texts.together(readings), state, Actions({n: texts.together(each) for n, each in actions.items()})
        self.check_type("hidden", hidden)
        batch_size, length = hidden.shape[:2]
        state = self.begin(state, hidden, mask)
        # Drawn ahead and given to every backend, so that the result of a seed does not depend on the backend.
        noise = self.controls.draw_noise((batch_size, length), hidden)
        scan = self.run(Inputs(hidden, mask, noise, None, length), state, output_actions)
        return scan.outputs, scan.state, scan.actions

    def obstacle_to_operator(self) -> str | None:
        return operator_obstacle(self)

    def run(
        self, given: Inputs, state: MemoryState, output_actions: bool = False, output_readings: bool = False
    ) -> Scan:
        """`forward`, from the state that `begin` makes and with the noise drawn. Its outputs are the readings."""
        hidden, mask, system = given.values, given.mask, self.system
        backend, _ = dispatch.choose(system, self.request(hidden, hidden, mask))
        if backend == "operator":
            return run_as_operator(self, given, state, output_actions, False)
        compiled = None if backend == "reference" else dispatch.run_compiled(backend, system, given, state)
        if compiled is not None:
            readings, last = compiled
            self.memory.check_overflow(last.memory)
            actions = self.report_over(hidden, state.memory, mask, given.noise) if output_actions else Actions()
            return Scan(readings, None, None, actions, last)
        emitted, reported = self.controls.over_time(hidden, given.noise)
        scan = self.memory.scan(state.memory, emitted, mask, reading=state.reading, measure=output_actions)
        self.memory.check_overflow(scan.state)
        done = Actions(blank(reported, mask, self.padding) | scan.measures) if output_actions else Actions()
        return Scan(scan.readings, None, None, done, MemoryState(scan.state, scan.reading))

    def step(
        self, hidden: Tensor, state: MemoryState | None = None, active: Tensor | None = None
    ) -> tuple[Tensor, MemoryState, Actions]:
        """One step, for your own controller that takes the reading of the last step.

        Args:
            hidden: h_t, [B, H].
            state: after step t - 1; None: empty.
            active: [B] bool; where False, at padding, the sequence skips the step and keeps its state.

        Returns:
            The reading r_t [B, R], the next state, and the actions (see `Actions`, without the time).

        Raises:
            ValueError: if shapes or types do not fit, if the state has another batch size, or if a memory of limited
                size overflows.
        """
        if hidden.dim() != 2 or hidden.shape[1] != self.input_size:
            raise ValueError(f"hidden must be [B, {self.input_size}], of one step; got {list(hidden.shape)}")
        self.check_type("hidden", hidden)
        check_mask("active", active, (hidden.shape[0],))
        if state is None:
            state = self.initial_state(hidden.shape[0])
        else:
            self.check_state(state, hidden)
            state = state._replace(memory=self.memory.compact(state.memory, 1))
        reported, state = self.drive(hidden, state, active)
        self.memory.check_overflow(state.memory)
        return state.reading, state, self.report(reported, state.memory, active)
