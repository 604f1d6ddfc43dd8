"""Packed rows: several texts one after another in one row, without padding, and where each begins.

Memories and recurrent cells must start afresh at each border. A packed row is therefore taken apart into a padded batch
with a row for each text, and the results are put together again: exact in every layer, at the cost of that batch's
padding. Compiled cells on a CPU leave most of it out, if the longest texts come first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor


class Texts(NamedTuple):
    """The N texts of packed rows [B, T], the longest of which has L tokens.

    Attributes:
        place: the number of each token in the rows, flattened [N, L]; anything at padding.
        mask: [N, L] bool, False at padding.
        back: the number of each token of the rows in the texts, flattened [B * T].
        shape: (B, T).
    """

    place: Tensor
    mask: Tensor
    back: Tensor
    shape: tuple[int, int]

    @classmethod
    def from_starts(cls, starts: Tensor, *, longest_first: bool = False) -> Self:
        """The texts that begin where `starts` [B, T] is True, and at the beginning of each row.

        Args:
            starts: [B, T] bool.
            longest_first: order them by length, for each of torch's threads its share. By default as they are.
        """
        flat = starts.clone()
        flat[:, 0] = True
        first = flat.flatten().nonzero().squeeze(1)
        lengths = torch.diff(first, append=first.new_tensor([starts.numel()]))
        if longest_first:
            order, threads = lengths.argsort(descending=True, stable=True), torch.get_num_threads()
            order = torch.cat([order[thread::threads] for thread in range(threads)])
            first, lengths = first[order], lengths[order]
        steps = torch.arange(int(lengths.max()), device=starts.device)
        mask = steps < lengths.unsqueeze(1)
        place = (first.unsqueeze(1) + steps).clamp(max=starts.numel() - 1)
        back = torch.empty_like(flat.flatten(), dtype=torch.long)
        back[place[mask]] = mask.flatten().nonzero().squeeze(1)
        return cls(place, mask, back, (starts.shape[0], starts.shape[1]))

    def apart(self, values: Tensor) -> Tensor:
        """From rows [B, T, ...] to texts [N, L, ...]."""
        return values.flatten(0, 1).index_select(0, self.place.flatten()).unflatten(0, self.place.shape)

    def together(self, values: Tensor) -> Tensor:
        """From texts [N, L, ...] to rows [B, T, ...]."""
        return values.flatten(0, 1).index_select(0, self.back).unflatten(0, self.shape)

    def mask_with(self, mask: Tensor | None) -> Tensor:
        """The mask of the texts [N, L], with padding of the rows [B, T]."""
        return self.mask if mask is None else self.mask & self.apart(mask).bool()


def starts_of(borders: Any, shape: tuple[int, int], device: torch.device, name: str = "cu_seqlens") -> Tensor:
    """Find where texts begin [1, T], bool, from the cumulative lengths of one row's texts, as flash attention has them.

    Args:
        borders: integers, 0 first and T last, ascending.
        shape: (B, T); B must be 1.
        device: the device of the result.
        name: the argument, for messages.

    Raises:
        ValueError: for anything else.
    """
    if shape[0] != 1:
        raise ValueError(f"{name} is of one packed row; got a batch of {shape[0]}")
    found = borders.tolist() if hasattr(borders, "tolist") else borders
    whole = isinstance(found, list | tuple) and all(type(end) is int for end in found)
    ascend = whole and all(one < other for one, other in pairwise(found))
    if not ascend or [*found[:1], *found[-1:]] != [0, shape[1]]:
        raise ValueError(f"{name} must be ascending integers from 0 to the row's length, {shape[1]}; got {borders}")
    starts = torch.zeros(shape, dtype=torch.bool, device=device)
    starts[0, list(found[:-1])] = True
    return starts
