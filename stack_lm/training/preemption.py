"""Ending a run early when a queue asks for it, by SIGTERM or SIGUSR1: a checkpoint, and an exit status of its own.

And Ctrl-C, which the process that started others decides about.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

# EX_TEMPFAIL of sysexits.h: it did not work out this time; the same command again goes on.
STOPPED_STATUS = 75
_SIGNALS = ("SIGTERM", "SIGUSR1")


class Stopped(SystemExit):
    """The run was asked to end before it was done; `code` is the exit status, `STOPPED_STATUS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(STOPPED_STATUS)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class StopSignals:
    """While it is entered, the signals do not end the process.

    Args:
        at_once: raise `Stopped` when one comes, as before and after training; otherwise it is remembered.

    Attributes:
        received: the name of the first signal that came; None before it.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self.received: str | None = None
        self._at_once = at_once
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python takes no handlers
            for name in _SIGNALS:
                if hasattr(signal, name):  # Windows has no SIGUSR1
                    number = getattr(signal, name)
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def describe(self, step: int) -> str:
        """The line for a run that ends at a step, with its checkpoint saved."""
        by = self.received or "a signal to another process"
        return f"stopped by {by} at step {step:,}: the checkpoint is saved, and --resume goes on from it"

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number).name
        if self._at_once:
            raise Stopped(f"stopped by {self.received} outside of training; nothing is lost")


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C never reaches, not while they load either; one that comes meanwhile is not lost."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # the start of which lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which processes inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
