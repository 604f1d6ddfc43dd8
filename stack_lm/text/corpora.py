"""Corpora, and the registry of their sources."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..core.errors import InputError, OnError
from ..core.messages import explaining
from ..core.plugins import Registry
from .plain import Segmenter, has_several_sentences

Item = TypeVar("Item")


class Sentence(NamedTuple):
    """The words of a sentence and, where the corpus has them, their part-of-speech tags."""

    words: Sequence[str]
    tags: Sequence[str] | None = None


def tags_of_all(tags: Iterable[Sequence[str] | None]) -> list[Sequence[str]] | None:
    """The part-of-speech tags of sentences, for tokenizers that use them; None if a sentence has none."""
    known = list(tags)
    tagged = [sentence_tags for sentence_tags in known if sentence_tags is not None]
    return tagged if len(tagged) == len(known) else None


class DocumentBlock(NamedTuple):
    """Consecutive documents of a stream.

    Attributes:
        texts: the texts of the documents.
        end: the state of the dataset after them.
    """

    texts: list[str]
    end: dict[str, Any]


class DocumentStream:
    """The documents of a streaming dataset, readable from the end of any block.

    Args:
        name: the name of the source, for messages.
        dataset: a `datasets.IterableDataset`, or what has its state and rows; without `num_shards` it is one file.
        column: the column with a document's text.
        segmenter: splits documents into sentences.
        keep: True for the documents to read, given their text.
    """

    def __init__(
        self, name: str, dataset: Any, column: str, segmenter: Segmenter, keep: Callable[[str], bool] = bool
    ) -> None:
        self.name, self.segmenter = name, segmenter
        self._dataset, self._column, self._keep = dataset, column, keep

    def hold_out(self, share: float) -> tuple[DocumentStream, DocumentStream]:
        """Split into two streams: without a share of the documents, and with only those.

        A hash of its text decides for each document, so the choice is the same for any order and number of processes.
        """

        def held(document: str) -> bool:
            digest = hashlib.blake2b(document.encode("utf-8", "replace"), digest_size=8).digest()
            return int.from_bytes(digest, "big") < share * 2**64

        parts = self.name, self._dataset, self._column, self.segmenter
        return DocumentStream(*parts, lambda document: not held(document)), DocumentStream(*parts, held)

    @property
    def n_files(self) -> int:
        """The number of files from which it is read, if they can be read apart; otherwise 1."""
        return getattr(self._dataset, "num_shards", 1)

    def part(self, number: int, parts: int) -> DocumentStream:
        """A part of the stream, by its number from 0: every n-th file, for n parts."""
        if parts == 1:
            return self
        dataset = self._dataset.shard(parts, number, contiguous=False)
        return DocumentStream(self.name, dataset, self._column, self.segmenter, self._keep)

    def documents(self) -> Iterator[Iterator[Sentence]]:
        """All documents from the first, as sentences."""
        for text in self._texts(None):
            yield map(Sentence, self.segmenter(text))

    def sentences(self) -> Iterator[Sentence]:
        """All sentences from the first document."""
        for document in self.documents():
            yield from document

    def blocks(self, start: dict[str, Any] | None, characters: int) -> Iterator[DocumentBlock]:
        """The documents from a state of the dataset, in blocks of a minimum number of characters, except the last.

        Args:
            start: the end of a block; None for the beginning.
            characters: a block ends after the document with which it reaches this number.
        """
        texts: list[str] = []
        size = 0
        for text in self._texts(start):
            texts.append(text)
            size += len(text)
            if size >= characters:
                yield DocumentBlock(texts, self._dataset.state_dict())
                texts, size = [], 0
        if texts:
            yield DocumentBlock(texts, self._dataset.state_dict())

    def _texts(self, start: dict[str, Any] | None) -> Iterator[str]:
        self._dataset.load_state_dict(start)
        # Of many kinds: a file is missing or damaged, the network is down.
        with explaining(f"cannot read on in {self.name}", Exception):
            for document in self._dataset:
                text = document[self._column]
                if text and self._keep(text):
                    yield text


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentences that can be iterated over repeatedly.

    Attributes:
        name: the requested source.
        sentences: starts an iteration.
        stream: the same as a stream, if the corpus may be too large for memory.
        files: all files from which it is read, if any.
        documents: starts an iteration over the sentences of each document; None if documents are unknown.
    """

    name: str
    sentences: Callable[[], Iterable[Sentence]]
    stream: DocumentStream | None = None
    files: tuple[Path, ...] = ()
    documents: Callable[[], Iterable[Iterable[Sentence]]] | None = None

    def __iter__(self) -> Iterator[Sentence]:
        empty = True
        for sentence in self.sentences():
            empty = False
            yield sentence
        if empty:
            raise InputError(f"the corpus {self.name} has no sentences")


def several_in_a_line(corpus: Corpus) -> str:
    """The beginning of a note if a tenth of a file's lines look like ordinary text instead of sentences; else ""."""
    if not corpus.files:
        return ""
    lines = [" ".join(sentence.words) for sentence in islice(corpus, 1000)]
    share = sum(map(has_several_sentences, lines)) / len(lines)
    return f"{share:.0%} of the lines of {corpus.name} have several sentences" if share >= 0.1 else ""


class Request(NamedTuple):
    """A request to open a corpus; see `stack_lm.text.open_corpus`.

    Attributes:
        source: the whole name, such as "generated:100:1".
        argument: its part after the first colon, such as "100:1"; "" if it has none.
        split, segmentation, split_words, column, on_error: as given to `open_corpus`.
    """

    source: str
    argument: str
    split: str = "train"
    segmentation: str | None = None
    column: str | None = None
    on_error: OnError | None = None
    split_words: bool = True


class Source(NamedTuple):
    """A registered source: the notation of its names, and the function that opens them."""

    usage: str
    open: Callable[[Request], Corpus]


SOURCE_NAME = re.compile(r"[\w-]+")
SOURCES: Registry[Source] = Registry("corpus", "stack_lm.corpora")
"""All sources that have a name, by name. Paths of text files need none."""
Opener = TypeVar("Opener", bound=Callable[[Request], Corpus])


def register_source(usage: str) -> Callable[[Opener], Opener]:
    """Function decorator: `open_corpus` passes NAME and NAME:ARGUMENT to this function.

    Args:
        usage: the source's notation, for messages: its name and, in any form, its argument, such as "nltk:NAME" or
            "generated[:N[:SEED]]".

    Raises:
        ValueError: if the name is taken, or the usage does not start with a name.
    """
    match = SOURCE_NAME.match(usage)
    if match is None:
        raise ValueError(f"the usage of a source must start with its name; got {usage!r}")

    def register(opener: Opener) -> Opener:
        SOURCES.register(match[0], Source(usage, opener))
        return opener

    return register


def hold_out(
    sentences: Sequence[Item], held_out: float, seed: int, kind: str = "sentences"
) -> tuple[list[Item], list[Item]]:
    """Split sentences at random into training and held-out ones, both in their original order.

    Args:
        sentences: all of them, in whatever form.
        held_out: the number to hold out (an integer of 1 or more), or the share (below 1).
        seed: the seed of the random choice; the same seed holds out the same sentences.
        kind: their name in messages.

    Raises:
        InputError: if nothing would be left on one side, or the number is invalid.
    """
    if not 0 < held_out < math.inf or (held_out > 1 and held_out != int(held_out)):
        raise InputError(f"sentences are held out by a share below 1, or a whole number; got {held_out:g}")
    count = round(len(sentences) * held_out) if held_out < 1 else int(held_out)
    if not 0 < count < len(sentences):
        raise InputError(
            f"cannot hold out {held_out:g} of {len(sentences)} {kind}: one of them must be left to train on"
        )
    chosen = set(random.Random(seed).sample(range(len(sentences)), count))
    train = [sentence for i, sentence in enumerate(sentences) if i not in chosen]
    return train, [sentence for i, sentence in enumerate(sentences) if i in chosen]
