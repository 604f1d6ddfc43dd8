"""Parts of messages: suggestions for mistyped names and paths, and shortened texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import InputError


def counted(number: int, noun: str) -> str:
    """A number of things, such as "1 text" or "1,200 texts"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def did_you_mean(name: Any, names: Iterable[Any]) -> str:
    """The end of a message about an invalid name: "; did you mean 'stack'?", or "" if none is similar."""
    near = nearest(str(name), (str(known) for known in names))
    return f"; did you mean {near!r}?" if near else ""


def unknown_name(what: str, name: Any, names: Iterable[Any]) -> InputError:
    """The error for an invalid name, which lists all allowed names.

    Args:
        what: the named thing, such as an option.
        name: the name that was given.
        names: the allowed names.
    """
    allowed = list(map(str, names))
    return InputError(f"{what} must be one of {', '.join(allowed)}; got {name!r}{did_you_mean(name, allowed)}")


def check_name(what: str, name: Any, names: Iterable[Any]) -> None:
    """Reject a name that is not allowed.

    Raises:
        InputError: see `unknown_name`, whose arguments these are.
    """
    allowed = list(names)
    if name not in allowed:
        raise unknown_name(what, name, allowed)


def unknown_key(where: str, key: Any, keys: Iterable[Any], below: Iterable[str] = ()) -> InputError:
    """The error for a key that a configuration does not have.

    Args:
        where: the keys above it, such as "training.".
        key: the key that was given.
        keys: the keys that are allowed there.
        below: other places with a key of that name, such as "training.epochs".
    """
    allowed = list(map(str, keys))
    meant = next((f"; did you mean {name!r}?" for name in below), "") or did_you_mean(key, allowed)
    return InputError(f"unknown key {where + str(key)!r}; the keys here are {', '.join(allowed)}{meant}")


def similar_path(path: str | Path) -> str:
    """The end of a message about a missing path: the nearest name for the first part that is missing."""
    try:
        whole = Path(path).expanduser()
        missing = whole
        while not missing.parent.is_dir():
            missing = missing.parent
        if whole.exists():
            return ""
        hidden = missing.name.startswith(".")
        near = nearest(missing.name, (e.name for e in missing.parent.iterdir() if e.name.startswith(".") == hidden))
        if near is None:
            return ""
        similar = missing.with_name(near)
        intended = similar / whole.relative_to(missing)
        return f"; did you mean {intended if intended.exists() else similar}?"
    except (OSError, RuntimeError, ValueError):  # no home of that user, a name that is too long or has a NUL
        return ""


def shortened(text: Any, length: int) -> str:
    """A text on one line; a long one is cut at the end of a word, with "..."."""
    line = " ".join(str(text)[: 10 * length].split())
    if len(line) <= length:
        return line
    beginning = line[: length - 4]
    words = beginning.rpartition(" ")[0]
    return f"{words if len(words) > length // 2 else beginning} ..."


def first_line(error: Exception) -> str:
    """The first line of a library's error, or its kind if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def explaining(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of some kinds into an `InputError`: what went wrong, and the reason that they give, on one line."""
    try:
        yield
    except kinds as error:
        reason = str(error) if isinstance(error, InputError) else shortened(first_line(error), 300)
        raise InputError(f"{what}: {reason}") from error


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of some names, whatever their case; None if none is similar.

    For names such as "suzgun2019/dyck2" the last part is enough: "dyck2", or "dyck".
    """
    from difflib import get_close_matches  # where a message needs it

    names = list(names)
    by_lower = {} if "/" in name else {known.casefold().rpartition("/")[2]: known for known in reversed(names)}
    by_lower |= {known.casefold(): known for known in names}
    matches = get_close_matches(name[:200].casefold(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None
