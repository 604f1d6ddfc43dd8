"""The emission of a memory's actions from the logits of its controls on a GPU, forwards and backwards."""

import triton
import triton.language as tl

from .pointwise import sigmoid, tanh


@triton.jit
def _logit(logits, bias, at, DTYPE: tl.constexpr):
    """One logit of a control."""
    return tl.load(logits + at).to(DTYPE) + tl.load(bias + at).to(DTYPE)


@triton.jit
def _logits(logits, bias, first, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    """The logits of one control, -inf behind the last, and their numbers."""
    i = tl.arange(0, BLOCK)
    own = tl.load(logits + first + i, mask=i < WIDTH, other=0.0).to(DTYPE)
    own += tl.load(bias + first + i, mask=i < WIDTH, other=0.0).to(DTYPE)
    return tl.where(i < WIDTH, own, float("-inf")), i


@triton.jit
def _distribution(logits):
    """softmax; NaN where a logit is."""
    weights = tl.exp(logits - tl.max(tl.where(logits == logits, logits, float("-inf")), axis=0))
    return weights / tl.sum(weights, axis=0)


@triton.jit
def emit(logits, bias, first, WIDTH: tl.constexpr, FIXED: tl.constexpr, DTYPE: tl.constexpr):
    """A strength from WIDTH logits: 0 is a fixed number, 1 a sigmoid, more an expected value."""
    if WIDTH == 0:
        return tl.full((), FIXED, DTYPE)
    elif WIDTH == 1:
        return sigmoid(_logit(logits, bias, first, DTYPE))
    else:
        # Loops run until a strength is used up, and threads wait for each other in them, so all need it to the last
        # bit. Each computes the whole sum: in a shared one, each may fuse its own product and round differently. About
        # once in a million sentences, a thread then waited forever.
        highest = tl.full((), float("-inf"), DTYPE)
        for i in range(WIDTH):
            highest = tl.maximum(highest, _logit(logits, bias, first + i, DTYPE))
        weights, strength = tl.zeros((), DTYPE), tl.zeros((), DTYPE)
        for i in range(WIDTH):
            weight = tl.exp(_logit(logits, bias, first + i, DTYPE) - highest)
            weights += weight
            strength += weight * i
        return strength / weights


@triton.jit
def undo_emit(
    logits, bias, first, strength, grad, grad_logits, WIDTH: tl.constexpr, FIXED: tl.constexpr, DTYPE: tl.constexpr
):
    """Backpropagate through `emit`."""
    if WIDTH == 1:
        tl.store(grad_logits + first, grad * strength * (1 - strength))
    elif WIDTH > 1:
        BLOCK: tl.constexpr = triton.next_power_of_2(WIDTH)
        own, i = _logits(logits, bias, first, WIDTH, BLOCK, DTYPE)
        tl.store(grad_logits + first + i, grad * _distribution(own) * (i.to(DTYPE) - strength), mask=i < WIDTH)


@triton.jit
def pushed_value(logits, bias, first, cols, D, TANH: tl.constexpr, DTYPE: tl.constexpr):
    """The vector to push."""
    own = tl.load(logits + first + cols, mask=cols < D, other=0.0).to(DTYPE)
    own += tl.load(bias + first + cols, mask=cols < D, other=0.0).to(DTYPE)
    return tanh(own) if TANH else sigmoid(own)


@triton.jit
def undo_value(value, first, grad_value, grad_logits, cols, D: tl.constexpr, TANH: tl.constexpr):
    """Backpropagate through `pushed_value`, from its result."""
    value = tl.load(value + cols, mask=cols < D, other=0.0)
    grad = tl.load(grad_value + cols, mask=cols < D, other=0.0)
    slope = 1 - value * value if TANH else value * (1 - value)
    tl.store(grad_logits + first + cols, grad * slope, mask=cols < D)
