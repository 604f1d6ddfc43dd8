"""Stack attention: a memory in place of self-attention, in any transformer (DuSell & Chiang 2024)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core.checks import check_of
from ..kernels.protocol import MemoryState
from ..memory.fields import Size
from ..memory.settings import stack_attention_settings
from .controlled import Actions
from .memory_layer import MemoryLayer


class StackAttention(nn.Module):
    """A sublayer of a transformer that reads a memory instead of earlier vectors: [B, T, d] to [B, T, d].

    There are three linear maps without biases. From each vector x_t, `W_a x_t` gives the actions and `W_v x_t` the
    pushed vector. From the reading r_t after these actions, `W_o r_t` is the output (DuSell & Chiang 2024). The layer
    is causal.

    The paper's memories have its defaults: "superposition" has a no-op, elements of size d and vectors without an
    activation; "nondeterministic" has vectors of 5, `exp(W_v x_t)`, and a learned vector at the bottom, through a
    sigmoid. With "stack", which is not in the paper, all strengths are expected values, elements have size d, and a
    step reads before it pushes. Other memories have the defaults of `MemoryLayer`.

    Args:
        size: the size of x_t and of the output, d.
        memory: the name of any registered memory, such as "superposition", "nondeterministic" or "stack".
        device: the device of the parameters, as in torch's modules.
        dtype: the dtype of the parameters.
        settings: the settings of the memory, as in `MemoryLayer`.

    Attributes:
        stack: the memory with W_a and W_v, whose rows are in `stack.controls.projection`.
        output: W_o.

    Raises:
        ValueError: for an unknown memory or setting, or a value that a setting does not allow.

    Example:
        >>> layer = StackAttention(64, memory="superposition", memory_size=32)
        >>> outputs, state, actions = layer(torch.randn(8, 20, 64), output_actions=True)
        >>> outputs.shape, actions.operation.shape
        (torch.Size([8, 20, 64]), torch.Size([8, 20, 1, 3]))
    """

    def __init__(
        self,
        size: int,
        memory: str = "superposition",
        *,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        settings = stack_attention_settings(memory, settings, check_of(Size)("size", size))
        self.stack = MemoryLayer(size, memory, bias=False, **settings)
        self.output = nn.Linear(self.stack.reading_size, size, bias=False)
        if device is not None or dtype is not None:  # under a FakeTensorMode this fails even if nothing changes
            self.to(device=device, dtype=dtype)

    def forward(
        self,
        hidden: Tensor,
        state: MemoryState | None = None,
        mask: Tensor | None = None,
        *,
        output_actions: bool = False,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, MemoryState, Actions]:
        """Run a sequence x_1 .. x_T.

        Args:
            hidden: [B, T, d].
            state: initial state; None: an empty memory.
            mask: [B, T] bool, False at padding, which leaves the memory unchanged; the output there is zeros.
            output_actions: return the actions.
            cu_seqlens: the ends of the texts of a packed row; see `MemoryLayer.forward`.

        Returns:
            The outputs [B, T, d], the last state, and the actions [B, T, ...], empty unless requested.

        Raises:
            ValueError: as `MemoryLayer.forward`.
        """
        readings, state, actions = self.stack(hidden, state, mask, output_actions=output_actions, cu_seqlens=cu_seqlens)
        return self.output(readings), state, actions
