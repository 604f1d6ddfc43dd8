"""One step interface for all memories, dispatched at compile time on the type of their named tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.extending import overload

from .compilation import FAST

_MODULES: dict[type, Any] = {}
_OPTIONS: Any = {"jit_options": {"fastmath": FAST, "error_model": "numpy", "_nrt": False}, "strict": False}


def register(group: type, module: Any) -> None:
    """Register the module that runs the steps of memories in a named tuple."""
    _MODULES[group] = module


def _chosen(name: str) -> Callable[..., None]:
    """The function of that name in the module for a memory's named tuple; compiled code resolves it by Numba type."""

    def function(memory: Any, *arguments: Any) -> None:
        getattr(_MODULES[type(memory)], name)(memory, *arguments)

    @overload(function, **_OPTIONS)
    def _function(memory: Any, *arguments: Any) -> Callable[..., None]:
        chosen: Callable[..., None] = getattr(_MODULES[memory.instance_class], name).py_func
        return chosen

    return function


# See the modules of the kinds.
begin, step, skip, finish = (_chosen(name) for name in ("begin", "step", "skip", "finish"))
begin_backward, step_backward = (_chosen(name) for name in ("begin_backward", "step_backward"))
