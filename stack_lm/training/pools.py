"""The sentences in memory from which batches are made: the whole training text, or one pool of a stream.

A pool is the same on all processes and for any number of them, and so is a position in its batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from accelerate.utils import gather_object

from ..core.errors import InputError
from ..text.corpora import DocumentBlock, DocumentStream
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
        documents: the state of the stream before it.
        behind: the position after the pool.
    """

    tokens: TokenArray
    number: int
    epoch: int
    documents: dict[str, Any] | None
    behind: dict[str, Any]

    def position(self, batch: int) -> dict[str, Any]:
        """The position before one of its batches."""
        return {"epoch": self.epoch, "pool": self.number, "batch": batch, "documents": self.documents}


class Pools(Protocol):
    """An endless sequence of pools, epoch after epoch."""

    @property
    def whole(self) -> TokenArray | None:
        """The pool of a whole epoch, if it is a single pool, the same in each; otherwise None."""

    def read(self, position: dict[str, Any] | None) -> Iterator[Pool]:
        """The pools from that of a position."""


@dataclass(frozen=True, eq=False)
class WholePools(Pools):
    """All text in one pool, epoch after epoch."""

    tokens: TokenArray

    @property
    def whole(self) -> TokenArray:
        return self.tokens

    def read(self, position: dict[str, Any] | None) -> Iterator[Pool]:
        epoch = position["epoch"] if position else 0
        while True:
            behind = {"epoch": epoch + 1, "pool": epoch + 1, "batch": 0, "documents": None}
            yield Pool(self.tokens, epoch, epoch, None, behind)
            epoch += 1


@dataclass(frozen=True, eq=False)
class StreamPools(Pools):
    """The pools of a stream.

    Each process reads all documents, which is cheap, and encodes its share of them, which is not; then the processes
    exchange the results. While the model trains on a pool, workers encode the next.

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
    rank: int = 0
    n_processes: int = 1
    whole: None = field(default=None, init=False)

    def read(self, position: dict[str, Any] | None) -> Iterator[Pool]:
        start = position or {"epoch": 0, "pool": 0, "documents": None}
        number = start["pool"]
        workers = EncodingWorkers(self.encoder, self.workers)
        try:
            blocks = self._ahead(start["epoch"], start["documents"], workers)
            for epoch, block, result, ends_epoch in blocks:
                behind = {"epoch": epoch + ends_epoch, "pool": number + 1, "batch": 0}
                behind["documents"] = None if ends_epoch else block.end
                yield Pool(self._exchange(result()), number, epoch, block.start, behind)
                number += 1
        finally:
            workers.close()

    def _ahead(
        self, epoch: int, documents: dict[str, Any] | None, workers: EncodingWorkers
    ) -> Iterator[tuple[int, DocumentBlock, Callable[[], list[TokenArray]], bool]]:
        """Blocks whose own share is being encoded, with their epoch and whether they end it; one is read ahead."""
        while True:
            waiting: tuple[DocumentBlock, Callable[[], list[TokenArray]]] | None = None
            for block in self.stream.blocks(documents, self.sentences * CHARACTERS):
                chunks = [block.texts[i : i + _CHUNK] for i in range(0, len(block.texts), _CHUNK)]
                coming = block, workers.encode(chunks[self.rank :: self.n_processes])
                if waiting is not None:
                    yield epoch, *waiting, False
                waiting = coming
            if waiting is not None:
                yield epoch, *waiting, True
            elif documents is None:
                raise InputError(f"{self.stream.name} has no documents to train on")
            epoch, documents = epoch + 1, None

    def _exchange(self, own: list[TokenArray]) -> TokenArray:
        """The chunks of all processes, in the order of the stream."""
        parts = gather_object([[(part.ids, part.ends) for part in own]])
        chunks = [parts[i % len(parts)][i // len(parts)] for i in range(sum(map(len, parts)))]
        shifts = np.cumsum([0, *(len(ids) for ids, _ in chunks)])
        ids = np.concatenate([ids for ids, _ in chunks])
        return TokenArray(ids, np.concatenate([ends + shift for (_, ends), shift in zip(chunks, shifts, strict=False)]))
