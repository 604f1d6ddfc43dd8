"""Batches of sentences and positions in them.

The loop owns its batches instead of handing a DataLoader to Accelerate: each process takes every n-th batch of the same
shuffled list, or its own part of a stream, so that no sentence is lost or read twice, and a position in them is a few
numbers that a checkpoint keeps.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..data import Sentence
from ..data.corpora import DocumentStream, Position
from ..errors import InputError
from .compact import TokenArray


class Batches(Protocol):
    """Batches of sentences that one process trains on, readable from any position."""

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches of each process in an epoch; None where that is not known."""

    def read(self, position: dict[str, Any] | None) -> Iterator[tuple[list[list[int]], dict[str, Any]]]:
        """Batches (lists of sentences as token ids) without end, each with the position behind it; the position has
        the epoch of the next batch under "epoch"."""


def _bucket(lengths: np.ndarray, batch_size: int, rng: random.Random) -> list[np.ndarray]:
    """Batches of sentences of about the same length, as their numbers, in random order.

    The random numbers are Python's, one for each sentence and then those of a shuffle, so that a seed means one order.
    """
    noise = np.fromiter((rng.uniform(0.9, 1.1) for _ in range(len(lengths))), np.float64, len(lengths))
    order = np.argsort(lengths * noise, kind="stable")
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    rng.shuffle(batches)
    return batches


@dataclass(frozen=True, eq=False)
class EpochBatches:
    """Batches of sentences that are all in memory, shuffled anew for each epoch in the same way on all processes."""

    sentences: TokenArray
    batch_size: int
    seed: int
    rank: int
    n_processes: int

    @property
    def steps_per_epoch(self) -> int:
        """Batches of each process in an epoch. The last ones that do not go round are left out of that epoch."""
        return math.ceil(len(self.sentences) / self.batch_size) // self.n_processes

    def read(self, position: dict[str, Any] | None) -> Iterator[tuple[list[list[int]], dict[str, Any]]]:
        epoch, start = (position["epoch"], position["batch"]) if position else (0, 0)
        steps = self.steps_per_epoch
        while True:
            batches = _bucket(self.sentences.lengths, self.batch_size, random.Random(f"{self.seed}/{epoch}"))
            own = batches[self.rank :: self.n_processes][:steps]
            for i in range(start, steps):
                last = i + 1 == steps
                yield [self.sentences[n] for n in own[i]], {"epoch": epoch + last, "batch": 0 if last else i + 1}
            epoch, start = epoch + 1, 0


@dataclass(frozen=True, eq=False)
class StreamBatches:
    """Batches of a process's part of a stream, sorted by length a pool at a time."""

    stream: DocumentStream
    encode: Callable[[Sequence[Sentence]], TokenArray]
    batch_size: int
    pool: int
    seed: int

    @property
    def steps_per_epoch(self) -> None:
        return None

    def read(self, position: dict[str, Any] | None) -> Iterator[tuple[list[list[int]], dict[str, Any]]]:
        state = position or {"epoch": 0, "pool": 0, "batch": 0, "documents": None, "sentences": 0}
        epoch, number, start = state["epoch"], state["pool"], state["batch"]
        place = Position(state["documents"], state["sentences"])
        while True:
            any_batch = False
            for sentences, behind in self._pools(place):
                encoded = self.encode(sentences)
                batches = _bucket(encoded.lengths, self.batch_size, random.Random(f"{self.seed}/{number}"))
                for i in range(start, len(batches)):
                    any_batch = True
                    at = {"epoch": epoch, "pool": number, "batch": i + 1, **place._asdict()}
                    yield [encoded[n] for n in batches[i]], at
                number, start, place = number + 1, 0, behind
            if not any_batch and place == Position():
                raise InputError("a process has no sentence of the stream to train on; use fewer processes")
            epoch, place = epoch + 1, Position()

    def _pools(self, place: Position) -> Iterator[tuple[list[Sentence], Position]]:
        pool: list[Sentence] = []
        for sentence, behind in self.stream.read(place):
            pool.append(sentence)
            if len(pool) == self.pool:
                yield pool, behind
                pool = []
        if pool:
            yield pool, behind
