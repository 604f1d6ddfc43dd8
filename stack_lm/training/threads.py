"""The number of threads that a run trains with: fixed by its configuration, so that one seed means one result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from accelerate import PartialState

# Under "auto". Batches of these networks are too small to share among more.
MOST_THREADS = 8


def choose_threads(setting: int | Literal["auto"], device: torch.device, recorded: int | None = None) -> int:
    """The number of threads of a run. It does not depend on the load of the machine.

    Args:
        setting: the number, or "auto": that of the checkpoint or, in a new run, torch's own up to `MOST_THREADS`.
        device: the device of the model. On a GPU and with several processes torch's own number stays.
        recorded: the number in the checkpoint of a resumed run, if any.
    """
    available = torch.get_num_threads()
    if device.type != "cpu" or PartialState().num_processes > 1:
        return available
    return (recorded or min(available, MOST_THREADS)) if setting == "auto" else setting


@contextmanager
def using_threads(number: int) -> Iterator[None]:
    """Context manager: let torch use a number of threads, and restore its own at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
