"""The arguments of a model's call that its signature does not name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Any

from transformers.utils import TransformersKwargs

# transformers' own programs pass these to every model; a recurrent network has no use for them.
_WITHOUT_EFFECT = {*TransformersKwargs.__annotations__, "cache_position", "position_ids", "token_type_ids", "use_cache"}


def refuse_unknown(arguments: Mapping[str, Any], known: Iterable[str] = ()) -> None:
    """Find arguments that a call would ignore, such as the `label_smoothing` of another library's loss.

    Args:
        arguments: by name. None is no argument.
        known: names of those that are used.

    Raises:
        TypeError: naming the first that is not, and those that are.
    """
    known = list(known)
    for name, value in arguments.items():
        if value is not None and name not in known and name not in _WITHOUT_EFFECT:
            there = f"; beside those of its signature it has {', '.join(known)}" if known else ""
            raise TypeError(f"the model's call has no argument {name!r}, which is {shorten(repr(value), 40)}{there}")
