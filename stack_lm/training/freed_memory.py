"""Memory that a process frees and uses again."""

from __future__ import annotations

import ctypes
import sys

# From mallopt(3): the maximum number of mappings, and the free bytes at the heap's end that are returned.
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1


def keep_freed_memory() -> None:
    """Make the process keep freed memory, if it runs on glibc; elsewhere nothing changes.

    By default glibc returns large blocks to the system, which clears fresh pages for the next update. For networks of
    256 units and batches of 128 that is a third of the time, for a transformer of 384 and batches of 64 5 to 8%. The
    process keeps the maximum that it ever held.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        set_option(_M_MMAP_MAX, 0)
        set_option(_M_TRIM_THRESHOLD, 2**31 - 1)
