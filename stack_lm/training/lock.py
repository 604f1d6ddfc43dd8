"""A lock on a run's directory, which the system releases whenever and however its holder ends."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import InputError

LOCK_FILE = ".lock"


class RunLock:
    """A lock that keeps a second run out of a directory; `filelock` says on which file systems it holds.

    Args:
        directory: the directory of the run; it need not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE
        from filelock import FileLock  # takes a while, and commands that only read results come by here

        self._lock = FileLock(self.path, timeout=0, thread_local=False)

    @property
    def held(self) -> bool:
        """True if this object holds the lock."""
        return self._lock.is_locked

    def acquire(self) -> None:
        """Take the lock, unless this object holds it already; the directory must exist.

        Raises:
            InputError: if another run holds it.
            OSError: if the file cannot be written.
        """
        if not self.held:
            try:
                self._lock.acquire()
            except TimeoutError:  # filelock's own is one
                raise InputError(f"{self.path.parent} is in use by another run; two runs cannot share it") from None

    def release(self) -> None:
        """Release the lock, and remove its file."""
        if self.held:
            self.path.unlink(missing_ok=True)  # while the lock is held, so that no other run's file is removed
            self._lock.release(force=True)
