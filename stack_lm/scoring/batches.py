"""Batches of token ids, and log-probabilities of tokens from logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ..core.errors import InputError


class End(NamedTuple):
    """The last token of a sequence: its group, the sequence's place there, the token, and the first that counts."""

    group: int
    place: int
    token: int
    start: int


def length_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of sequences in batches of similar length, the shortest first.

    Args:
        lengths: the lengths of the sequences.
        batch_tokens: maximum number of tokens in a batch, padding included; a longer sequence is its own batch.
    """
    sizes = np.array(lengths, int)
    order = sizes.argsort(kind="stable")
    return (order[part].tolist() for part in cut_by_tokens(sizes[order], batch_tokens))


def cut_by_tokens(lengths: np.ndarray, most_tokens: int) -> list[slice]:
    """Cut sequences into batches of at most `most_tokens` tokens, padding included, as slices.

    Args:
        lengths: ascending.
        most_tokens: maximum number of tokens in a batch; a longer sequence is its own batch.
    """
    slices, start = [], 0
    while start < len(lengths):
        # A batch [start, stop) takes (stop - start) * lengths[stop - 1], which grows with stop.
        fits = np.arange(1, most_tokens // max(1, int(lengths[start])) + 1)[: len(lengths) - start]
        stop = start + max(1, int(np.searchsorted(fits * lengths[start : start + len(fits)], most_tokens, "right")))
        slices.append(slice(start, stop))
        start = stop
    return slices


def finite(values: Tensor, what: str) -> np.ndarray:
    """A model's numbers as an array.

    Raises:
        InputError: if one is NaN or +inf; an impossible token's log-probability is -inf.
    """
    array = values.double().cpu().numpy()
    if not (array < np.inf).all():
        raise InputError(f"the {what.replace('_', ' ')} of the model is not finite: its weights are broken")
    return array


def token_logprobs(logits: Tensor, tokens: Tensor) -> np.ndarray:
    """Log-probabilities of tokens [B, T] under the logits that predict them [B, T, V], in nats."""
    logits = logits.float()
    chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return finite(chosen - logits.logsumexp(-1), "log-probability")
