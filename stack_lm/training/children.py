"""Worker processes of a run: the environment that they begin with, and their end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process, resource_tracker
from typing import Any

from ..core.plugins import Imports


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables, for libraries and for processes started meanwhile; then restore them."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


class Workers(ProcessPoolExecutor):
    """A pool of processes that end with their parent, however it ends, or at once by `end`.

    Ctrl-C is for their parent, which decides when they end: they never receive it, not even while they load.

    They are spawned: processes that are forked off would share the parent's threads and locks.

    Args:
        number: the number of processes.
        initializer: called in each process first.
        arguments: its arguments.
    """

    def __init__(self, number: int, initializer: Callable[..., None], *arguments: Any) -> None:
        super().__init__(number, get_context("spawn"), _begin, (Imports(), initializer, arguments))

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call, as in the base class, where the first ones start the processes."""
        with _without_interrupts():
            return super().submit(*args, **kwargs)

    def end(self) -> None:
        """End all processes, whatever they do: one that loads would miss what this process had prepared for it."""
        # `kill_workers` does this from Python 3.14 on.
        processes = list((self._processes or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let processes that start inherit a mask without Ctrl-C, which reaches this process afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # the start of which lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(_: Imports, initializer: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None, "called in a worker process"
    threading.Thread(target=_wait_and_end, args=(parent.sentinel,), daemon=True).start()
    initializer(*arguments)


def _wait_and_end(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
