"""A check that a table fits in memory before it is allocated: otherwise the process is killed without a message."""

from __future__ import annotations

import os

import torch

from ..core.errors import InputError

_GIB = 2**30


def check_room(size: int, device: torch.device | None, what: str, advice: str) -> None:
    """Reject an allocation that needs more memory than is available.

    Args:
        size: the size of the allocation, in bytes.
        device: its device; None is the CPU.
        what: a description of what needs it, for the message.
        advice: ways to need less, for the message.

    Raises:
        InputError: with the size and the available memory.
    """
    if size < _GIB:  # the query takes time
        return
    there = memory_of(device)
    if there is not None and size > there:
        raise InputError(f"{what} needs {size / _GIB:,.1f} GiB; {there / _GIB:,.1f} GiB are available: {advice}")


def memory_of(device: torch.device | None) -> int | None:
    """The bytes of memory of a device; None if unknown."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    names = getattr(os, "sysconf_names", {})
    if (device is None or device.type == "cpu") and "SC_PHYS_PAGES" in names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
