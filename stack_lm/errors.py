"""The one error that means "what you gave is wrong", as opposed to a defect of this package."""

from __future__ import annotations

from collections.abc import Callable


class InputError(ValueError):
    """The user's file, option or data is wrong.

    The message is one sentence that names the thing, the value received and what is allowed. Commands print it as
    one line and exit with status 2; in Python it is a `ValueError`.
    """


OnError = Callable[[InputError], None]


def fail(error: InputError) -> None:
    """Raise the error: the handler of readers that leave nothing out.

    Raises:
        InputError: always.
    """
    raise error
