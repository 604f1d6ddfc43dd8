"""The rows of a batch over threads: torch's own.

Compiled code holds no lock, so any threads would do. But torch's threads spin for some milliseconds after each
operation, each on its core, and other threads would have to wait. So the work goes to torch's own threads, through the
OpenMP library that torch has loaded. If none is found (Linux has one), and in a forked process, which has lost these
threads, all work stays in the calling thread.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

_REGION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_process = os.getpid()


@cache
def _openmp() -> Any:
    """The entry point of torch's OpenMP library that runs a function on all threads, or None."""
    maps = Path("/proc/self/maps")
    if not maps.exists() or not torch.backends.openmp.is_available():
        return None
    names = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if "omp" in line}
    paths = [Path(name) for name in names if Path(name).name.startswith(("libgomp", "libiomp", "libomp"))]
    # Others may have brought one of their own.
    of_torch = Path(torch.__file__).parents[1]
    for path in sorted(paths, key=lambda path: of_torch not in path.parents):
        function = getattr(ctypes.CDLL(str(path)), "GOMP_parallel", None)  # LLVM's and Intel's have it too
        if function is not None:
            function.argtypes, function.restype = (_REGION, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
            return function
    return None


def available() -> int:
    """The number of threads that can share work."""
    return torch.get_num_threads() if os.getpid() == _process and _openmp() is not None else 1


def number_of_parts(models: int, batch_size: int, worthwhile: int) -> int:
    """The number of threads that share the models, or the rows of one model's batch; at most `worthwhile`."""
    return max(1, min(available(), models if models > 1 else batch_size, worthwhile))


def run_parts(run: Callable[[int], Any], parts: int) -> list[Any]:
    """Call `run(0)` .. `run(parts - 1)`, each on its own thread if there are enough; returns their results.

    Raises:
        BaseException: the exception of the first call that failed.
    """
    if parts == 1:
        return [run(0)]
    results: list[Any] = [None] * parts
    errors: list[BaseException] = []
    numbers = itertools.count()

    def region(_: Any) -> None:
        for part in numbers:  # a thread may come to more than one, if the library gave fewer threads
            if part >= parts:
                return
            try:
                results[part] = run(part)
            except BaseException as error:  # not to be lost in a thread that is not Python's
                errors.append(error)

    _openmp()(_REGION(region), None, parts, 0)
    if errors:
        raise errors[0]
    return results
