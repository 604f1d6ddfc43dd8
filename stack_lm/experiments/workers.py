"""Trials in worker processes, each with one thread; or in this process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import multiprocessing
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..atomic import atomic_directory
from ..errors import InputError
from ..plugins import Imports
from ..training.children import end_with_parent, environment
from ..training.preemption import without_interrupts
from ..training.threads import using_threads
from .config import TaskConfig
from .unfinished import StateFile

# A worker starts by importing the script, as multiprocessing requires.
_NO_START = (
    "a worker process could not start. A script that runs trials in several processes is imported by each of them: "
    'define its own tasks at its top level, and run the trials below `if __name__ == "__main__":`'
)
# From mallopt(3): the maximum number of mappings, and the free bytes at the heap's end that are returned.
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1
# Arguments: the number of a job, the fraction completed, and a description of its progress.
Progress = Callable[[int, float, str], None]


@dataclass(frozen=True)
class Job:
    """Trials of one configuration, to train at once.

    Attributes:
        configs: the configurations of the trials, which differ only in their seeds.
        directories: the directories of the trained models.
        file: the file of their state.
        device: for training.
    """

    configs: list[TaskConfig]
    directories: list[Path]
    file: StateFile
    device: str = "cpu"


def run_job(job: Job, report: Callable[[float, str], None]) -> list[dict[str, Any]]:
    """Run trials, from their state if there is one, and save their models.

    Raises:
        InputError: as `Trial` does, and if a model or a state cannot be written.
    """
    from .learning import train
    from .trial import Trial

    trials = [Trial(config, job.device) for config in job.configs]
    results = train(trials, report, job.file)
    for trial, directory in zip(trials, job.directories, strict=True):
        # A model without a result belongs to an interrupted trial, which is run again.
        with atomic_directory(directory, overwrite=True) as partial:
            trial.save(partial)
    return results


def run_jobs(jobs: Sequence[Job], workers: int, progress: Progress) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Run jobs and yield the number and the results of each as it ends.

    Args:
        jobs: the trials.
        workers: processes; with one the jobs run in this process.
        progress: called after each epoch of a job.

    Raises:
        InputError: of a trial, and if a worker cannot start or is killed.
    """
    if workers == 1:
        with _one_thread():
            for i, job in enumerate(jobs):
                yield i, run_job(job, functools.partial(progress, i))
        return
    context = multiprocessing.get_context("spawn")
    waiting = iter(enumerate(jobs))
    busy: dict[Connection, int] = {}
    started: set[Connection] = set()
    processes = []
    try:
        with environment(OMP_NUM_THREADS="1"), without_interrupts():
            for _ in range(min(workers, len(jobs))):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(Imports(), theirs), daemon=True)
                process.start()
                theirs.close()
                processes.append(process)
                _give(ours, waiting, busy)
        while busy:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                i = busy[connection]
                try:
                    kind, value = connection.recv()
                except (EOFError, OSError):
                    raise (_killed(jobs[i]) if connection in started else InputError(_NO_START)) from None
                if kind == "started":
                    started.add(connection)
                elif kind == "progress":
                    progress(i, *value)
                elif kind == "refused":
                    raise InputError(value)
                elif kind == "failed":
                    raise RuntimeError(f"a worker failed:\n{value}")
                else:
                    yield i, value
                    _give(connection, waiting, busy)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _give(connection: Connection, waiting: Iterator[tuple[int, Job]], busy: dict[Connection, int]) -> None:
    """Send a worker its next job, or None if there is none, which ends it."""
    i, job = next(waiting, (-1, None))
    try:
        connection.send(job)
    except OSError:
        if job is not None:
            raise _killed(job) from None
    busy.pop(connection, None)
    if job is not None:
        busy[connection] = i


def _killed(job: Job) -> InputError:
    return InputError(
        f"a worker process was killed, or ran out of memory, in a trial of {job.configs[0].task}; continue with "
        "--resume, perhaps with fewer --jobs"
    )


def _work(_: Imports, connection: Connection) -> None:
    """The main function of a worker."""
    end_with_parent()
    from ..console import quiet_libraries

    quiet_libraries()
    with contextlib.suppress(EOFError, KeyboardInterrupt), _one_thread():
        connection.send(("started", None))
        while (job := connection.recv()) is not None:
            message: tuple[str, Any]
            try:
                message = ("done", run_job(job, lambda *told: connection.send(("progress", told))))
            except InputError as error:
                message = ("refused", str(error))
            except Exception:
                message = ("failed", traceback.format_exc())
            connection.send(message)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: the networks here are too small for more. Keep freed memory: every update reuses it."""
    keep_freed_memory()
    with using_threads(1):
        yield


def keep_freed_memory() -> None:
    """Make the process keep freed memory, if it runs on glibc; elsewhere nothing changes.

    By default glibc returns large blocks to the system, which clears fresh pages for the next update. For networks of
    256 units and batches of 128 that is a third of the time. The process keeps the maximum that it ever held.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        set_option(_M_MMAP_MAX, 0)
        set_option(_M_TRIM_THRESHOLD, 2**31 - 1)
