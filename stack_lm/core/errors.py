"""The one error that means "your input is wrong", as opposed to a bug in this package."""

from __future__ import annotations

from collections.abc import Callable


class InputError(ValueError):
    """The user's file, option or data is wrong.

    The message is one sentence that names the thing, the received value and the allowed values. Commands print it as
    one line and exit with status 2; in Python it is a `ValueError`.
    """


class NoTree(InputError):
    """A sentence has an empty line in place of its tree: its parser has none, as for a sentence of unknown words."""


OnError = Callable[[InputError], None]


def fail(error: InputError) -> None:
    """Raise the error: the handler of readers that skip nothing.

    Raises:
        InputError: always.
    """
    raise error
