"""The auxiliary losses of a recogniser, on the members of its language (Butoi et al. 2025, section 3.3).

Heads over the outputs of all steps predict the continuations of each prefix. They exist only during training and are
not saved with the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.errors import InputError
from ...tasks import Task

HEADS = "auxiliary_heads"


def has_continuations(task: Task) -> bool:
    """Return True for a language to recognise that says which symbols may follow a prefix."""
    return task.kind == "classification" and type(task).continuations is not Task.continuations


def add_heads(model: Any, losses: Collection[str], task: Task) -> None:
    """Add a head to a model for each auxiliary loss.

    Args:
        model: a sequence classifier.
        losses: the names of the losses, fields of `AuxiliaryLosses`.
        task: the task whose symbols they predict.

    Raises:
        InputError: if the task does not say which symbols may follow a prefix.
    """
    if not losses:
        return
    if not has_continuations(task):
        raise InputError(f"training.auxiliary needs a language to recognise, such as flare/first; {task} is none")
    size, outputs = model.config.head_input_size, len(task.vocabulary)
    setattr(model, HEADS, nn.ModuleDict({name: nn.Linear(size, outputs) for name in losses}).to(model.dtype))


def auxiliary_loss(
    model: Any, inputs: Tensor, continuations: Tensor, weights: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """A model's logits of labels, and the weighted auxiliary losses: each a mean over the members of a batch.

    Args:
        model: a model with auxiliary heads.
        inputs: token ids [B, T], the first of which is `<s>`; its id is that of the end in outputs.
        continuations: the mask of the K symbols that may follow each prefix [B, T, K]; none at padding and in other
            strings.
        weights: the weights of the losses, by name.

    Returns:
        Logits [B, 1, 2], and a number.
    """
    states: list[Tensor] = []
    # Not `output_hidden_states`, which returns those of all layers: it makes networks without a memory much slower.
    hook = model.base_model.register_forward_hook(lambda *call: states.append(call[-1].last_hidden_state))
    try:
        label_logits = model(inputs, use_cache=False).logits
    finally:
        hook.remove()
    hidden, heads = model.dropout(states[0]), getattr(model, HEADS)
    counted = continuations.any(-1)
    share = counted.to(hidden.dtype) / (counted.sum(-1, keepdim=True) * counted[:, 0].sum()).clamp(min=1)
    losses = {}
    if "next_symbol" in weights:
        goes_on = F.pad(counted[:, 1:], (0, 1))
        symbols = torch.where(goes_on, inputs.roll(-1, 1), inputs[:, :1])
        logits = heads["next_symbol"](hidden)
        losses["next_symbol"] = F.cross_entropy(logits.flatten(0, 1), symbols.flatten(), reduction="none")
    if "next_symbols" in weights:
        logits = heads["next_symbols"](hidden)
        symbol_losses = F.binary_cross_entropy_with_logits(logits, continuations.to(logits.dtype), reduction="none")
        losses["next_symbols"] = symbol_losses.mean(-1).flatten()
    further = sum(weights[name] * (loss * share.flatten()).sum() for name, loss in losses.items())
    return label_logits.unsqueeze(1), torch.as_tensor(further)
