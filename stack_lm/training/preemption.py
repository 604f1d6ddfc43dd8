"""Early ends of a run, on SIGTERM or SIGUSR1 from a queue: a checkpoint, and a distinct exit status.

Ctrl-C is handled by the process that started the others.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

# EX_TEMPFAIL of sysexits.h: a temporary failure; the same command continues the run.
STOPPED_STATUS = 75
_SIGNALS = ("SIGTERM", "SIGUSR1")


class Stopped(SystemExit):
    """The run was told to end before it was complete; `code` is the exit status, `STOPPED_STATUS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(STOPPED_STATUS)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class StopSignals:
    """Context manager: inside it, the signals do not end the process.

    Args:
        at_once: raise `Stopped` on a signal, as before and after training; otherwise only record it.

    Attributes:
        received: the name of the first signal; None before it.
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
        """The message of a run that ends at a step, with its checkpoint saved."""
        by = self.received or "a signal to another process"
        return f"stopped by {by} at step {step:,}: the checkpoint is saved, and --resume continues from it"

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number).name
        if self._at_once:
            raise Stopped(f"stopped by {self.received} outside of training; nothing is lost")
