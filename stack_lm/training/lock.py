"""A lock on a run's directory, which the system releases whenever and however its holder ends."""

from __future__ import annotations

import errno
import json
import os
import socket
import weakref
from pathlib import Path

from ..console import print_note
from ..errors import InputError

LOCK_FILE = ".lock"


class RunLock:
    """A lock that keeps a second run out of a directory.

    It is a `flock` on a file that names its holder: pid and host. On NFS the server keeps it, so it also holds between
    hosts; with the mount options `nolock` or `local_lock` it holds only within each host. On a file system without
    locks, a note is printed. A forked process shares the lock, so start other processes with "spawn".

    Args:
        directory: the directory of the run; it need not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE
        self._close: weakref.finalize[..., RunLock] | None = None

    @property
    def held(self) -> bool:
        """True if this object holds the lock."""
        return self._close is not None

    def acquire(self) -> None:
        """Take the lock, unless this object holds it already; the directory must exist.

        Raises:
            InputError: if another run holds it.
            OSError: if the file cannot be written.
        """
        while self._close is None:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._lock(file)
                if self._is_there(file):  # otherwise its holder has removed it meanwhile, and it locks nothing
                    os.ftruncate(file, 0)
                    os.write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
                    self._close = weakref.finalize(self, os.close, file)
            finally:
                if self._close is None:
                    os.close(file)

    def release(self) -> None:
        """Release the lock, and remove its file."""
        if self._close is not None:
            self.path.unlink(missing_ok=True)  # while the lock is held, so that no other run's file is removed
            self._close()
            self._close = None

    def _lock(self, file: int) -> None:
        directory = self.path.parent
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{directory} is in use by {_holder(file)}; two runs cannot share it") from None
        except (OSError, ImportError) as error:  # Windows has no fcntl
            if isinstance(error, OSError) and error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            print_note(f"{directory}: its file system has no locks, so nothing would keep a second run out")

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(file))
        except FileNotFoundError:
            return False


def _holder(file: int) -> str:
    try:
        holder = json.loads(os.pread(file, 1000, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"  # which has not written its name yet
