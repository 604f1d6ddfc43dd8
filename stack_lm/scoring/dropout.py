"""Dropout in a trained model, to read a sentence in several ways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel


@contextmanager
def embedding_dropout(model: PreTrainedModel, rate: float, seed: int) -> Iterator[None]:
    """Drop units of the token embeddings while the context is open, and scale up the others (Monte Carlo dropout,
    Gal and Ghahramani 2016).

    The units are drawn by position, for all sequences alike. So the result for a sentence does not depend on the other
    sentences of its batch.

    Args:
        model: a model whose token embeddings [B, T, E] come from one module.
        rate: the share of units that are dropped, at least 0 and below 1.
        seed: the seed of the draw.
    """

    def drop(_module: Any, _inputs: Any, embedded: Tensor) -> Tensor:
        # NumPy fills rows in order, so the first positions are the same in longer sequences.
        mask = np.random.default_rng(seed).random(embedded.shape[-2:]) >= rate
        return embedded * torch.as_tensor(mask / (1 - rate), dtype=embedded.dtype, device=embedded.device)

    handle = model.get_input_embeddings().register_forward_hook(drop)
    try:
        yield
    finally:
        handle.remove()
