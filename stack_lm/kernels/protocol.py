"""The system, inputs and states of a scan: all that the backends know about layers.

A memory, its controls and a driver make a `System`. There are three drivers:

- `GivenVectors`: the vectors from which actions are emitted are known for all steps, so one product gives all actions,
  and only the memory recurs.
- `Controlled`: a controller emits the actions from x_t and the last reading, so controller and memory both recur.
- `Controlled` with a `Buffer`: x_t is read from an input buffer, which the controller pops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from ..nn.controllers import Controller, ControllerState
from ..memory import Memory, serializable
from ..memory.controls import ActionProjection, Controls, Noise
from ..memory.emission import Emission

CUDA_GRAPHS = "STACK_LM_CUDA_GRAPHS"  # the environment variable that is 1 to capture scans


@serializable
class MemoryState(NamedTuple):
    """The state of a memory without a controller between steps: the memory's state, and the last reading [B, R]."""

    memory: Any
    reading: Tensor


@serializable
class CellState(NamedTuple):
    """The state between steps with a controller; all tensors are batch first."""

    controller: ControllerState
    memory: Any
    reading: Tensor


class GivenVectors(NamedTuple):
    """A driver with given vectors [B, T, H], from which actions are emitted."""


class Buffer(NamedTuple):
    """An input buffer that a controller pops.

    Attributes:
        pop: emission of the pop strength.
        projection: from the controller's output to the logits of the buffers' strengths, of which those of `pop` come
            first; None where these are fixed.
    """

    pop: Emission
    projection: ActionProjection | None


class Controlled(NamedTuple):
    """A driver that is a controller, from whose outputs actions come.

    Attributes:
        module: the controller, or the module that adapters of its weights (PEFT's, for `target_parameters`) wrap
            around it.
        buffer: the input buffer that x_t is read from; None where x_t is given.
    """

    module: nn.Module
    buffer: Buffer | None = None

    @property
    def controller(self) -> Controller:
        """The controller itself."""
        module: Any = self.module
        while hasattr(module, "base_layer"):
            module = module.base_layer
        return module


Driver = GivenVectors | Controlled


class System(NamedTuple):
    """A memory with its controls and their driver.

    Attributes:
        memory: a function without parameters.
        controls: emit its actions.
        driver: gives the vectors that they are emitted from.
    """

    memory: Memory[Any, Any]
    controls: Controls
    driver: Driver

    @property
    def controller(self) -> Controller:
        """The controller of a driver that has one."""
        assert isinstance(self.driver, Controlled)
        return self.driver.controller

    @property
    def buffer(self) -> Buffer | None:
        """The input buffer, if there is one."""
        return self.driver.buffer if isinstance(self.driver, Controlled) else None


class PrecisionAtRisk(Exception):
    """A compiled scan that may have lost digits of these inputs: the reference must run them."""


class Request(NamedTuple):
    """The properties of a call that the choice of a backend depends on.

    Attributes:
        device, dtype: of the inputs.
        backend: the one that is set; None leaves it to the environment.
        has_mask: whether there is padding.
        all_layers: whether the outputs of every controller layer are wanted.
        single_step: whether it is one step, without gradients, as in generation.
        n_steps: of all sequences together; 0 where that is not known.
        several_models: whether `torch.func.vmap` runs several at once, which torch's own networks do not support.
        traced: whether torch.compile or torch.export trace it.
        not_operator: why they cannot be given the scan as one operator, in a few words; None if they can.
    """

    device: torch.device
    dtype: torch.dtype
    backend: str | None = None
    has_mask: bool = False
    all_layers: bool = False
    single_step: bool = False
    n_steps: int = 0
    several_models: bool = False
    traced: bool = False
    not_operator: str | None = None


class Inputs(NamedTuple):
    """The tensors that a scan runs over.

    Attributes:
        values: given vectors [B, T, H]; or x_t [B, T, E], or the numbers [B, T] of one-hot vectors; or the items of an
            input buffer [B, N, E], from front to back.
        mask: [B, T] bool, False where a sequence does not take the step; or None.
        noise: of actions, by name, [B, T, ...]; and of dropout between the controller's layers [B, T, L - 1, H], which
            the backend draws otherwise.
        held: [B, N] bool, False at padding of an input buffer, which is not in it; or None.
        steps: T.
    """

    values: Tensor
    mask: Tensor | None
    noise: Noise
    held: Tensor | None
    steps: int

    def step(self, t: int) -> tuple[Tensor | None, dict[str, Tensor]]:
        """The mask [B] and the noise [B, ...] of a step."""
        return None if self.mask is None else self.mask[:, t], {name: part[:, t] for name, part in self.noise.items()}
