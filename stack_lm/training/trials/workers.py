"""Trials in worker processes, each with one thread; or in this process."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.atomic import atomic_directory
from ...core.errors import InputError
from ..children import Workers, environment
from ..freed_memory import keep_freed_memory
from ..threads import using_threads
from .config import TaskConfig
from .unfinished import StateFile

# A worker starts by importing the script, as multiprocessing requires.
_NO_START = (
    "a worker process could not start. A script that runs trials in several processes is imported by each of them: "
    'define its own tasks at its top level, and run the trials below `if __name__ == "__main__":`'
)
_KILLED = "a worker process was killed, or ran out of memory; continue with --resume, perhaps with fewer --jobs"
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
    reports = multiprocessing.get_context("spawn").SimpleQueue()
    pool = Workers(min(workers, len(jobs)), _start_worker, reports)
    started = False
    try:
        with environment(OMP_NUM_THREADS="1"):  # the first job starts the processes
            running = {pool.submit(_work, i, job): i for i, job in enumerate(jobs)}
        while running:
            done, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            while not reports.empty():
                started = True
                if report := reports.get():
                    progress(*report)
            for future in done:
                yield running.pop(future), future.result()
    except BrokenProcessPool:
        raise InputError(_KILLED if started else _NO_START) from None
    finally:
        pool.end()


_reports: Any


def _start_worker(reports: Any) -> None:
    global _reports
    from ...core.quiet import quiet_libraries

    _reports = reports
    quiet_libraries()
    reports.put(None)


def _work(i: int, job: Job) -> list[dict[str, Any]]:
    with _one_thread():
        return run_job(job, lambda share, text: _reports.put((i, share, text)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: the networks here are too small for more. Keep freed memory: every update reuses it."""
    keep_freed_memory()
    with using_threads(1):
        yield
