"""Kernels as plain Python, for debugging: their arrays raise for every index that compiled code must not use.

Compiled code does not check indices; Python wraps negative ones and truncates slices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


class Checked(np.ndarray):
    """An array that can be indexed only inside its bounds, and reshaped only without a copy."""

    def __getitem__(self, key: Any) -> Any:
        _check(self.shape, key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _check(self.shape, key)
        super().__setitem__(key, value)

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Reshape as NumPy does, but contiguous arrays alone.

        Raises:
            ValueError: for others, whose copy the kernels would write to in vain.
        """
        if not self.flags.c_contiguous:
            raise ValueError(f"only contiguous arrays are reshaped; got strides {self.strides} of shape {self.shape}")
        return super().reshape(*shape, **options)


def _check(shape: tuple[int, ...], key: Any) -> None:
    for size, part in zip(shape, key if isinstance(key, tuple) else (key,), strict=False):
        places = (part.start or 0, size if part.stop is None else part.stop) if isinstance(part, slice) else (part,)
        last = size if isinstance(part, slice) else size - 1
        if not all(0 <= place <= last for place in places):
            raise IndexError(f"index {part} is out of bounds for shape {shape}; got {key}")


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel with checked arrays, including those in named tuples; like compiled code it ignores overflow."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*(_checked(argument) for argument in arguments))

    return run


def _checked(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.view(Checked)
    if hasattr(argument, "_fields"):
        return type(argument)(*(_checked(part) for part in argument))
    return argument
