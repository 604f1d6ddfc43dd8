"""The two buffers of a buffered network: one read-only queue, one write-only (Hao et al. 2018, section 2.3).

Both are neural queues (`NeuralQueue`) that lack one operation. Nothing is ever pushed to the input buffer, which starts
with the whole input, and nothing is read from the output buffer before the last step. A buffer is therefore a
`StackState`, elements from front to back, and the functions here; it is not the memory of a controller.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .strength import StackState, pop_strengths, read_weights


def input_buffer(values: Tensor, mask: Tensor | None = None) -> StackState:
    """A buffer that holds a whole input, each item with strength 1.

    Args:
        values: the items I_0 [B, N, D], the front first.
        mask: [B, N] bool, False at padding, which gets strength 0: then it is not in the buffer.

    Returns:
        The buffer; its strengths are at least float32.
    """
    dtype = torch.promote_types(values.dtype, torch.float32)
    if mask is None:
        return StackState(values, values.new_ones(values.shape[:2], dtype=dtype))
    return StackState(values, mask.to(dtype))


def dequeue(buffer: StackState, pop_strength: Tensor) -> tuple[StackState, Tensor]:
    """Pop from the front, then read one element's worth from the front.

    Implements the equations for i_t and x_t in Hao et al. (2018), section 2.3.

    Args:
        buffer: values [B, N, D] and strengths [B, N], from front to back.
        pop_strength: i_{t-1} [B], in elements.

    Returns:
        The buffer after the pop, and the reading x_t [B, D]: zeros where the buffer is empty.
    """
    strengths = pop_strengths(buffer.strengths, pop_strength, "bottom")
    weights = read_weights(strengths, torch.ones_like(pop_strength), "bottom").to(buffer.values.dtype)
    return buffer._replace(strengths=strengths), torch.bmm(weights.unsqueeze(1), buffer.values).squeeze(1)


def read_off(buffer: StackState, length: int, delay: int = 0) -> Tensor:
    """The sequence in a buffer: read one element's worth, pop the same amount, and repeat.

    Position j is the reading of strength 1 after j pops of strength 1, which equal one pop of strength j.

    NOTE: Hao et al. (2018), section 2.3, pop before every read, even the first, so the first element's worth is never
        read: that is `delay=1`. By default nothing is lost.

    Args:
        buffer: values [B, N, D] and strengths [B, N], from front to back.
        length: number of positions to read, M.
        delay: strength to pop before the first read, in elements.

    Returns:
        [B, M, D]. Positions after the last element are zeros; a partly filled position holds a fraction of the element.
    """
    pops = delay + torch.arange(length, device=buffer.strengths.device, dtype=buffer.strengths.dtype)
    # Every position sees the whole buffer: [B, M, N].
    left = pop_strengths(buffer.strengths.unsqueeze(1), pops.expand(buffer.strengths.shape[0], -1), "bottom")
    weights = read_weights(left, torch.ones_like(left[..., 0]), "bottom")
    return torch.bmm(weights.to(buffer.values.dtype), buffer.values)
