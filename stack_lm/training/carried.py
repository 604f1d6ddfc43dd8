"""The state of continuous text, carried from update to update: cut off from the graph, reset row by row, saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..layers.cell import CellState, StackRNNCell
from ..memory import map_tensors
from ..modeling_stack_rnn import StackRNNCache


class CarriedState:
    """The state of each row of a batch, in a model's cache.

    Args:
        cell: of the model.
        rows: in a batch.
    """

    def __init__(self, cell: StackRNNCell, rows: int) -> None:
        self._cell, self._rows = cell, rows
        self._cache = StackRNNCache()

    @property
    def value(self) -> CellState | None:
        """The state; None before the first batch."""
        return self._cache.state

    @value.setter
    def value(self, state: CellState | None) -> None:
        self._cache.state = state

    def next(self, fresh: Sequence[bool]) -> StackRNNCache:
        """The cache for the next batch, which the model updates.

        Args:
            fresh: which rows begin anew.
        """
        self._cache.detach()
        if self.value is not None and any(fresh):
            self.value = self._cell.reset(self.value, torch.tensor(fresh, device=self.value.reading.device))
        return self._cache

    def save(self, directory: Path, process: int) -> None:
        """Write one process's rows into a directory."""
        tensors = {str(i): tensor.detach().contiguous() for i, tensor in enumerate(_leaves(self.value))}
        save_file(tensors, directory / _file_name(process))

    def load(self, directory: Path, process: int) -> None:
        """Read what `save` wrote."""
        template = self._cell.initial_state(self._rows)
        tensors = load_file(directory / _file_name(process), device=str(template.reading.device))
        numbers = iter(range(len(tensors)))
        self.value = map_tensors(lambda _: tensors[str(next(numbers))], template) if tensors else None


def _leaves(tree: object) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from _leaves(part)


def _file_name(process: int) -> str:
    return f"carried_state_{process}.safetensors"
