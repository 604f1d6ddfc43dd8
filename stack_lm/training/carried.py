"""The state of continuous text, carried from update to update: detached from the graph, reset row by row, saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ..memory import leaves, map_tensors
from ..models.cache import MemoryCache
from ..nn import recurrent_layers


class CarriedState:
    """The state of each row of a batch, in a model's cache.

    Args:
        model: a model with all its state in memory layers.
        rows: number of rows in a batch.

    Attributes:
        value: the cache after the last batch. It is changed in place: keep a `clone()`.
    """

    def __init__(self, model: nn.Module, rows: int) -> None:
        self._layers: list[Any] = recurrent_layers(model)
        self._rows = rows
        self.value = MemoryCache()

    def next(self, reset_mask: Sequence[bool]) -> MemoryCache:
        """The cache for the next batch, which the model updates.

        Args:
            reset_mask: the rows to reset.
        """
        cache = self.value.detach()
        if any(reset_mask):
            for number, state in cache.states.items():
                layer = self._layers[int(number)]
                rows = torch.tensor(reset_mask, device=layer.reference_tensor.device)
                cache.update_state(number, layer.reset(state, rows), 0)
        return cache

    def save(self, directory: Path, process: int) -> None:
        """Write one process's rows into a directory."""
        tensors = leaves(tuple(self.value.state(number) for number in range(len(self._layers))))
        numbered = {str(i): tensor.detach().contiguous() for i, tensor in enumerate(tensors)}
        save_file(numbered, directory / _file_name(process))

    def load(self, directory: Path, process: int) -> None:
        """Read the files of `save`."""
        template = tuple(layer.initial_state(self._rows) for layer in self._layers)
        device = str(next(leaves(template)).device)
        tensors = load_file(directory / _file_name(process), device=device)
        numbers = iter(range(len(tensors)))
        self.value.reset()
        if tensors:
            states = map_tensors(lambda _: tensors[str(next(numbers))], template)
            for number, state in enumerate(states):
                self.value.update_state(number, state, 0)


def _file_name(process: int) -> str:
    return f"carried_state_{process}.safetensors"
