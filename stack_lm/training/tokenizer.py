"""The tokenizer of a run: an existing one, or one that is trained, and warnings about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..core.errors import InputError
from ..hub.tokenizers import open_tokenizer
from ..scoring.encoding import SentenceEncoder
from ..text import Corpus, Sentence
from ..text.tokenization import Frame, sentence_frame, train_subword_tokenizer, train_word_tokenizer
from .base_config import BaseTokenizerConfig
from .config import TokenizerConfig
from .run_directory import on_first_process

# Sentences searched for tokens that span words.
_SCANNED = 100


def frame_of(config: TokenizerConfig, tokenizer: PreTrainedTokenizerBase) -> Frame:
    """The special tokens around each training sentence."""
    return sentence_frame(tokenizer, begin=config.add_bos, end=config.add_eos)


def given_tokenizer(config: BaseTokenizerConfig, checkpoint: Path | None = None) -> PreTrainedTokenizerBase | None:
    """The existing tokenizer of a run: its checkpoint's if it is resumed, or else a pretrained one, if any.

    Raises:
        InputError: if it cannot be loaded.
    """
    source = checkpoint or config.pretrained
    return None if source is None else open_tokenizer(source)


def make_tokenizer(
    config: TokenizerConfig, sample: Callable[[], Iterator[Sentence]], given: PreTrainedTokenizerBase | None
) -> PreTrainedTokenizerBase:
    """The tokenizer of a run, the same on all processes: the given one, or one trained on a sample.

    Raises:
        InputError: as `train_tokenizer`.
    """
    if given is not None:
        return given
    # On one process, so that a stream is counted only once.
    return on_first_process(lambda: train_tokenizer(config, sample()))


def tokenizer_for(sentences: Sequence[Sequence[str]], config: Any, checkpoint: Path | None) -> PreTrainedTokenizerBase:
    """The tokenizer of a run on labelled sentences; see `make_tokenizer`.

    Args:
        sentences: the words of the training sentences.
        config: the run.
        checkpoint: the checkpoint of a resumed run, which has the tokenizer.
    """
    settings = TokenizerConfig(**dataclasses.asdict(config.tokenizer))
    return make_tokenizer(settings, lambda: map(Sentence, sentences), given_tokenizer(config.tokenizer, checkpoint))


def train_tokenizer(config: TokenizerConfig, sentences: Iterable[Sentence]) -> PreTrainedTokenizerBase:
    """Make the configured kind of tokenizer.

    Raises:
        InputError: as `train_word_tokenizer` and `train_subword_tokenizer`.
    """
    common: dict[str, Any] = {name: getattr(config, name) for name in ("lowercase", "add_bos", "add_eos")}
    if config.kind == "word":
        return train_word_tokenizer(sentences, config.vocab_size, tag_rare_words=config.tag_rare_words, **common)
    common |= {name: getattr(config, name) for name in ("split_digits", "detokenize")}
    return train_subword_tokenizer(sentences, config.vocab_size, kind=config.kind, **common)


def tokenizer_notes(config: TokenizerConfig, frame: Frame) -> list[str]:
    """Warn of settings that the tokenizer cannot follow."""
    notes = []
    if config.pretrained is not None:
        trained_only_keys = ("kind", "vocab_size", "lowercase", "split_digits", "detokenize", "tag_rare_words")
        defaults = TokenizerConfig()
        ignored = [f"tokenizer.{key}" for key in trained_only_keys if getattr(config, key) != getattr(defaults, key)]
        if ignored:
            notes.append(f"the tokenizer of {config.pretrained} is used unchanged; ignored: {', '.join(ignored)}")
        notes += [
            f"tokenizer.{key}=false has no effect: the tokenizer adds its own token"
            for key, wanted, token in (("add_bos", config.add_bos, frame.begin), ("add_eos", config.add_eos, frame.end))
            if token and not wanted
        ]
    if config.add_bos and not frame.begin:
        notes.append("the tokenizer has no beginning token, so the first token of a sentence is not predicted")
    if config.add_eos and not frame.end:
        notes.append("the tokenizer has no end token, so the ends of sentences are not predicted")
    return notes


def unscorable_notes(tokenizer: PreTrainedTokenizerBase, corpus: Corpus) -> list[str]:
    """Warn of a tokenizer whose tokens may span words, seen in the first sentences of a corpus."""
    try:
        for _ in SentenceEncoder(tokenizer).encode([sentence.words for sentence in islice(corpus, _SCANNED)], None):
            pass
    except InputError as error:
        return [f"the model will predict tokens, but words cannot be scored or parsed: {error}"]
    return []
