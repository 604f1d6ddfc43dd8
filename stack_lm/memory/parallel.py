"""The neural stack as attention: its weights over all steps at once, from given strengths."""

from __future__ import annotations

import torch
from torch import Tensor


def stack_weights(
    push_strength: Tensor, pop_strength: Tensor, read_strength: Tensor, read_order: str = "after_push"
) -> Tensor:
    """Return the weight of each pushed vector in each reading of a stack that is empty at first.

    At step t the stack is the interval [0, top_t], and what step i pushed is [bottom_i, top_i], cut by all later pops.
    A weight is the length of its intersection with what step t reads. So `weights @ values` are the readings of
    `NeuralStack`, and its gradients too, except for ties. Time and memory are quadratic; layers run in blocks.

    Args:
        push_strength: [..., T], in elements, at least 0.
        pop_strength: likewise.
        read_strength: likewise.
        read_order: "after_push" or "before_push".

    Returns:
        Weights [..., T, T], of the vectors that the steps of the last dimension pushed.
    """
    step = torch.arange(push_strength.shape[-1], device=push_strength.device)
    later = step.unsqueeze(1) > step  # [t, i]
    # The height after the pop, if it could be negative.
    free = (push_strength - pop_strength).cumsum(-1) - push_strength
    bottom = free + torch.relu((-free).cummax(-1).values)
    top = bottom + push_strength
    cut = bottom.unsqueeze(-1).masked_fill(~later, torch.inf).cummin(-2).values  # by the lowest pop since then
    end = (top if read_order == "after_push" else bottom).unsqueeze(-1)
    above = torch.minimum(top.unsqueeze(-2), cut)
    below = torch.maximum(bottom.unsqueeze(-2), end - read_strength.unsqueeze(-1))
    seen = step.unsqueeze(1) >= step if read_order == "after_push" else later
    return torch.relu(above - below).masked_fill(~seen, 0)
