"""Timing in one process, alternating between runs, so that temporary slowdowns of the machine affect all runs alike.

On a CPU with one thread the clock is the process's own, so that other processes' time is not counted.
"""

from __future__ import annotations

import gc
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

_MEBIBYTE = 2**20


class Timing(NamedTuple):
    """Times over several rounds.

    Attributes:
        median, minimum: in seconds.
        rounds: number of timed rounds.
    """

    median: float
    minimum: float
    rounds: int


def clock(device: torch.device) -> Callable[[], float]:
    """Return the clock to use, in seconds."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


def alternate(
    runs: Mapping[Key, Callable[[], Any]],
    *,
    seconds: float,
    device: torch.device,
    min_rounds: int = 3,
    max_rounds: int = 200,
) -> dict[Key, Timing]:
    """Time each run once per round, in turn, until the time limit.

    The first round, which compiles code and allocates memory, does not count. Each round starts with a different run,
    so that no run always follows the same one. On a GPU a run ends when its kernels do.

    Args:
        runs: the functions to time, by name.
        seconds: time limit, once there are `min_rounds`.
        device: of the runs.
        min_rounds, max_rounds: minimum and maximum number of rounds.
    """
    names = list(runs)
    taken: dict[Key, list[float]] = {name: [] for name in names}
    now, collecting = clock(device), gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for name in names:
            runs[name]()
        synchronize(device)
        start = time.perf_counter()
        for i in range(max_rounds):
            if i >= min_rounds and time.perf_counter() - start > seconds:
                break
            first = i % len(names)
            for name in names[first:] + names[:first]:
                before = now()
                runs[name]()
                synchronize(device)
                taken[name].append(now() - before)
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(statistics.median(times), min(times), len(times)) for name, times in taken.items()}


def synchronize(device: torch.device) -> None:
    """Wait for a device; the CPU never lags behind."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(run: Callable[[], Any], device: torch.device) -> float | None:
    """Peak memory of a run above the memory held before it, in MiB.

    On a GPU, memory allocated by torch; on a CPU, resident pages of the whole process, from Linux's high-water mark.
    Memory freed by an earlier run may still be resident and be reused, so measure in a fresh process.

    Returns:
        None if unknown: on a CPU without Linux.
    """
    gc.collect()
    if device.type == "cuda":
        synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / _MEBIBYTE
    mark = Path("/proc/self/clear_refs")
    if not mark.exists():
        return None
    mark.write_text("5")  # sets the high-water mark back to what is resident now (man 5 proc)
    before_kib = _status("VmHWM")
    run()
    return (_status("VmHWM") - before_kib) * 1024 / _MEBIBYTE


def _status(field: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field + ":")]
    return int(line.split()[1])


def in_fresh_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Run a function in a new process. The function must be importable."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def environment(device: torch.device) -> dict[str, Any]:
    """The machine and versions of a measurement."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        processor = models[0] if models else processor
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }
