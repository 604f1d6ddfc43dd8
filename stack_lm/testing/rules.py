"""Checks: functions that fail with the name of the broken rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Check = Callable[..., None]


@contextmanager
def reproducible() -> Iterator[None]:
    """Draw the same numbers each time, without changing those of the program."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def rule(said: str, checks: list[Check]) -> Callable[[Check], Check]:
    """Decorator: add a check to a list, make it draw the same numbers each time, and name its rule when it fails.

    Args:
        said: the rule, as a sentence without its end.
        checks: the list.
    """

    def decorate(body: Check) -> Check:
        def check(*args: Any, **kwargs: Any) -> None:
            try:
                with reproducible():
                    body(*args, **kwargs)
            except Exception as error:  # any exception of third-party code
                raise AssertionError(f"broken rule: {said}.\n{type(error).__name__}: {error}") from error

        check.__name__ = check.__qualname__ = body.__name__
        check.__doc__ = body.__doc__
        checks.append(check)
        return check

    return decorate
