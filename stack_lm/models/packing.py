"""Packed rows in models: the arguments that mark the borders of texts, and calls that keep the texts apart."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from ..memory.base import numbers_hidden
from ..nn.packing import Texts, starts_of

# Cumulative lengths, by the names of flash-linear-attention and of transformers' collator; the latter come in pairs.
_LENGTHS = ("cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k")


class PackedRows(TypedDict, total=False):
    """Arguments that mark the borders of texts within a row; `position_ids` do too, if they start again."""

    cu_seqlens: Tensor | list[int] | None
    cu_seq_lens_q: Tensor | list[int] | None
    cu_seq_lens_k: Tensor | list[int] | None
    max_length_q: int | None
    max_length_k: int | None
    seq_idx: Tensor | None


OF_PACKED_ROWS = frozenset(PackedRows.__annotations__)


def starts_of_texts(
    arguments: Mapping[str, Any], mask: Tensor | None, shape: tuple[int, int], device: torch.device
) -> Tensor | None:
    """Find where the texts of packed rows begin [B, T], bool; None if the rows are not packed.

    Args:
        arguments: those of a model's call, of which `cu_seqlens` (or `cu_seq_lens_q` and `_k`), `seq_idx` [B, T] and
            `position_ids` [B, T] that start again at 0, as `DataCollatorWithFlattening` of transformers writes them,
            mark borders.
        mask: the mask of the call [B, T], zero at padding; or None.
        shape: (B, T).
        device: the device of the result.

    Raises:
        ValueError: for borders that do not fit the rows or one another.
    """
    found: dict[str, Tensor] = {}
    for name in _LENGTHS:
        if arguments.get(name) is not None:
            found[name] = starts_of(arguments[name], shape, device, name)
    numbers: Tensor | None = arguments.get("seq_idx")
    positions: Any = arguments.get("position_ids")
    if numbers is not None:
        if tuple(numbers.shape) != shape:
            raise ValueError(f"seq_idx must be {list(shape)}; got {list(numbers.shape)}")
        found["seq_idx"] = torch.cat((torch.ones_like(numbers[:, :1]), torch.diff(numbers, dim=1)), dim=1) != 0
    if positions is not None and starts_again(positions, mask):
        if tuple(positions.shape) != shape:
            raise ValueError(f"position_ids must be {list(shape)}; got {list(positions.shape)}")
        wrong = (positions[:, 1:] != 0) & (positions[:, 1:] != positions[:, :-1] + 1)
        if bool(wrong.any()):
            row, step = wrong.nonzero()[0].tolist()
            before, after = positions[row, step : step + 2].tolist()
            raise ValueError(
                "position_ids of packed rows must rise by one and start again at 0; "
                f"got {after} after {before} in row {row}"
            )
        found["position_ids"] = positions == 0
    marked = {name: starts.to(device) for name, starts in found.items()}
    first = next(iter(marked), None)
    for name, starts in marked.items():
        if not torch.equal(starts, marked[str(first)]):
            raise ValueError(f"{first} and {name} mark different borders")
    return marked.get(str(first))


def starts_again(positions: Any, mask: Tensor | None) -> bool:
    """True if positions [B, T] rise from 0 and start again, as those of packed texts do.

    Args:
        positions: anything.
        mask: the mask of the call, zero at padding; or None. Some programs give 0 to all padding on the left, so with
            padding only positions that fall start again. Without, a second 0 does.
    """
    if not isinstance(positions, Tensor) or positions.dim() != 2 or positions.shape[1] < 2:
        return False
    if numbers_hidden() or positions.device.type == "meta":
        return False
    later = positions[:, 1:]
    has_padding = mask is not None and not bool((mask != 0).all())
    again = later < positions[:, :-1] if has_padding else later == 0
    return bool((again.any(dim=1) & (positions[:, 0] == 0)).any())


def inside_texts(
    arguments: Mapping[str, Any], mask: Tensor | None, shape: tuple[int, int], device: torch.device
) -> Tensor | None:
    """The mask of a call [B, T], zero also at the last token of each text, which predicts nothing of the next one.

    Args, Raises: as of `starts_of_texts`.
    """
    starts = starts_of_texts(arguments, mask, shape, device)
    if starts is None:
        return mask
    inside = torch.cat((~starts[:, 1:], torch.ones_like(starts[:, :1])), dim=1)
    return inside.long() if mask is None else inside.to(mask.device) * mask


def keep_apart(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Let a model's forward take packed rows: each text is a row of the batch that it sees.

    A model whose `takes_texts` is True gets the rows as they are, and the `Texts` in them as the argument `texts`.
    """

    @functools.wraps(forward)
    def wrapped(
        self: Any, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        positions = kwargs.get("position_ids")
        packed = positions is not None and starts_again(positions, attention_mask)
        if not packed and all(kwargs.get(name) is None for name in OF_PACKED_ROWS):
            return forward(self, input_ids, attention_mask, *args, **kwargs)
        embeds: Tensor | None = kwargs.pop("inputs_embeds", None)
        values = embeds if input_ids is None else input_ids
        if args or values is None:
            raise ValueError("packed rows need input_ids or inputs_embeds, and the other arguments by name")
        shape = (values.shape[0], values.shape[1])
        starts = starts_of_texts(kwargs, attention_mask, shape, values.device)
        if starts is None:
            raise ValueError("max_length_q and max_length_k do not say where texts begin: give cu_seq_lens_q")
        if kwargs.get("cache") is not None or kwargs.get("output_attentions"):
            raise ValueError("texts of a packed row begin afresh and are of different lengths: no cache, no attentions")
        if attention_mask is not None and attention_mask.shape != shape:
            raise ValueError(f"attention_mask of packed rows must be {list(shape)}; got {list(attention_mask.shape)}")
        texts = Texts.from_starts(starts, longest_first=True)
        own = {name: value for name, value in kwargs.items() if name not in OF_PACKED_ROWS}
        own |= {"use_cache": False, "position_ids": None}
        if self.takes_texts:
            return forward(self, input_ids, attention_mask, inputs_embeds=embeds, texts=texts, **own)
        if embeds is not None:
            own["inputs_embeds"] = texts.apart(embeds)
        ids = None if input_ids is None else texts.apart(input_ids)
        outputs = forward(self, ids, texts.mask_with(attention_mask).long(), **own)
        return pytree.tree_map(texts.together, outputs)

    return wrapped
