"""The input buffer of a buffered network, as arrays."""

from __future__ import annotations

from functools import cache

import numpy as np

from ...memory.emission import Emission, Fixed
from .blocks import Part, fill_control
from .buffer import InputBuffer, InputBufferGrad
from .strength import fresh_workspace, new_line


class BufferBlock:
    """The block of an input buffer.

    Args:
        control: of its pop strength.
        first_logit: index of that control's first logit.
        values: [M, B, N, E].
        held: False at padding [M, B, N]; or None.
        steps: number of steps.
    """

    def __init__(
        self, control: Emission, first_logit: int, values: np.ndarray, held: np.ndarray | None, steps: int
    ) -> None:
        models, batch_size = values.shape[:2]
        self.values, self.steps, self.dtype = values, steps, values.dtype
        self.controls, self.fixed = np.zeros((models, 1, 3), np.int64), np.zeros((models, 1), self.dtype)
        fill_control(control, first_logit, 0, self.controls, self.fixed)
        self.held = np.empty((models, batch_size, 0), np.bool_) if held is None else held

    def block(self, part: Part) -> InputBuffer:
        """The named tuple that compiled code uses for a part."""
        values = self.values[part]
        m, n, size, _ = values.shape
        return InputBuffer(
            values,
            self.held[part],
            self.controls[part.models, 0],
            self.fixed[part.models],
            np.empty((m, self.steps, n), self.dtype),
            np.zeros((m, n), self.dtype),
            np.zeros((m, n), np.int64),
            new_line((m, n), size, size + self.steps, self.dtype),
            np.empty((m, self.steps, n, 2), np.int64),
            np.zeros((m, self.steps, n, 2), np.bool_),
        )

    @staticmethod
    def fresh_workspace(buffer: InputBuffer) -> InputBuffer:
        """A copy for another backward pass, with fresh workspace."""
        return buffer._replace(line=fresh_workspace(buffer.line))

    def grad(self, of_values: np.ndarray, part: Part) -> InputBufferGrad:
        """Gradients of a part, zeros."""
        values = of_values[part]
        m, n, size, _ = values.shape
        return InputBufferGrad(values, np.zeros((m, n, size), self.dtype), np.zeros((m, n), self.dtype))


@cache
def no_buffer(models: int, dtype: np.dtype) -> tuple[InputBuffer, InputBufferGrad]:
    """Empty input buffers and their gradients, for scans without buffers: Numba would compile a separate version for
    None."""
    values = np.empty((models, 0, 0, 0), dtype)
    block, whole = BufferBlock(Fixed(0.0), 0, values, None, 0), Part(slice(0, models), slice(0, 0))
    return block.block(whole), block.grad(values, whole)
