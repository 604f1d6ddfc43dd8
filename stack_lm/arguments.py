"""Arguments of a model's call that are not in its signature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Any

from transformers.utils import TransformersKwargs

# transformers' own programs pass these to every model; a recurrent network does not use them.
_WITHOUT_EFFECT = {*TransformersKwargs.__annotations__, "cache_position", "position_ids", "token_type_ids", "use_cache"}


def refuse_unknown(arguments: Mapping[str, Any], known: Iterable[str] = ()) -> None:
    """Reject arguments that a call would ignore, such as the `label_smoothing` of another library's loss.

    Args:
        arguments: by name. None counts as absent.
        known: names of the supported arguments.

    Raises:
        TypeError: naming the first unknown argument, and the known ones.
    """
    known = list(known)
    for name, value in arguments.items():
        if value is not None and name not in known and name not in _WITHOUT_EFFECT:
            there = f"; beside those of its signature it has {', '.join(known)}" if known else ""
            raise TypeError(f"the model's call has no argument {name!r}, which is {shorten(repr(value), 40)}{there}")
