"""Checks of the arguments of a model's call: unknown ones, labels, and whether the call needs logits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.utils import TransformersKwargs

from ..core.labels import IGNORED
from ..kernels.plain import forward_override
from ..memory.base import numbers_hidden
from .packing import OF_PACKED_ROWS, starts_again

# transformers' own programs pass these to every model; a recurrent network does not use them.
_WITHOUT_EFFECT = {
    *TransformersKwargs.__annotations__,
    *("cache_position", "position_ids", "token_type_ids", "use_cache"),
    *("tokenizer", "assistant_tokenizer"),  # of `generate`, for its stop strings
} - OF_PACKED_ROWS


def refuse_unknown(arguments: Mapping[str, Any], known: Iterable[str] = (), mask: Tensor | None = None) -> None:
    """Reject arguments that a call would ignore, such as the `label_smoothing` of another library's loss.

    Args:
        arguments: the arguments by name. None counts as absent.
        known: names of the supported arguments.
        mask: see `refuse_packed`.

    Raises:
        TypeError: naming the first unknown argument, and the known ones.
        ValueError: for arguments of packed rows, position_ids that start again in a row, and output_attentions=True if
            it is not known.
    """
    known = list(known)
    refuse_packed({name: value for name, value in arguments.items() if name not in known}, mask)
    if arguments.get("output_attentions") and "output_attentions" not in known:
        raise ValueError("these models do not return attention weights: output_attentions must be False")
    for name, value in arguments.items():
        if value is not None and name not in known and name not in _WITHOUT_EFFECT:
            others = f"; beside those of its signature it has {', '.join(known)}" if known else ""
            raise TypeError(f"the model's call has no argument {name!r}, which is {shorten(repr(value), 40)}{others}")


def refuse_packed(arguments: Mapping[str, Any], mask: Tensor | None) -> None:
    """Reject packed rows.

    Args:
        arguments: those of a call.
        mask: the mask of the call, zero at padding, whose positions are not told from those of packed texts of one
            token; or None.

    Raises:
        ValueError: for arguments of packed rows, and position_ids that start again in a row.
    """
    packed = any(arguments.get(name) is not None for name in OF_PACKED_ROWS)
    if packed or starts_again(arguments.get("position_ids"), mask):
        raise ValueError(
            "this batch packs several texts into one row, without padding, which this model does not take apart; give "
            "each text its own row, with an attention_mask"
        )


def token_mask(attention_mask: Tensor | None) -> Tensor | None:
    """The mask of the tokens [B, T], zero at padding, which a causal mask of token pairs has on its diagonal.

    Recurrent models are causal by themselves. Some trainers pass the pairs all the same.

    Args:
        attention_mask: [B, T], which is returned; or [B, T, T] or [B, 1, T, T], not zero where step i sees token j.

    Raises:
        ValueError: for a mask of pairs in which a token sees another than those before it that are not padding; on a
            CPU, because a GPU would wait for the check.
    """
    if attention_mask is None or attention_mask.dim() not in (3, 4):
        return attention_mask
    pairs = attention_mask.squeeze(1) if attention_mask.dim() == 4 else attention_mask
    if pairs.dim() != 3 or pairs.shape[1] != pairs.shape[2] or pairs.is_floating_point():
        raise ValueError(
            "attention_mask of pairs must be [B, T, T] or [B, 1, T, T], of bool or integers; "
            f"got {list(attention_mask.shape)}, {attention_mask.dtype}"
        )
    pairs = pairs.bool()
    real = pairs.diagonal(dim1=1, dim2=2)
    if pairs.device.type == "cpu" and not numbers_hidden():
        causal = real.unsqueeze(1).expand_as(pairs).tril()
        if not bool(torch.equal(pairs & real.unsqueeze(2), causal & real.unsqueeze(2))):
            raise ValueError("attention_mask of pairs must be causal: each token sees all before it but padding")
    return real


def check_ids(ids: Tensor, vocab_size: int) -> None:
    """Reject ids that are not in the vocabulary, in the memory of the CPU; a GPU would wait for the check.

    Raises:
        IndexError: with the first of them.
    """
    if ids.device.type == "cpu" and not numbers_hidden() and ids.numel():
        wrong = [bound for bound in map(int, torch.aminmax(ids)) if not 0 <= bound < vocab_size]
        if wrong:
            raise IndexError(f"input_ids must be in [0, {vocab_size}); got {wrong[0]}")


def whole_numbers(labels: Tensor, shape: torch.Size | None) -> Tensor:
    """Labels as int64.

    Args:
        labels: integers of any size.
        shape: the shape that they must have; None for any.

    Raises:
        ValueError: for other labels.
    """
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers; got {labels.dtype}")
    if shape is not None:
        check_shape(labels, shape, ", one for each token")
    return labels.long()


def check_shape(labels: Tensor, shape: torch.Size, note: str = "") -> None:
    """Reject labels of another shape; the note explains the shape in the message.

    Raises:
        ValueError: naming both shapes.
    """
    if labels.shape != shape:
        raise ValueError(f"labels must be {list(shape)}{note}; got {list(labels.shape)}")


def prepare_labels(
    labels: Tensor | None, attention_mask: Tensor | None, loss_arguments: dict[str, Any]
) -> tuple[Tensor | None, dict[str, Any]]:
    """Labels and arguments of a language model's loss, without those labels that a padded step would predict.

    The output of a padded step is zeros, which does not predict the next token, such as the first after left padding.
    A trainer's number of labels is reduced by the share of labels that go. transformers' Trainer counts all but those
    of the first column, in one batch or in the several of an update. With several, each reduces the number by its own
    share, which is exact if their shares are equal.

    Args:
        labels: [B, T]; the state at step t predicts label t + 1.
        attention_mask: [B, T] or longer, of which the last T columns count; zero at padding. Or as for `token_mask`.
        loss_arguments: `shift_labels` [B, T], in place of labels (the state at step t predicts label t), `ignore_index`
            and `num_items_in_batch`, if given.
    """
    arguments = dict(loss_arguments)
    shift = 1 if arguments.get("shift_labels") is None else 0
    given, attention_mask = labels if shift else arguments["shift_labels"], token_mask(attention_mask)
    if given is None or attention_mask is None:
        return labels, arguments
    ignored = arguments.get("ignore_index", IGNORED)
    padded = F.pad(attention_mask[:, -given.shape[1] :] == 0, (shift, 0), value=False)[:, : given.shape[1]]
    remaining = given.masked_fill(padded.to(given.device), ignored)
    if arguments.get("num_items_in_batch") is not None:
        counted, left = ((each[:, shift:] != ignored).sum() for each in (given, remaining))
        # If no label is left, the sum of losses is 0, and must not be divided by 0.
        share = torch.where((left == counted) | (left == 0), torch.ones((), device=left.device), left / counted)
        arguments["num_items_in_batch"] = arguments["num_items_in_batch"] * share
    return (remaining, arguments) if shift else (labels, arguments | {"shift_labels": remaining})


def is_plain_linear(module: nn.Module) -> bool:
    """True if calling a module only computes `linear(input, weight, bias)`.

    False for the replacements of adapters and quantisation, for modules with hooks (which also move offloaded weights),
    and for a forward method set on the instance.
    """
    return type(module) is nn.Linear and forward_override(module) is None


def why_logits(has_labels: bool, logits_to_keep: int | Tensor, own_loss: bool, head: nn.Module) -> str | None:
    """The reason why a call of a language model must compute its logits; None if the loss does not need them.

    Args:
        has_labels: whether there is a loss to compute.
        logits_to_keep: as of the model.
        own_loss: whether the model has its own loss function.
        head: the output layer.
    """
    if not has_labels:
        return "there are no labels to compute a loss from"
    if not isinstance(logits_to_keep, int) or logits_to_keep:
        return "logits_to_keep asks for logits"
    if own_loss:
        return "the model's loss_function, which is not transformers' own for language models, takes logits"
    if not is_plain_linear(head):
        return f"lm_head is not a plain nn.Linear without hooks; it is {type(head).__name__}"
    return None
