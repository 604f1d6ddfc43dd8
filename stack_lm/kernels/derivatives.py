"""Gradients written by hand, which cannot themselves be differentiated."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def first_derivative_only(what: str, instead: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for the `backward` of a `torch.autograd.Function`: raise under double differentiation.

    torch's `once_differentiable` treats the gradient as a constant if no incoming gradient requires grad, as at the end
    of a graph, and second derivatives are then silently wrong.

    Args:
        what: name of the operation, for the message.
        instead: the alternative, for the message.

    Raises:
        RuntimeError: from the decorated function, under `create_graph=True`.
    """

    def decorate(backward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(backward)
        def checked(*args: Any) -> Any:
            if torch.is_grad_enabled():  # in a backward pass, only if the gradient is to have a graph
                raise RuntimeError(f"{what} cannot be differentiated twice (create_graph=True): {instead}")
            return backward(*args)

        return checked

    return decorate
