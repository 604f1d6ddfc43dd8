"""A clock for work that is due again and again."""

from __future__ import annotations

import time


class Clock:
    """A clock that says when work is due.

    Args:
        interval: seconds from the start, and from each time, to the next.
    """

    def __init__(self, interval: float) -> None:
        self._interval, self._last = interval, time.monotonic()

    def due(self) -> bool:
        """True if the interval has passed; the next one then begins."""
        now = time.monotonic()
        if now - self._last < self._interval:
            return False
        self._last = now
        return True
