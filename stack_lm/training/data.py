"""From corpora to what a language model trains on: a tokenizer, batches of token ids and validation sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..data import Corpus, Sentence, hold_out, open_corpus
from ..data.corpora import DocumentStream
from ..errors import InputError
from ..labels import IGNORED
from ..tokenization import WordPreparation, train_word_tokenizer
from .batches import Batches, EpochBatches, StreamBatches
from .config import RunConfig, TokenizerConfig
from .run_directory import on_first_process


class Data(NamedTuple):
    """What a run trains on: the batches of this process, all validation sentences, and the tokenizer."""

    batches: Batches
    validation: list[list[int]]
    tokenizer: PreTrainedTokenizerBase


def encode_sentences(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sentence], max_length: int
) -> list[list[int]]:
    """Sentences as token ids; those of one token are left out, as there is nothing to predict."""
    prepare = WordPreparation(tokenizer)
    encoded: list[list[int]] = []
    for start in range(0, len(sentences), 1000):
        texts = [" ".join(prepare(words, tags)) for words, tags in sentences[start : start + 1000]]
        ids = tokenizer(texts, return_attention_mask=False, return_token_type_ids=False).input_ids
        encoded += [sentence[:max_length] for sentence in ids if len(sentence) > 1]
    return encoded


def prepare_data(config: RunConfig, tokenizer_path: Path | None = None) -> Data:
    """Open the corpora, split them, and make the tokenizer or load it (`tokenizer_path`: that of a checkpoint).

    Raises:
        InputError: if a source cannot be read or leaves nothing to train or validate on.
    """
    data = config.data
    corpus = open_corpus(data.source, split=data.split, segmentation=data.segmentation, column=data.column)
    train: Sequence[Sentence] | None = None
    stream: DocumentStream | None = None
    validation: list[Sentence] | None = None
    if data.streaming:
        if corpus.stream is None:
            raise InputError(f"data.source {data.source!r} is no dataset of the hub and cannot be streamed")
        stream = corpus.stream
        if data.validation is None:
            stream, held = corpus.stream.hold_out(data.held_out)
            limit = data.validation_limit or 5_000
            validation = [sentence for sentence, _ in zip((s for s, _ in held.read()), range(limit), strict=False)]
    else:
        train = list(_first(corpus, data.limit))
        if data.validation is None:
            train, validation = hold_out(train, data.held_out, config.seed)
    if validation is None:
        other = open_corpus(
            str(data.validation),
            split=data.validation_split,
            segmentation=data.segmentation,
            column=data.column,
        )
        validation = list(_first(other, data.validation_limit))
    validation = validation[: data.validation_limit]

    def sample() -> Iterator[Sentence]:
        if train is not None:
            yield from train
        elif stream is not None:
            for (sentence, _), _ in zip(stream.read(), range(config.tokenizer.sentences), strict=False):
                yield sentence

    tokenizer = _open_tokenizer(config.tokenizer, sample, tokenizer_path)

    def encode(sentences: Sequence[Sentence]) -> list[list[int]]:
        return encode_sentences(tokenizer, sentences, data.max_length)

    encoded_validation = encode(validation)
    if not encoded_validation:
        raise InputError("no validation sentence has two tokens or more")
    rank, n_processes = PartialState().process_index, PartialState().num_processes
    batches: Batches
    if stream is not None:
        own = stream.shard(rank, n_processes)
        batches = StreamBatches(own, encode, config.training.batch_size, data.pool, config.seed)
    else:
        encoded = encode(train or [])
        batches = EpochBatches(encoded, config.training.batch_size, config.seed, rank, n_processes)
        if not batches.steps_per_epoch:
            raise InputError(
                f"{data.source} has {len(encoded)} training sentences of two tokens or more: too few for "
                f"batches of {config.training.batch_size} on {n_processes} processes"
            )
    return Data(batches, encoded_validation, tokenizer)


def _first(corpus: Corpus, limit: int | None) -> Iterator[Sentence]:
    for i, sentence in enumerate(corpus):
        if i == limit:
            return
        yield sentence


def _open_tokenizer(
    config: TokenizerConfig, sample: Callable[[], Iterator[Sentence]], checkpoint: Path | None
) -> PreTrainedTokenizerBase:
    """The tokenizer, the same on all processes."""
    source = checkpoint or config.pretrained
    if source is None:

        def make() -> PreTrainedTokenizerBase:
            return train_word_tokenizer(
                sample(),
                config.vocab_size,
                lowercase=config.lowercase,
                tag_rare_words=config.tag_rare_words,
                add_bos=config.add_bos,
                add_eos=config.add_eos,
            )

        return on_first_process(make)  # so that a stream is counted once
    try:
        return AutoTokenizer.from_pretrained(source)
    except Exception as error:  # many kinds: of the hub, of files, of formats
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot load a tokenizer from {source}: {reason[:200]}") from error


def collate(batch: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and labels [B, T], padded on the right.

    A mask is not needed: in a causal model nothing after a sentence reaches it, and the labels there are ignored.
    """
    lengths = np.fromiter(map(len, batch), np.int64, len(batch))
    inside = np.arange(lengths.max()) < lengths[:, None]
    labels = np.full(inside.shape, IGNORED, np.int64)
    labels[inside] = np.fromiter(chain.from_iterable(batch), np.int64, lengths.sum())
    ids = np.where(inside, labels, 0)
    return torch.from_numpy(ids).to(device), torch.from_numpy(labels).to(device)
