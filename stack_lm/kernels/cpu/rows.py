"""Loops over the numbers of one row, forwards and backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compilation import compiled
from .math import exp, sigmoid, tanh

# No literals: Numba would compile a version for each.
TANH, SIGMOID, EXP, IDENTITY, RELU = np.int64(0), np.int64(1), np.int64(2), np.int64(3), np.int64(4)

# Each loop over a row is a separate function, so that LLVM vectorises all of them. A slice assignment would check for
# overlaps first.


@compiled
def copy(target: np.ndarray, source: np.ndarray) -> None:
    """Copy source to target."""
    for j in range(target.shape[0]):
        target[j] = source[j]


@compiled
def clear(target: np.ndarray) -> None:
    """Set target to 0."""
    for j in range(target.shape[0]):
        target[j] = 0


@compiled
def add(target: np.ndarray, source: np.ndarray) -> None:
    """Add source to target."""
    for j in range(target.shape[0]):
        target[j] += source[j]


@compiled
def add_product(target: np.ndarray, source: np.ndarray, factor: np.ndarray) -> None:
    """Add the elementwise product source * factor to target."""
    for j in range(target.shape[0]):
        target[j] += source[j] * factor[j]


@compiled
def add_multiple(target: np.ndarray, source: np.ndarray, factor: float) -> None:
    """Add source * factor, a scalar, to target."""
    for j in range(target.shape[0]):
        target[j] += source[j] * factor


@compiled
def add_two(target: np.ndarray, one: np.ndarray, factor: float, other: np.ndarray, other_factor: float) -> None:
    """Add one * factor + other * other_factor, with scalar factors, to target."""
    for j in range(target.shape[0]):
        target[j] += one[j] * factor + other[j] * other_factor


@compiled
def put_multiple(target: np.ndarray, source: np.ndarray, factor: Any) -> None:
    """Set target to source * factor, a scalar."""
    for j in range(target.shape[0]):
        target[j] = source[j] * factor


@compiled(any_order=True)
def dot(left: np.ndarray, right: np.ndarray) -> float:
    """The dot product of `left` with the first `len(left)` numbers of `right`."""
    total = left.dtype.type(0)
    for j in range(left.shape[0]):
        total += left[j] * right[j]
    return total


@compiled
def scale(target: np.ndarray, factor: np.ndarray) -> None:
    """Multiply target by factor."""
    for j in range(target.shape[0]):
        target[j] *= factor[j]


@compiled
def squash(values: np.ndarray, kind: int) -> None:
    """Apply tanh, sigmoid, exp or max(0, x) in place; IDENTITY changes nothing."""
    if kind == TANH:
        for j in range(values.shape[0]):
            values[j] = tanh(values[j])
    elif kind == EXP:
        for j in range(values.shape[0]):
            values[j] = exp(values[j])
    elif kind == SIGMOID:
        for j in range(values.shape[0]):
            values[j] = sigmoid(values[j])
    elif kind == RELU:
        for j in range(values.shape[0]):
            if values[j] < 0:  # NaN stays
                values[j] = 0


@compiled
def squash_backward(squashed: np.ndarray, kind: int, grad: np.ndarray, grad_sums: np.ndarray) -> None:
    """Backpropagate through `squash`, from its results."""
    one = grad.dtype.type(1)
    if kind == TANH:
        for j in range(squashed.shape[0]):
            grad_sums[j] = grad[j] * (one - squashed[j] * squashed[j])
    elif kind == EXP:
        for j in range(squashed.shape[0]):
            grad_sums[j] = grad[j] * squashed[j]
    elif kind == IDENTITY:
        copy(grad_sums, grad)
    elif kind == RELU:
        for j in range(squashed.shape[0]):
            grad_sums[j] = grad[j] if squashed[j] > 0 else 0
    else:
        for j in range(squashed.shape[0]):
            grad_sums[j] = grad[j] * squashed[j] * (one - squashed[j])
