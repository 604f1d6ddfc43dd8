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
        if not isinstance(numbers, Tensor) or numbers.is_floating_point() or tuple(numbers.shape) != shape:
            got = f"{numbers.dtype} {list(numbers.shape)}" if isinstance(numbers, Tensor) else type(numbers).__name__
            raise ValueError(f"seq_idx must be a tensor of integers {list(shape)}; got {got}")
        found["seq_idx"] = torch.cat((torch.ones_like(numbers[:, :1]), torch.diff(numbers, dim=1)), dim=1) != 0
    if not (found and numbers_hidden()) and starts_again(positions, mask):
        if tuple(positions.shape) != shape:
            raise ValueError(f"position_ids must be {list(shape)}; got {list(positions.shape)}")
        real, later = _real_tokens(positions, mask)
        before = positions.roll(1, dims=1).where(later, -1)
        wrong = real & (positions != 0) & (positions != before + 1) & (real.roll(1, dims=1) | ~later)
        if bool(wrong.any()):
            row, step = wrong.nonzero()[0].tolist()
            place = f"after {before[row, step]}" if later[row, step] else "first"
            raise ValueError(
                "position_ids of packed rows must rise by one and start again at 0; "
                f"got {positions[row, step]} {place} in row {row}"
            )
        found["position_ids"] = real & later & (positions == 0)
        found["position_ids"][:, 0] = True
    marked = {name: starts.to(device) for name, starts in found.items()}
    first = next(iter(marked), None)
    for name, starts in marked.items():
        if not torch.equal(starts, marked[str(first)]):
            raise ValueError(f"{first} and {name} mark different borders")
    return marked.get(str(first))


def starts_again(positions: Any, mask: Tensor | None) -> bool:
    """True if positions start again within a row, as those of packed texts do.

    Args:
        positions: None or integers [B, T]; others are of no packed rows.
        mask: the mask of the call, zero at padding, whose positions do not count; or None.

    Raises:
        ValueError: for positions that are no tensor of integers.
        RuntimeError: from compiled code, which cannot take texts apart: there the first call with such positions fails.
    """
    if positions is None:
        return False
    if not isinstance(positions, Tensor) or positions.is_floating_point() or positions.dtype == torch.bool:
        got = getattr(positions, "dtype", type(positions))
        raise ValueError(f"position_ids must be a tensor of integers; got {got}")
    if positions.dim() != 2 or positions.shape[1] < 2 or positions.device.type == "meta":
        return False
    compiling = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    if numbers_hidden() and not compiling:
        return False
    real, later = _real_tokens(positions, mask)
    again = (real & later & (positions == 0)).any()
    if compiling:
        torch._assert_async(~again, "compiled models do not see that position_ids start again: give cu_seq_lens_q too")
        return False
    return bool(again)


def _real_tokens(positions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Which tokens are no padding [B, T], and which come after one that is none [B, T]."""
    if mask is not None and mask.dim() > 2:  # of pairs of tokens
        mask = mask.diagonal(dim1=-2, dim2=-1).flatten(0, -2)
    real = torch.ones_like(positions) if mask is None else (mask[:, -positions.shape[1] :] != 0).to(positions)
    if real.shape != positions.shape:  # the model refuses it
        real = torch.ones_like(positions)
    return real.bool(), real.cumsum(1) > real


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


def refuse_additive(mask: Tensor | None) -> None:
    """Reject an additive mask, whose zeros would count as padding.

    Raises:
        ValueError: naming its type.
    """
    if mask is not None and mask.is_floating_point():
        raise ValueError(f"attention_mask must be of bool or integers, zero at padding; got {mask.dtype}")


def keep_apart(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Let a model's forward take packed rows: each text is a row of the batch that it sees.

    A model whose `takes_texts` is True gets the rows as they are, and the `Texts` in them as the argument `texts`.
    """

    @functools.wraps(forward)
    def wrapped(
        self: Any, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        marked = any(kwargs.get(name) is not None for name in OF_PACKED_ROWS)
        if not marked and not starts_again(kwargs.get("position_ids"), attention_mask):
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
        refuse_additive(attention_mask)
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
