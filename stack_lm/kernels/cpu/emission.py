"""Controls in place, forwards and backwards: logits become a strength, or weights of operations."""

from __future__ import annotations

import numpy as np

from .compilation import compiled
from .math import exp, sigmoid

FIXED, SIGMOID, EXPECTED_VALUE = range(3)


@compiled
def _highest(logits: np.ndarray) -> int:
    """The index of the first highest logit, or of the first NaN."""
    place = 0
    for i in range(1, logits.shape[0]):
        if logits[place] != logits[place]:
            break
        if logits[i] > logits[place] or logits[i] != logits[i]:
            place = i
    return place


@compiled
def _softmax(logits: np.ndarray) -> None:
    highest = logits[_highest(logits)]
    total = type(highest)(0)
    for i in range(logits.shape[0]):
        logits[i] = exp(logits[i] - highest)
        total += logits[i]
    for i in range(logits.shape[0]):
        logits[i] /= total


@compiled
def strength(kind: int, fixed: float, logits: np.ndarray) -> float:
    """Emit a strength; the logits become its sigmoid or distribution in place."""
    if kind == FIXED:
        return fixed
    if kind == SIGMOID:
        logits[0] = sigmoid(logits[0])
        return logits[0]
    _softmax(logits)
    mean = type(fixed)(0)
    for i in range(logits.shape[0]):
        mean += i * logits[i]
    return mean


@compiled
def strength_backward(
    kind: int, emitted: np.ndarray, emitted_strength: float, grad: float, grad_logits: np.ndarray
) -> None:
    """Backpropagate through `strength`: `emitted` is what the logits became."""
    one = type(emitted_strength)(1)
    if kind == SIGMOID:
        grad_logits[0] = grad * emitted_strength * (one - emitted_strength)
    elif kind == EXPECTED_VALUE:
        for i in range(emitted.shape[0]):
            grad_logits[i] = grad * emitted[i] * (i - emitted_strength)


@compiled
def choose(logits: np.ndarray, noise: np.ndarray, temperature: float, hard: bool) -> None:
    """Turn logits into weights that sum to 1: softmax((logits + noise) / temperature), or one-hot at the highest.

    Args:
        noise: like the logits, or empty.
    """
    for i in range(noise.shape[0]):
        logits[i] += noise[i]
    if hard:
        chosen = _highest(logits)
        for i in range(logits.shape[0]):
            logits[i] = 1 if i == chosen else 0
        return
    for i in range(logits.shape[0]):
        logits[i] /= temperature
    _softmax(logits)


@compiled
def choose_backward(weights: np.ndarray, temperature: float, hard: bool, grad: np.ndarray) -> None:
    """Backpropagate through `choose`: `grad` is of the weights on entry, of the logits on return."""
    mean = type(temperature)(0)
    for i in range(weights.shape[0]):
        mean += weights[i] * grad[i]
    for i in range(weights.shape[0]):
        grad[i] = 0 if hard else weights[i] * (grad[i] - mean) / temperature
