"""Numba compilation of all kernels, and the folder that caches their code between processes.

With `NUMBA_DISABLE_JIT=1` nothing is compiled: every kernel runs as plain Python (see `python`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.extending import intrinsic

from . import python

IN_PYTHON = bool(vars(config)["DISABLE_JIT"])

# Contraction to fused multiply-adds is welcome; reassociation is not, since it would undo the rounding trick of `math`.
FAST = {"contract", "nsz"}


def compiled(function: Any = None, *, from_python: bool = False, any_order: bool = False) -> Any:
    """Decorator: compile a function with Numba when it is first called.

    Python's division rules would add a branch to every loop, so they are off. Numba's reference counting, which would
    update twice for every array view, is off too; kernels must therefore allocate nothing.

    Args:
        from_python: make it callable from Python, not only from compiled code; compilation takes a third longer.
        any_order: allow sums to be reordered, which LLVM needs to vectorise them.
    """
    if function is None:
        return lambda function: compiled(function, from_python=from_python, any_order=any_order)
    if IN_PYTHON:
        return python.entry(function) if from_python else function
    options: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "_nrt": False}
    options |= {"no_cpython_wrapper": not from_python, "no_cfunc_wrapper": True}
    # A function that is called and not inlined has two versions, optimised alone and with its caller. The first runs in
    # the process that compiles, the second in those that load the code; they may add in different orders.
    options |= {"fastmath": FAST | {"reassoc"}, "forceinline": True} if any_order else {"fastmath": FAST}
    before = vars(config)["CACHE_DIR"]  # made at run time, from the environment; read when a function is decorated
    vars(config)["CACHE_DIR"] = code_folder(before)
    try:
        return njit(**options)(function)
    finally:
        vars(config)["CACHE_DIR"] = before


def lowered(typed: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: replace calls of a function in compiled code with LLVM instructions.

    Args:
        typed: as for `numba.extending.intrinsic`: Numba's context and the types of the arguments, to a signature and a
            function that builds the code.
    """
    return lambda function: function if IN_PYTHON else intrinsic(typed)


@cache
def code_folder(chosen: str) -> str:
    """The folder for compiled code: beside these sources if that is writable, or the user's choice.

    Numba checks only a function's own file for changes, but the scan inlines code from all kernel files here and the
    constants of `layout`. So the folder's name is a hash of their contents.

    Args:
        chosen: NUMBA_CACHE_DIR, or "".
    """
    here = Path(__file__).parent
    texts = [path.read_bytes() for path in (here.parent / "layout.py", *sorted(here.glob("*.py")))]
    kernels = [text for text in texts[1:] if b"from .compilation import" in text]  # the others run in Python alone
    digest = hashlib.sha256(b"\0".join([texts[0], *kernels])).hexdigest()[:16]
    base = Path(chosen) if chosen else here / "__pycache__"
    writable = chosen or os.access(base if base.exists() else base.parent, os.W_OK)
    return str(base / digest) if writable else chosen
