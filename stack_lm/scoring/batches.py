"""Batches of token ids, and log-probabilities of tokens from logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ..core.errors import InputError


class Scored(NamedTuple):
    """Tokens whose log-probabilities are summed, from `start` on."""

    ids: list[int]
    start: int


class End(NamedTuple):
    """The last token of a sequence: its group, the sequence's place there, the token, and `Scored.start`."""

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
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and lengths[order[stop]] * (stop + 1 - start) <= batch_tokens:
            stop += 1
        yield order[start:stop]
        start = stop


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
