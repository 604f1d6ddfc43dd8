"""Arguments of a model's call that are not in its signature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Any

import torch
from transformers.utils import TransformersKwargs

# They mark the borders of texts within a row, across which these models would read on.
_OF_PACKED_ROWS = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"}
# transformers' own programs pass these to every model; a recurrent network does not use them.
_WITHOUT_EFFECT = {
    *TransformersKwargs.__annotations__,
    *("cache_position", "position_ids", "token_type_ids", "use_cache"),
    *("tokenizer", "assistant_tokenizer"),  # of `generate`, for its stop strings
} - _OF_PACKED_ROWS


def refuse_unknown(arguments: Mapping[str, Any], known: Iterable[str] = ()) -> None:
    """Reject arguments that a call would ignore, such as the `label_smoothing` of another library's loss.

    Args:
        arguments: the arguments by name. None counts as absent.
        known: names of the supported arguments.

    Raises:
        TypeError: naming the first unknown argument, and the known ones.
        ValueError: for arguments of packed rows, position_ids that start again in a row, and output_attentions=True.
    """
    known = list(known)
    packed = any(arguments.get(name) is not None for name in _OF_PACKED_ROWS)
    if packed or _starts_again(arguments.get("position_ids")):
        raise ValueError(
            "this batch packs several texts into one row, without padding, and the model would read on from one to the "
            "next; give each text its own row, with an attention_mask"
        )
    if arguments.get("output_attentions"):
        raise ValueError("these models do not return attention weights: output_attentions must be False")
    for name, value in arguments.items():
        if value is not None and name not in known and name not in _WITHOUT_EFFECT:
            there = f"; beside those of its signature it has {', '.join(known)}" if known else ""
            raise TypeError(f"the model's call has no argument {name!r}, which is {shorten(repr(value), 40)}{there}")


def _starts_again(positions: Any) -> bool:
    """True if positions [B, T] rise from 0 and start again, as those of packed texts do, but not those of padding."""
    if not isinstance(positions, torch.Tensor) or positions.dim() != 2 or positions.shape[1] < 2:
        return False
    if torch.compiler.is_compiling() or positions.device.type == "meta":
        return False
    falls = (positions[:, 1:] < positions[:, :-1]).any(dim=1)
    return bool((falls & (positions[:, 0] == 0)).any())
