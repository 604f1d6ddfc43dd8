"""Continuous text: rows of documents, read one segment at a time, with a state carried from each to the next."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState

from ..core.errors import InputError
from .batches import Batches, Pools, collate
from .compact import TokenArray


class Segments(NamedTuple):
    """A batch of continuous text: the next segment of each row.

    Attributes:
        tokens: the tokens of each row, one more than its steps: each but the first is a target. Empty if the row has
            ended.
        reset_mask: whether a row's segment begins a document, for which its state is reset.
    """

    tokens: list[list[int]]
    reset_mask: list[bool]

    def __len__(self) -> int:
        """The number of rows that have not ended."""
        return sum(map(bool, self.tokens))


class _Piece(NamedTuple):
    """A document, or a part of one: its first token in the array, and its steps."""

    start: int
    steps: int


class Layout:
    """Documents in rows of about the same number of segments; every token but a document's first is a target once.

    A document is read as one piece unless it is longer than a row should be.

    Args:
        documents: documents of at least two tokens each.
        rows: the number of parallel rows.
        sequence_length: steps in a segment; the last of a piece may have fewer.
        cut: False leaves even long documents whole.

    Attributes:
        segments: their number in the longest row.
    """

    def __init__(self, documents: TokenArray, rows: int, sequence_length: int, *, cut: bool = True) -> None:
        self._ids, self._length = documents.ids, sequence_length
        steps = documents.lengths - 1
        # Whole segments, so that a cut in a document causes no padding.
        total = int(steps.sum())
        longest = -(-total // (rows * sequence_length)) * sequence_length if cut else total
        starts = documents.ends - documents.lengths
        pieces = [
            _Piece(int(start) + done, min(longest, int(n) - done))
            for start, n in zip(starts, steps, strict=True)
            for done in range(0, int(n), longest)
        ]
        self._rows: list[list[_Piece]] = [[] for _ in range(rows)]
        # The longest first, each to the row that is shortest so far.
        heap = [(0, row) for row in range(rows)]
        for piece in sorted(pieces, key=lambda piece: -piece.steps):
            load, row = heap[0]
            self._rows[row].append(piece)
            heapq.heapreplace(heap, (load + self._segments(piece), row))
        self.segments = max(load for load, _ in heap)

    def _segments(self, piece: _Piece) -> int:
        return -(-piece.steps // self._length)

    def read(self, rows: range, seed: str, start: int = 0) -> Iterator[Segments]:
        """The segments of some rows, from a given one.

        Args:
            rows: their numbers.
            seed: the seed of the order of the pieces in a row.
            start: number of segments to skip.
        """
        orders = [self._row(row, seed) for row in rows]
        at = [int(np.searchsorted(bounds, start, "right")) - 1 for _, bounds in orders]
        for i in range(start, self.segments):
            tokens: list[list[int]] = []
            reset_mask: list[bool] = []
            for number, (pieces, bounds) in enumerate(orders):
                if at[number] + 1 < len(bounds) and i == bounds[at[number] + 1]:
                    at[number] += 1
                if at[number] == len(pieces):  # the row has ended
                    tokens.append([])
                    reset_mask.append(False)
                    continue
                piece, segment = pieces[at[number]], i - bounds[at[number]]
                first = segment * self._length
                last = min(first + self._length, piece.steps)
                tokens.append(self._ids[piece.start + first : piece.start + last + 1].tolist())
                reset_mask.append(segment == 0)
            yield Segments(tokens, reset_mask)

    def _row(self, row: int, seed: str) -> tuple[list[_Piece], list[int]]:
        """The pieces of a row, and the numbers of their first segments, with the row's end."""
        pieces = list(self._rows[row])
        random.Random(f"{seed}/{row}").shuffle(pieces)
        return pieces, [0, *accumulate(map(self._segments, pieces))]


def collate_segments(batch: Segments, device: torch.device) -> dict[str, Any]:
    """Input ids and their targets [B, T], padded on the right, and a mask of rows that begin a document.

    A piece is followed by padding in its row, and then the row is reset, so no mask is needed here either.
    """
    ids, _ = collate([tokens[:-1] for tokens in batch.tokens], device)
    _, targets = collate([tokens[1:] for tokens in batch.tokens], device)
    return {"input_ids": ids, "shift_labels": targets, "reset_mask": batch.reset_mask}


@dataclass(frozen=True, eq=False)
class ContinuousBatches(Batches):
    """Batches of a segment of each row, with the same number of rows for each process.

    Attributes:
        pools: pools of documents.
        batch_size: rows of a process.
        sequence_length: steps in a segment.
        seed: the seed of the order of documents.
        rank, n_processes: the rank of this process, and the number of processes.
    """

    pools: Pools
    batch_size: int
    sequence_length: int
    seed: int
    rank: int = field(default_factory=lambda: PartialState().process_index)
    n_processes: int = field(default_factory=lambda: PartialState().num_processes)

    @cached_property
    def _layout(self) -> Layout | None:
        """The layout of all text, if it is one pool."""
        return None if self.pools.whole is None else self._lay_out(self.pools.whole)

    def _lay_out(self, documents: TokenArray) -> Layout:
        return Layout(documents, self.batch_size * self.n_processes, self.sequence_length)

    @property
    def steps_per_epoch(self) -> int | None:
        """See `Batches`."""
        return None if self._layout is None else self._layout.segments

    def read(self, position: dict[str, Any] | None) -> Iterator[tuple[Segments, dict[str, Any]]]:
        """See `Batches.read`."""
        start, trained_on = position["batch"] if position else 0, False
        rows = range(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        for pool in self.pools.read(position):
            if len(pool.tokens):
                trained_on = True
                layout = self._layout or self._lay_out(pool.tokens)
                for i, batch in enumerate(layout.read(rows, f"{self.seed}/{pool.number}", start), start=start + 1):
                    yield batch, pool.position(i) if i < layout.segments else pool.behind
            start = 0
            if pool.behind["epoch"] > pool.epoch and not trained_on:
                raise InputError("no document of the stream has two tokens or more")
