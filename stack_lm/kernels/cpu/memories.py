"""One interface of a step for memories of every kind, chosen by the type of their named tuple when it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.extending import overload

from .compilation import FAST

_MODULES: dict[type, Any] = {}
_OPTIONS: Any = {"jit_options": {"fastmath": FAST, "error_model": "numpy"}, "strict": False}  # names, not annotations


def register(group: type, module: Any) -> None:
    """Have a module run the steps of memories in a named tuple."""
    _MODULES[group] = module


def begin(memory: Any, row: int, all_live: bool) -> None:
    """Take over a sequence's memory on entry. See the modules of the kinds, for this and the following."""
    raise AssertionError("compiled code only")


def step(memory: Any, t: int, row: int, own: Any, reading: Any) -> None:
    """One step of one sequence."""
    raise AssertionError("compiled code only")


def skip(memory: Any, t: int, row: int) -> None:
    """A step that one sequence does not take."""
    raise AssertionError("compiled code only")


def finish(memory: Any, row: int) -> None:
    """Hand a sequence's last memory over."""
    raise AssertionError("compiled code only")


def begin_backward(memory: Any, grad: Any, row: int) -> None:
    """Before the first step backwards of one sequence."""
    raise AssertionError("compiled code only")


def step_backward(memory: Any, grad: Any, t: int, row: int, own: Any, grad_reading: Any, grad_logits: Any) -> None:
    """Backwards through one step of one sequence."""
    raise AssertionError("compiled code only")


@overload(begin, **_OPTIONS)
def _begin(memory: Any, row: int, all_live: bool) -> Callable[..., None]:
    function = _MODULES[memory.instance_class].begin
    return lambda memory, row, all_live: function(memory, row, all_live)


@overload(step, **_OPTIONS)
def _step(memory: Any, t: int, row: int, own: Any, reading: Any) -> Callable[..., None]:
    function = _MODULES[memory.instance_class].step
    return lambda memory, t, row, own, reading: function(memory, t, row, own, reading)


@overload(skip, **_OPTIONS)
def _skip(memory: Any, t: int, row: int) -> Callable[..., None]:
    function = _MODULES[memory.instance_class].skip
    return lambda memory, t, row: function(memory, t, row)


@overload(finish, **_OPTIONS)
def _finish(memory: Any, row: int) -> Callable[..., None]:
    function = _MODULES[memory.instance_class].finish
    return lambda memory, row: function(memory, row)


@overload(begin_backward, **_OPTIONS)
def _begin_backward(memory: Any, grad: Any, row: int) -> Callable[..., None]:
    function = _MODULES[memory.instance_class].begin_backward
    return lambda memory, grad, row: function(memory, grad, row)


@overload(step_backward, **_OPTIONS)
def _step_backward(
    memory: Any, grad: Any, t: int, row: int, own: Any, grad_reading: Any, grad_logits: Any
) -> Callable[..., None]:
    function = _MODULES[memory.instance_class].step_backward
    return lambda memory, grad, t, row, own, grad_reading, grad_logits: function(
        memory, grad, t, row, own, grad_reading, grad_logits
    )
