"""Batches of sentences and positions in them, from pools: the whole training text, or one part of a stream.

The loop owns its batches instead of passing a DataLoader to Accelerate. All processes go through the same list of
batches, and each takes every n-th, so no sentence is lost or read twice. A position is a few numbers, the same on all
processes, and is stored in checkpoints; it is also valid for another number of processes. So is a pool.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor
from transformers import DataCollatorWithFlattening

from ..core.errors import InputError
from ..core.labels import IGNORED
from ..scoring.batches import cut_by_tokens
from ..tasks.formats import padded
from ..text.corpora import DocumentStream
from .compact import TokenArray
from .encoding import EncodingWorkers, TextEncoder

# Estimate for a sentence, for the size of a pool before anything is tokenised.
CHARACTERS = 100
# Documents that a process encodes at a time.
_CHUNK = 16


class Pool(NamedTuple):
    """Text from which batches are made.

    Attributes:
        tokens: sentences or documents.
        number: the number of the pool, over all epochs, which seeds its order.
        epoch: the epoch to which it belongs.
        documents: the states of the parts of the stream before it; None at its beginning.
        behind: the position after the pool.
    """

    tokens: TokenArray
    number: int
    epoch: int
    documents: list[Any] | None
    behind: dict[str, Any]

    def position(self, batch: int) -> dict[str, Any]:
        """The position before one of its batches."""
        return {"epoch": self.epoch, "pool": self.number, "batch": batch, "documents": self.documents}


@dataclass(frozen=True, eq=False)
class WholePools:
    """All text in one pool, epoch after epoch.

    Attributes:
        whole: the pool.
    """

    whole: TokenArray

    def read(self, position: dict[str, Any] | None) -> Iterator[Pool]:
        """The pools from that of a position."""
        epoch = position["epoch"] if position else 0
        while True:
            behind = {"epoch": epoch + 1, "pool": epoch + 1, "batch": 0, "documents": None}
            yield Pool(self.whole, epoch, epoch, None, behind)
            epoch += 1


@dataclass(frozen=True, eq=False)
class StreamPools:
    """The pools of a stream.

    Each process reads and encodes its share of the files, or of a stream of fewer files its share of the documents;
    then the processes exchange the results. While the model trains on a pool, workers encode the next. The number of
    parts into which a run divides the files is in its position, so another number of processes reads the same pools.

    Attributes:
        stream: the documents.
        encoder: the encoder from their text to tokens.
        sentences: approximate number in a pool.
        workers: processes that encode, for each process that trains.
        rank, n_processes: the rank of this process, and the number of those that train.
    """

    stream: DocumentStream
    encoder: TextEncoder
    sentences: int
    workers: int = 0
    rank: int = field(default_factory=lambda: PartialState().process_index)
    n_processes: int = field(default_factory=lambda: PartialState().num_processes)
    whole: ClassVar[None] = None

    def read(self, position: dict[str, Any] | None) -> Iterator[Pool]:
        """The pools from that of a position."""
        start = position or {"epoch": 0, "pool": 0, "documents": None}
        number, epoch, states = start["pool"], start["epoch"], start["documents"]
        workers = EncodingWorkers(self.encoder, self.workers)
        try:
            while True:
                rounds, ended = self._rounds(states, workers), False
                while not ended:
                    tokens, after, ended = self._exchange(*next(rounds))
                    if tokens is None:
                        raise InputError(f"{self.stream.name} has no documents to train on")
                    behind = {"epoch": epoch + ended, "pool": number + 1, "batch": 0}
                    behind["documents"] = None if ended else after
                    yield Pool(tokens, number, epoch, states, behind)
                    number, states = number + 1, behind["documents"]
                epoch += 1
        finally:
            workers.close()

    def _rounds(self, states: list[Any] | None, workers: EncodingWorkers) -> Iterator[tuple[Any, ...]]:
        """The arguments of `_exchange` for each pool of an epoch; the text of one is read and encoded ahead.

        They go on without end: a process whose files end first waits for the others.

        Args:
            states: of the parts of the stream; None at its beginning.
            workers: they encode.
        """
        n = self.n_processes
        if states is None:
            states = [None] * (n if self.stream.n_files >= n else 1)
        elif not isinstance(states, list):  # of an earlier version, whose streams had one part
            states = [states]
        parts = len(states)
        size = self.sentences * CHARACTERS // parts
        own = [part for part in range(parts) if parts < n or part % n == self.rank]
        readers = {part: self.stream.part(part, parts).blocks(states[part], size) for part in own}
        after, waiting = {part: states[part] for part in own}, None
        while True:
            blocks = {part: block for part in own if (block := next(readers[part], None))}
            if waiting is not None:
                yield *waiting, not blocks
            after = after | {part: block.end for part, block in blocks.items()}
            texts = {
                (part, i): block.texts[i : i + _CHUNK]
                for part, block in blocks.items()
                for i in range(0, len(block.texts), _CHUNK)
                if parts >= n or i // _CHUNK % n == self.rank
            }
            waiting = list(texts), workers.encode(list(texts.values())), after

    def _exchange(
        self, places: Sequence[Any], encoded: Callable[[], list[TokenArray]], after: dict[int, Any], last: bool
    ) -> tuple[TokenArray | None, list[Any], bool]:
        """A pool, from the shares of all processes.

        Args:
            places: the order of the chunks of this process's share among all.
            encoded: waits for the chunks.
            after: the states of the parts that it reads, after the pool.
            last: whether they then end.

        Returns:
            The tokens, None without any; the states of all parts; and whether all end.
        """
        shares = gather_object([(dict(zip(places, encoded(), strict=True)), after, last)])
        chunks, states = ({key: value for share in shares for key, value in share[i].items()} for i in range(2))
        ended = all(share[2] for share in shares)
        ordered = [chunks[place] for place in sorted(chunks)]
        if not ordered:
            return None, [], ended
        ends = np.cumsum(np.concatenate([chunk.lengths for chunk in ordered]))
        tokens = TokenArray(np.concatenate([chunk.ids for chunk in ordered]), ends)
        return tokens, [states[part] for part in sorted(states)], ended


Pools = WholePools | StreamPools
"""An endless sequence of pools, epoch after epoch; `whole` is that of every epoch, if it is the same one."""


class Collated(NamedTuple):
    """A batch, ready for the model.

    Attributes:
        inputs: keyword arguments of the model.
        targets: number of targets in the batch, over which the loss is averaged.
        tokens: number of tokens in the batch that the model reads.
        padded: the same with padding.
    """

    inputs: dict[str, Any]
    targets: int
    tokens: int
    padded: int


def collate(batch: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and labels [B, T], padded on the right.

    No mask is needed: in a causal model padding after a sentence does not affect it, and the labels there are ignored.
    An empty batch has only padding: two steps, because the actions of a single step change nothing, and processes that
    average gradients wait for those of every parameter.
    """
    labels = padded(batch, IGNORED) if any(batch) else torch.full((len(batch) or 1, 2), IGNORED)
    labels = _moved(labels, device)
    return labels.where(labels != IGNORED, 0), labels


def collate_packed(batch: Sequence[Sequence[int]], device: torch.device) -> dict[str, Tensor]:
    """Token ids, labels and positions [1, N] of sentences end to end, as transformers' trainers pack them.

    The positions start again with each sentence, whose first token is no label. For an empty batch see `collate`.
    """
    nothing = {"input_ids": [0, 0], "labels": [IGNORED, IGNORED]}
    packed = DataCollatorWithFlattening()([{"input_ids": ids} for ids in batch] or [nothing])
    return {name: _moved(packed[name], device) for name in ("input_ids", "labels", "position_ids")}


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    on_gpu = device.type == "cuda"  # from pinned memory, since other copies wait for the update before
    return (tensor.pin_memory() if on_gpu else tensor).to(device, non_blocking=on_gpu)


class Batches(Protocol):
    """The training batches of one process, readable from any position."""

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches of each process in an epoch; None if unknown."""

    def read(self, position: dict[str, Any] | None) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield batches (lists of sentences as token ids) without end, each with the position after it.

        The position has the epoch of the next batch under "epoch". At the end of an epoch some processes' batches may
        be empty.
        """


@dataclass(frozen=True, eq=False)
class SentenceBatches(Batches):
    """Batches of sentences of similar length, or of all lengths, in a separate order for each pool.

    Attributes:
        pools: pools of sentences.
        batch_size: sentences in a batch.
        seed: the seed of the order.
        rank, n_processes: the rank of this process, and the number of processes.
        tokens_per_batch: maximum number of tokens in a batch, padding included, in place of its size; None uses the
            size. With `mixed` the last sentence may exceed it.
        mixed: take sentences of all lengths, for rows that are packed.
    """

    pools: Pools
    batch_size: int
    seed: int
    rank: int = field(default_factory=lambda: PartialState().process_index)
    n_processes: int = field(default_factory=lambda: PartialState().num_processes)
    tokens_per_batch: int | None = None
    mixed: bool = False

    @cached_property
    def steps_per_epoch(self) -> int | None:
        sentences = self.pools.whole
        if sentences is None:
            return None
        return math.ceil(len(self._cut(np.sort(sentences.lengths))) / self.n_processes)

    def read(self, position: dict[str, Any] | None) -> Iterator[tuple[list[list[int]], dict[str, Any]]]:
        """See `Batches.read`."""
        epoch = position["epoch"] if position else 0
        taken: list[tuple[TokenArray, np.ndarray]] = []
        for batch, behind in self._all(position):
            taken.append(batch)
            # The last batches of an epoch may be too few: some processes get none.
            if len(taken) < self.n_processes and behind["epoch"] == epoch:
                continue
            sentences, numbers = taken[self.rank] if self.rank < len(taken) else (batch[0], batch[1][:0])
            yield [sentences[i] for i in numbers], behind
            taken, epoch = [], behind["epoch"]

    def _all(self, position: dict[str, Any] | None) -> Iterator[tuple[tuple[TokenArray, np.ndarray], dict[str, Any]]]:
        """The batches of all processes, as numbers of sentences in a pool, each with the position after it."""
        start, trained_on = position["batch"] if position else 0, False
        for pool in self.pools.read(position):
            batches = self._bucket(pool.tokens.lengths, pool.number)
            for i in range(start, len(batches)):
                yield (pool.tokens, batches[i]), pool.position(i + 1) if i + 1 < len(batches) else pool.behind
            trained_on = trained_on or bool(batches)
            start = 0
            if pool.behind["epoch"] > pool.epoch and not trained_on:
                raise InputError("no sentence of the stream has two tokens or more")

    def _cut(self, lengths: np.ndarray) -> list[slice]:
        if self.tokens_per_batch is None:
            return [slice(start, start + self.batch_size) for start in range(0, len(lengths), self.batch_size)]
        if self.mixed:  # where whole batches of tokens end, so that each order has the same number of batches
            ends = np.flatnonzero(np.diff((np.cumsum(lengths) - 1) // self.tokens_per_batch)) + 1
            return [slice(*pair) for pair in pairwise([0, *ends.tolist(), len(lengths)])]
        return cut_by_tokens(lengths, self.tokens_per_batch)

    def _bucket(self, lengths: np.ndarray, pool: int) -> Sequence[np.ndarray]:
        """Batches of sentences, as their numbers, in an order determined by seed and pool.

        The random numbers are Python's, one for each sentence and then those of a shuffle, so a seed means one order.
        With a limit on tokens, only sentences of the same length swap, so every epoch has the same number of batches.
        """
        rng = random.Random(f"{self.seed}/{pool}")
        noise = np.fromiter((rng.uniform(0.9, 1.1) for _ in range(len(lengths))), np.float64, len(lengths))
        if self.mixed:
            order = np.argsort(noise, kind="stable")
        elif self.tokens_per_batch is None:
            order = np.argsort(lengths * noise, kind="stable")
        else:
            order = np.lexsort((noise, lengths))
        batches = [order[part] for part in self._cut(lengths[order])]
        rng.shuffle(batches)
        return batches
