"""The loss on validation text, over all processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.nn.functional import cross_entropy

from ..core.labels import IGNORED
from ..models.cache import CACHE_NAME
from ..models.kinds import body_and_head
from ..models.loss import linear_cross_entropy
from ..nn import actions_by_layer, memories
from ..scoring.batches import length_batches
from ..tasks.scores import evaluation_mode
from ..text.tokenization import Frame
from .batches import collate
from .carried import CarriedState
from .compact import TokenArray
from .continuous import Layout, collate_segments

_ROWS = 32  # of documents side by side
# Called with the actions of each batch of this process, by memory layer, and the mask of the tokens of its words,
# [B, T] bool.
Observer = Callable[[Sequence[Mapping[str, Tensor]], Tensor], None]


class Losses(NamedTuple):
    """Sums of losses in nats, and numbers of tokens.

    Attributes:
        nats, tokens: over all predicted tokens: the first only after a beginning token, with the end token.
        inner_nats, inner_tokens: over tokens with a token of the text before them, without the end: comparable with
            papers that have no beginning and end tokens, whether there are such tokens or not.
    """

    nats: float
    tokens: int
    inner_nats: float
    inner_tokens: int


@torch.no_grad()
def evaluate_loss(
    model: Any,
    sentences: Sequence[Sequence[int]],
    accelerator: Accelerator,
    frame: Frame = Frame([], []),  # noqa: B008
    observe: Observer | None = None,
    *,
    batch_tokens: int = 2048,
) -> Losses:
    """Losses of sentences, over all processes.

    Args:
        model: a language model, perhaps wrapped by Accelerate.
        sentences: token ids.
        accelerator: the accelerator, which has the processes and the device.
        frame: the special tokens around each sentence.
        observe: see `Observer`.
        batch_tokens: tokens in a batch, padding included.
    """
    with evaluating(model, accelerator) as inner:
        sums = _Sums(inner, accelerator, observe)
        own = sorted(sentences, key=len)[accelerator.process_index :: accelerator.num_processes]
        for batch in length_batches([len(ids) for ids in own], batch_tokens):
            ids, labels = collate([own[i] for i in batch], accelerator.device)
            words = labels != IGNORED
            words[:, : len(frame.begin)] = False
            for row, i in enumerate(batch):
                if frame.end and list(own[i][-len(frame.end) :]) == frame.end:  # otherwise it was truncated
                    words[row, len(own[i]) - len(frame.end) :] = False
            targets = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
            sums.add(words, targets, words[:, 1:] & words[:, :-1], input_ids=ids)
    return sums.total()


@torch.no_grad()
def evaluate_continuous(
    model: Any,
    documents: TokenArray,
    accelerator: Accelerator,
    frame: Frame = Frame([], []),  # noqa: B008
    observe: Observer | None = None,
    *,
    sequence_length: int,
) -> Losses:
    """Evaluate the loss like `evaluate_loss`, on whole documents, with a carried state."""
    special = torch.tensor([*frame.begin, *frame.end], device=accelerator.device)
    with evaluating(model, accelerator) as inner:
        sums = _Sums(inner, accelerator, observe)
        layout = Layout(documents, _ROWS, sequence_length, cut=False)
        own = range(accelerator.process_index, _ROWS, accelerator.num_processes)
        carried = CarriedState(inner, len(own))
        for batch in layout.read(own, "validation"):
            inputs = collate_segments(batch, accelerator.device)
            ids, targets = inputs["input_ids"], inputs["shift_labels"]
            words = (targets != IGNORED) & ~torch.isin(ids, special)
            state = carried.next(inputs["reset_mask"])
            sums.add(words, targets, (words & ~torch.isin(targets, special)), input_ids=ids, **{CACHE_NAME: state})
    return sums.total()


class _Sums:
    """Losses of this process's batches, with inner ones separate."""

    def __init__(self, model: Any, accelerator: Accelerator, observe: Observer | None) -> None:
        self._model, self._accelerator, self._observe = model, accelerator, observe
        self._sums = torch.zeros(4, dtype=torch.float64)

    def add(self, words: Tensor, targets: Tensor, inner: Tensor, **inputs: Any) -> None:
        """Run the model on a batch.

        Args:
            words: the mask of its words, [B, T] bool.
            targets: the targets of each step, [B, T].
            inner: the mask of inner targets, [B, T] or [B, T - 1] bool.
            inputs: the inputs of the model.
        """
        model = self._model
        inner = torch.nn.functional.pad(inner, (0, targets.shape[1] - inner.shape[1]), value=False)
        with self._accelerator.autocast():
            head: Any
            body, head = body_and_head(model)
            asked = {"output_actions": True} if memories(model) else {}
            outputs = body(**inputs, use_cache=False, **asked)
            if asked and self._observe is not None:
                self._observe(actions_by_layer(outputs.actions), words)
            for place, rows in enumerate((inner, (targets != IGNORED) & ~inner)):
                if rows.any():
                    if head is None:  # a whole model, with logits
                        loss = cross_entropy(outputs.logits[rows].float(), targets[rows], reduction="sum")
                    else:
                        hidden = outputs.last_hidden_state[rows]
                        loss = linear_cross_entropy(hidden, head.weight, head.bias, targets[rows], reduction="sum")
                    self._sums[2 * place : 2 * place + 2] += torch.tensor([float(loss), float(rows.sum())])

    def total(self) -> Losses:
        """Return the losses over all processes."""
        inner_nats, inner_tokens, other_nats, other_tokens = sum_processes(self._sums, self._accelerator)
        return Losses(inner_nats + other_nats, int(inner_tokens + other_tokens), inner_nats, int(inner_tokens))


def sum_processes(sums: Tensor, accelerator: Accelerator) -> list[float]:
    """Sums over all processes; a mean of their means would weight tokens unequally."""
    device = accelerator.device
    sums = sums.to(device, torch.float32 if device.type == "mps" else torch.float64)
    return accelerator.reduce(sums, reduction="sum").tolist()


@contextmanager
def evaluating(model: Any, accelerator: Accelerator) -> Iterator[Any]:
    """The model without Accelerate's wrapper, in evaluation mode."""
    inner = accelerator.unwrap_model(model)
    shared_out = isinstance(inner, FSDPModule)  # only its own forward method would gather its weights
    if shared_out:
        inner.unshard()
    try:
        with evaluation_mode(inner):
            yield inner
    finally:
        if shared_out:
            inner.reshard()
