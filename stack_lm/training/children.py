"""Processes that a run starts: the environment that they begin with, and their end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, parent_process


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


def end_with_parent() -> None:
    """From now on, end this process when its parent ends: a parent that is killed cannot end its workers."""
    parent = parent_process()
    assert parent is not None, "called in a worker process"
    threading.Thread(target=_wait_and_end, args=(parent.sentinel,), daemon=True).start()


def _wait_and_end(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
