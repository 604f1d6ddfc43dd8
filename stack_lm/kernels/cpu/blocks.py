"""The host side of the arrays that compiled code uses: a memory's block, looked up by memory type.

A block's module registers it. All arrays have a leading model dimension, before those that the named tuples document.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...memory import Memory
from ...memory.controls import Controls
from ...memory.emission import Activation, Emission, ExpectedValue, Fixed, Sigmoid
from . import emission, memories
from .rows import EXP, IDENTITY, SIGMOID, TANH

Group = Any  # a named tuple of arrays and numbers


def array(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers as a contiguous array, shared if it is contiguous."""
    tensor = tensor.detach()
    numbers: np.ndarray = (tensor if tensor.is_contiguous() else tensor.contiguous()).numpy()
    return numbers


class Part(NamedTuple):
    """One thread's share of the work: some models, and some rows of the batch.

    At least one of the two is complete, because slices must be contiguous."""

    models: slice
    rows: slice

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of models and of rows."""
        return self.models.stop - self.models.start, self.rows.stop - self.rows.start

    @classmethod
    def share(cls, i: int, parts: int, models: int, batch_size: int) -> Part:
        """The i-th part: threads split the models if there are several, otherwise the rows of the batch."""
        size = models if models > 1 else batch_size
        share = slice(size * i // parts, size * (i + 1) // parts)
        return cls(share, slice(0, batch_size)) if models > 1 else cls(slice(0, 1), share)


class BlockSpec(NamedTuple):
    """The memory, controls and sizes of a block.

    Attributes:
        memory: of a type that the block is registered for.
        controls: emit its actions.
        models: number of models run at once.
        steps: of the scan, T.
        dtype: of the numbers.
        noise: as `Block.noise_of` chose it, [M, B, T, ...], or None.
    """

    memory: Memory[Any, Any]
    controls: Controls
    models: int
    steps: int
    dtype: np.dtype
    noise: np.ndarray | None


class Block(ABC):
    """Arrays of a memory for one scan.

    Args:
        spec: the memory, controls and sizes.

    Attributes:
        kernels: the module of its compiled steps: see the stubs in `memories`.
        group: the named tuple that they operate on.
        emissions: kinds of controls that they know, besides strengths.
        counts_losses: whether the second array of a state has no gradient.
    """

    kernels: ModuleType
    group: type
    emissions: tuple[type[Emission], ...]
    counts_losses: bool = False

    @abstractmethod
    def __init__(self, spec: BlockSpec) -> None: ...

    @classmethod
    def obstacle(cls, controls: Controls) -> str | None:
        """The reason why the compiled steps cannot emit its actions, in a few words; None if they can."""
        for field in controls.memory.actions:
            kind = type(controls.emission(field.name))
            if kind not in (Fixed, Sigmoid, ExpectedValue, *cls.emissions):
                return f"the control of {field.name} is a {kind.__name__}"
        return None

    @classmethod
    def noise_of(cls, noise: Mapping[str, Tensor]) -> Tensor | None:
        """The noise of its actions as one tensor [B, T, ...], or None."""
        return None

    @staticmethod
    @abstractmethod
    def first(state: Any, like: Tensor) -> tuple[Tensor, Tensor]:
        """The two tensors of a state: contents and extra, as values and strengths."""

    @staticmethod
    @abstractmethod
    def last(state: Any, contents: Tensor, extra: Tensor) -> Any:
        """The state built from two tensors, in the form of the first state."""

    @abstractmethod
    def results(self, contents: np.ndarray, extra: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Arrays for the last state, with the first in its place."""

    @abstractmethod
    def block(self, results: tuple[np.ndarray, ...], part: Part, kept: bool) -> Group:
        """The named tuple that compiled code uses for a part; with `kept`, for a backward pass."""

    def finish(  # noqa: B027 - most have nothing to do
        self, memory: Group, results: tuple[np.ndarray, ...], part: Part
    ) -> None:
        """Complete the results of a part that compiled code has run.

        Raises:
            PrecisionAtRisk: if they may be inexact.
        """

    @staticmethod
    def fresh_workspace(memory: Group) -> Group:
        """A copy for another backward pass, with fresh workspace."""
        return memory._replace(steps=memory.steps.copy())

    @abstractmethod
    def grad(self, results_grads: list[np.ndarray], memory: Group, part: Part) -> Group:
        """Gradients of a part, of the last state on entry and then of the first."""

    @abstractmethod
    def initial_state_grads(self, results_grads: list[np.ndarray]) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The gradients of the first state, from the arrays behind `grad`."""


_BLOCKS: dict[type[Memory[Any, Any]], type[Block]] = {}


def register_block(*types: type[Memory[Any, Any]]) -> Any:
    """Class decorator: register a block for exactly these memory types, not for subclasses."""

    def register(block: type[Block]) -> type[Block]:
        _BLOCKS.update(dict.fromkeys(types, block))
        memories.register(block.group, block.kernels)
        return block

    return register


def block_of(memory: Memory[Any, Any]) -> type[Block] | None:
    """The block of a memory, if it has one."""
    return _BLOCKS.get(type(memory))


def fill_control(setting: Emission, first: int, which: int, controls: np.ndarray, fixed: np.ndarray) -> int:
    """Fill in a row for a strength whose logits begin at `first`; returns where they end."""
    if isinstance(setting, Fixed):
        kind, fixed[:, which] = emission.FIXED, setting.value
    else:
        kind = emission.EXPECTED_VALUE if isinstance(setting, ExpectedValue) else emission.SIGMOID
    controls[:, which] = kind, first, first + setting.width
    return first + setting.width


def value_kind(setting: Emission) -> int:
    """The integer code of a value's activation."""
    assert isinstance(setting, Activation)
    return int({"tanh": TANH, "sigmoid": SIGMOID, "exp": EXP, "identity": IDENTITY}[setting.name])
