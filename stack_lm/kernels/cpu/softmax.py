"""Replace logits by the gradient of their cross-entropy, in compiled code that reads and writes each row once.

torch would make a pass over the logits for each of the bias, the softmax, its exponential, the labels and the sum for
the bias's gradient, plus conversions for bfloat16. Here the only intermediate is one row, which stays in the cache.

Logits are float32, float64, or bfloat16 as raw bits (uint16), since NumPy has no such type. bfloat16 is computed in
float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from .compilation import compiled, lowered
from .math import exp


def _reordered(builder: Any, bits: Any) -> Any:
    """Map the bits of floats to integers of the same order, or back: negative ones are reversed."""
    width = bits.type.width
    sign = builder.ashr(bits, ir.Constant(bits.type, width - 1))
    return builder.xor(bits, builder.lshr(sign, ir.Constant(bits.type, 1)))


def _reordered_bits(bits: Any) -> Any:
    """`_reordered` in Python."""
    return bits ^ ((bits >> (8 * bits.itemsize - 1)) & np.iinfo(bits.dtype).max)


def _order_type(typingctx: Any, number: Any) -> Any:
    result = types.int32 if number == types.float32 else types.int64

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _reordered(builder, builder.bitcast(arguments[0], context.get_value_type(result)))

    return result(number), codegen


@lowered(_order_type)
def _order(number: Any) -> Any:
    """An integer with the order of floats: LLVM vectorises the maximum of integers, not that of floats."""
    return _reordered_bits(number.view(f"i{number.itemsize}"))


def _of_order_type(typingctx: Any, order: Any) -> Any:
    result = types.float32 if order == types.int32 else types.float64

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(_reordered(builder, arguments[0]), context.get_value_type(result))

    return result(order), codegen


@lowered(_of_order_type)
def _of_order(order: Any) -> Any:
    """The float that `_order` maps to an integer."""
    return _reordered_bits(order).view(f"f{order.itemsize}")


def _load_type(typingctx: Any, stored: Any) -> Any:
    if stored != types.uint16:
        return stored(stored), lambda context, builder, signature, arguments: arguments[0]

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        shifted = builder.shl(builder.zext(arguments[0], word), ir.Constant(word, 16))
        return builder.bitcast(shifted, ir.FloatType())

    return types.float32(stored), codegen


@lowered(_load_type)
def _load(stored: Any) -> Any:
    """A logit as a float; bfloat16 is the upper half of float32's bits."""
    return (np.uint32(stored) << 16).view(np.float32) if stored.dtype == np.uint16 else stored


def _stored_type(typingctx: Any, number: Any, row: Any) -> Any:
    if row.dtype != types.uint16:
        return number(number, row), lambda context, builder, signature, arguments: arguments[0]

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        bits = builder.bitcast(arguments[0], word)
        odd = builder.and_(builder.lshr(bits, ir.Constant(word, 16)), ir.Constant(word, 1))
        rounded = builder.add(bits, builder.add(odd, ir.Constant(word, 0x7FFF)))
        is_nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        chosen = builder.select(is_nan, ir.Constant(word, 0x7FC00000), rounded)
        return builder.trunc(builder.lshr(chosen, ir.Constant(word, 16)), ir.IntType(16))

    return types.uint16(number, row), codegen


@lowered(_stored_type)
def _stored(number: Any, row: np.ndarray) -> Any:
    """A float in the row's format; to bfloat16 it rounds to nearest, ties to even, and NaN stays NaN."""
    if row.dtype != np.uint16:
        return number
    bits = number.view(np.uint32)
    return 0x7FC0 if np.isnan(number) else (bits + (bits >> 16 & 1) + 0x7FFF) >> 16


@compiled
def _add_bias(row: np.ndarray, bias: np.ndarray, numbers: np.ndarray) -> Any:
    """Set numbers to row + bias; returns the maximum."""
    largest = _order(_load(row[0]) + bias[0])
    for j in range(bias.shape[0]):
        number = _load(row[j]) + bias[j]
        numbers[j] = number
        order = _order(number)
        largest = order if order > largest else largest
    return _of_order(largest)


@compiled(any_order=True)
def _exponentials(numbers: np.ndarray, largest: float) -> Any:
    """Set numbers to exp(numbers - largest); returns their sum."""
    total = type(largest)(0)
    for j in range(numbers.shape[0]):
        e = exp(numbers[j] - largest)
        numbers[j] = e
        total += e
    return total


@compiled
def _scale(numbers: np.ndarray, factor: Any, row: np.ndarray, column_sums: np.ndarray) -> None:
    """Set row to numbers * factor, and add that to the sums."""
    for j in range(numbers.shape[0]):
        number = numbers[j] * factor
        column_sums[j] += number
        row[j] = _stored(number, row)


@compiled(from_python=True)
def cross_entropy_rows(
    logits: np.ndarray,
    bias: np.ndarray,
    labels: np.ndarray,
    with_gradient: bool,
    losses: np.ndarray,
    numbers: np.ndarray,
    grad_bias: np.ndarray,
) -> None:
    """Compute the loss of each row, and overwrite its logits with the gradient: softmax minus the one-hot label.

    Args:
        logits: [N, V], before the bias; columns after V are left alone.
        bias: [V].
        labels: [N], in [0, V).
        with_gradient: whether to compute it. Without, the logits stay as they are.
        losses: [N], to be filled.
        numbers: workspace for one row [V].
        grad_bias: [V], to which the rows' gradients are added.
    """
    for i in range(logits.shape[0]):
        label = labels[i]
        largest = _add_bias(logits[i], bias, numbers)
        at_label = numbers[label]
        total = _exponentials(numbers, largest)
        losses[i] = math.log(total) + (largest - at_label)
        if with_gradient:
            numbers[label] -= total
            _scale(numbers, type(total)(1) / total, logits[i], grad_bias)
