"""Exponentials that LLVM vectorises, in float32 and float64, to a unit or two in the last place.

NaN stays NaN: comparisons are written so that it is never replaced by a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import overload

from .compilation import FAST, compiled, lowered

# exp(x) = 2^n exp(r) with |r| <= ln(2) / 2. The Taylor series of exp(r) - 1 is then exact to rounding after this many
# terms.
_TERMS = {"float32": 7, "float64": 13}
# Adding and subtracting 1.5 * 2^(mantissa bits) rounds to a whole number, whose bits then are the sum's lowest.
_ROUND = {"float32": 1.5 * 2.0**23, "float64": 1.5 * 2.0**52}
_BIAS_SHIFT = {"float32": (127, 23), "float64": (1023, 52)}
# Where 2^n is a normal number.
_LIMITS = {"float32": (-87.0, 88.0), "float64": (-708.0, 709.0)}
# ln(2) in two parts, of which the first has zeros at its end, so that n times it is exact.
_LN2_HIGH = {"float32": float(np.float32(0.693359375)), "float64": float.fromhex("0x1.62e42fefa0000p-1")}
_LN2_LOW = {name: float(np.longdouble("0.693147180559945309417232121458") - high) for name, high in _LN2_HIGH.items()}


def _power_of_two_type(typingctx: Any, rounded: Any) -> Any:
    name = str(rounded)
    bias, shift = _BIAS_SHIFT[name]

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width = ir.IntType(32 if name == "float32" else 64)
        bits = builder.bitcast(arguments[0], width)
        exponent = builder.shl(builder.add(bits, ir.Constant(width, bias)), ir.Constant(width, shift))
        return builder.bitcast(exponent, arguments[0].type)

    return rounded(rounded), codegen


@lowered(_power_of_two_type)
def _power_of_two(rounded: Any) -> Any:
    """2^n, where `rounded` is n plus the rounding constant."""
    (bias, shift), real = _BIAS_SHIFT[rounded.dtype.name], rounded.dtype
    return ((rounded.view(f"i{real.itemsize}") + bias) << shift).view(real)


def _expm1_parts(x: Any) -> Any:
    """2^n and exp(r) - 1, with exp(x) = 2^n exp(r)."""
    return _expm1_parts_of(x.dtype.name)(x)


@overload(_expm1_parts, jit_options={"fastmath": FAST, "error_model": "numpy"})
def _expm1_parts_overload(x: Any) -> Callable[[Any], Any]:
    return _expm1_parts_of(str(x))


@cache
def _expm1_parts_of(name: str) -> Callable[[Any], Any]:
    real: Any = np.float32 if name == "float32" else np.float64
    low, high = (real(limit) for limit in _LIMITS[name])
    to_base_two, constant = real(1 / math.log(2)), real(_ROUND[name])
    ln2_high, ln2_low = real(_LN2_HIGH[name]), real(_LN2_LOW[name])
    coefficients = tuple(real(1 / math.factorial(k)) for k in range(_TERMS[name], 0, -1))
    if name == "float32":
        c7, c6, c5, c4, c3, c2, c1 = coefficients

        def parts32(x: Any) -> Any:
            x = low if x < low else x
            x = high if x > high else x
            rounded = x * to_base_two + constant
            n = rounded - constant
            r = (x - n * ln2_high) - n * ln2_low
            series = ((((((c7 * r + c6) * r + c5) * r + c4) * r + c3) * r + c2) * r + c1) * r
            return _power_of_two(rounded), series

        return parts32
    d13, d12, d11, d10, d9, d8, d7, d6, d5, d4, d3, d2, d1 = coefficients

    def parts64(x: Any) -> Any:
        x = low if x < low else x
        x = high if x > high else x
        rounded = x * to_base_two + constant
        n = rounded - constant
        r = (x - n * ln2_high) - n * ln2_low
        top = (((((d13 * r + d12) * r + d11) * r + d10) * r + d9) * r + d8) * r + d7
        series = ((((((top * r + d6) * r + d5) * r + d4) * r + d3) * r + d2) * r + d1) * r
        return _power_of_two(rounded), series

    return parts64


@compiled
def exp(x: float) -> float:
    """exp(x), to a few units in the last place; it underflows and overflows where the exact value does.

    Computed as the square of exp(x / 2), which is in range for every x whose exp(x) is not 0 or infinity.
    """
    power, series = _expm1_parts(x * type(x)(0.5))
    root = power * series + power
    return root * root


@compiled
def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x))."""
    one = type(x)(1)
    return one / (one + exp(-x))


@compiled
def tanh(x: float) -> float:
    """tanh(x) = e / (e + 2) with e = exp(2 x) - 1, which keeps its precision near zero."""
    power, series = _expm1_parts(x + x)
    one = type(x)(1)
    e = power * series + (power - one)
    # For large x the fraction of two huge numbers is 1 as it should be; exp was kept finite above.
    return e / (e + (one + one))


def _field_type(bits: int, exponent: int) -> Callable[..., Any]:
    """The code for some bits of a float64, as the mantissa of a number with an exponent."""

    def typed(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            width = ir.IntType(64)
            found = builder.bitcast(arguments[0], width)
            if bits == _EXPONENT:
                found = builder.lshr(found, ir.Constant(width, 52))
            else:
                found = builder.and_(found, ir.Constant(width, bits))
            return builder.bitcast(builder.or_(found, ir.Constant(width, exponent << 52)), arguments[0].type)

        return x(x), codegen

    return typed


_EXPONENT, _MANTISSA = 0x7FF << 52, 2**52 - 1
_SQRT2, _LN2 = math.sqrt(2), math.log(2)
_C3, _C5, _C7, _C9, _C11, _C13, _C15, _C17, _C19, _C21 = (2 / n for n in range(3, 22, 2))


@lowered(_field_type(_EXPONENT, 0x433))
def _exponent(x: Any) -> Any:
    """2^52 plus the exponent of x > 0 plus 1023."""
    return ((x.view(np.int64) >> 52) | 0x433 << 52).view(np.float64)


@lowered(_field_type(_MANTISSA, 0x3FF))
def _mantissa(x: Any) -> Any:
    """The mantissa of x > 0, in [1, 2)."""
    return ((x.view(np.int64) & _MANTISSA) | 0x3FF << 52).view(np.float64)


@compiled
def log(x: float) -> float:
    """The natural logarithm of a positive normal number, in float64; undefined for other inputs."""
    mantissa, exponent = _mantissa(x), _exponent(x) - (2.0**52 + 1023.0)
    high = mantissa > _SQRT2
    mantissa = mantissa * 0.5 if high else mantissa
    exponent = exponent + 1.0 if high else exponent
    # log(m) = 2 artanh(s), |s| < 0.172
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    top = (((((_C21 * z + _C19) * z + _C17) * z + _C15) * z + _C13) * z + _C11) * z + _C9
    return exponent * _LN2 + s * ((((top * z + _C7) * z + _C5) * z + _C3) * z + 2.0)
