"""Worker processes of a run: the environment that they begin with, and their end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any

from ..core.plugins import Imports


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables, for libraries and for processes started meanwhile; then restore them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Workers(ProcessPoolExecutor):
    """A pool of processes that end with their parent, however it ends, or at once by `end`.

    Ctrl-C is for their parent, which decides when they end.

    They are spawned: processes that are forked off would share the parent's threads and locks.

    Args:
        number: the number of processes.
        initializer: called in each process first.
        arguments: its arguments.
    """

    def __init__(self, number: int, initializer: Callable[..., None], *arguments: Any) -> None:
        stop, self._stop = connection.Pipe(duplex=False)
        super().__init__(number, get_context("spawn"), _begin, (Imports(), stop, initializer, arguments))

    def end(self) -> None:
        """End all processes, whatever they do."""
        self._stop.close()
        self.shutdown(wait=False, cancel_futures=True)


def _begin(_: Imports, stop: Connection, initializer: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None, "called in a worker process"
    threading.Thread(target=_wait_and_end, args=([parent.sentinel, stop],), daemon=True).start()
    initializer(*arguments)


def _wait_and_end(signs: list[Any]) -> None:
    connection.wait(signs)
    os._exit(1)
