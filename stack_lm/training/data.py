"""From corpora to a language model's training data: a tokenizer, batches of token ids and validation text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..console import print_note, progress
from ..data import Corpus, Sentence, hold_out, open_corpus
from ..data.corpora import several_in_a_line
from ..data.formats import format_of, is_table
from ..errors import InputError
from ..hub.tokenizers import open_tokenizer
from ..labels import IGNORED
from ..scoring.encoding import SentenceEncoder
from ..tokenization import (
    Frame,
    sentence_frame,
    splits_words,
    train_subword_tokenizer,
    train_word_tokenizer,
)
from .base_config import BaseTokenizerConfig
from .batches import Batches, SentenceBatches
from .checkpoints import read_state
from .compact import SentenceStore, TokenArray
from .config import RunConfig, TokenizerConfig
from .continuous import ContinuousBatches, Segments
from .encoding import TextEncoder, encode_documents, encode_sentences
from .pools import Pools, StreamPools, WholePools
from .run_directory import on_first_process
from .text_size import TextSize
from .token_cache import Tokenised, cache_key, read_entry, size_digest, text_digest, write_entry

# The smallest share of truncated sentences that is reported.
_SHARE_CUT = 1e-3
# Sentences searched for tokens that span words.
_SCANNED = 100


class Data(NamedTuple):
    """The data of a run: this process's batches, the validation text, the tokenizer and the tokens around sentences.

    Validation text is sentences, or documents if text is continuous; `size` is the size of its predicted part. `texts`
    has a digest of "data.source" and "data.validation", if they are text files. `notes` warn of settings that do not
    fit the text or the tokenizer.
    """

    batches: Batches
    validation: TokenArray
    size: TextSize
    tokenizer: PreTrainedTokenizerBase
    frame: Frame
    texts: dict[str, str]
    notes: list[str]


def frame_of(config: TokenizerConfig, tokenizer: PreTrainedTokenizerBase) -> Frame:
    """The special tokens around each training sentence."""
    return sentence_frame(tokenizer, begin=config.add_bos, end=config.add_eos)


def prepare_data(config: RunConfig, checkpoint: Path | None = None, *, quiet: bool = True) -> Data:
    """Open the corpora, split them, and make or load the tokenizer.

    Args:
        config: the run.
        checkpoint: the checkpoint of a resumed run, which has the tokenizer.
        quiet: no progress bar.

    Raises:
        InputError: if a source cannot be read, has too little text for training and validation, or has changed since
            the checkpoint.
    """
    given = given_tokenizer(config.tokenizer, checkpoint)
    # A tokenizer of another kind was made for raw text, and gets such text later.
    split_words = given is None or splits_words(given)
    corpus = _open_source(config, split_words)
    other = None if config.data.validation is None else _open_source(config, split_words, validation=True)
    texts = _digests(config, corpus, other)
    check_same_texts(config, checkpoint, texts)
    if config.data.streaming:
        return _open_stream(config, corpus, other, given, texts)
    several = "" if config.data.segmentation is not None else several_in_a_line(corpus)
    notes = [f"{several}: for ordinary text, data.segmentation=raw"] if several else []
    resumed = checkpoint is not None
    train, validation, size, tokenizer = _tokenise(config, corpus, other, given, texts, resumed=resumed, quiet=quiet)
    if not len(train):
        kind = "documents" if config.data.mode == "continuous" else "training sentences"
        raise InputError(f"{config.data.source} has no {kind} of two tokens or more")
    frame = frame_of(config.tokenizer, tokenizer)
    notes += _about_tokenizer(config.tokenizer, frame)
    if given is not None and not resumed:
        notes += _unscorable(tokenizer, other or corpus)
    notes += _marked(corpus, tokenizer, frame)
    if config.data.mode == "sentences":
        notes += _cut_sentences(train, config.data.max_length, frame)
    return Data(_make_batches(config, WholePools(train)), validation, size, tokenizer, frame, texts, notes)


def _cut_sentences(sentences: TokenArray, max_length: int, frame: Frame) -> list[str]:
    """Warn of training sentences that lost their end, if they are more than a few."""
    longest = sentences.lengths == max_length
    cut = longest & (sentences.ids[sentences.ends - 1] != frame.end[-1]) if frame.end else longest
    n, total = int(cut.sum()), len(sentences)
    if n < _SHARE_CUT * total:
        return []
    verb = "is" if n == 1 else "are"
    return [
        f"{n:,} of {total:,} training sentences {verb} cut off at data.max_length={max_length} tokens; "
        "data.mode=continuous reads long texts to their ends"
    ]


def _about_tokenizer(config: TokenizerConfig, frame: Frame) -> list[str]:
    """Warn of settings that the tokenizer cannot follow."""
    if config.pretrained is None:
        return _missing_tokens(config, frame)
    notes = []
    of_new = ("kind", "vocab_size", "lowercase", "split_digits", "tag_rare_words")
    without = [f"tokenizer.{name}" for name in of_new if getattr(config, name) != getattr(TokenizerConfig(), name)]
    if without:
        notes.append(f"the tokenizer of {config.pretrained} is used unchanged; ignored: {', '.join(without)}")
    kept = [
        f"tokenizer.{key}=false has no effect: the tokenizer adds its own token"
        for key, wanted, token in (("add_bos", config.add_bos, frame.begin), ("add_eos", config.add_eos, frame.end))
        if token and not wanted
    ]
    return notes + kept + _missing_tokens(config, frame)


def _marked(corpus: Corpus, tokenizer: PreTrainedTokenizerBase, frame: Frame) -> list[str]:
    """Warn of files whose sentences, or the first of them, have the tokens that a run puts around sentences."""
    tokens = {*tokenizer.convert_ids_to_tokens([*frame.begin, *frame.end])}
    read = islice(corpus, _SCANNED) if corpus.files else ()
    found = {word for sentence in read for word in sentence.words if word in tokens}
    where = f"{corpus.name} has the words {' and '.join(sorted(found))}, which the run adds itself"
    return [f"{where}; remove them from the text"] if found else []


def _unscorable(tokenizer: PreTrainedTokenizerBase, corpus: Corpus) -> list[str]:
    """Warn of a tokenizer whose tokens may span words, seen in the first sentences of a corpus."""
    try:
        for _ in SentenceEncoder(tokenizer).encode([sentence.words for sentence in islice(corpus, _SCANNED)], None):
            pass
    except InputError as error:
        return [f"the model will predict tokens, but words cannot be scored or parsed: {error}"]
    return []


def _missing_tokens(config: TokenizerConfig, frame: Frame) -> list[str]:
    """Warn of requested beginnings or ends of sentences for which the tokenizer has no token."""
    missing = []
    if config.add_bos and not frame.begin:
        missing.append("the tokenizer has no beginning token, so the first token of a sentence is not predicted")
    if config.add_eos and not frame.end:
        missing.append("the tokenizer has no end token, so the ends of sentences are not predicted")
    return missing


def _digests(config: RunConfig, corpus: Corpus, other: Corpus | None) -> dict[str, str]:
    """A digest of the files of each source with files; for a stream by their sizes, because it may be very large."""
    sources = {"data.source": corpus} | ({} if other is None else {"data.validation": other})
    digest = size_digest if config.data.streaming else text_digest
    return {
        key: digest(source.files)
        for key, source in sources.items()
        if source.files and all(map(Path.is_file, source.files))
    }


def digest_files(config: Any, checkpoint: Path | None, files: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """A digest of the files of each key that names some; see `check_same_texts` for arguments and errors."""
    texts = {key: text_digest(map(Path, named)) for key, named in files.items() if named}
    check_same_texts(config, checkpoint, texts)
    return texts


def check_same_texts(config: Any, checkpoint: Path | None, texts: dict[str, str]) -> None:
    """Check that a run is resumed on the same texts.

    Args:
        config: the run.
        checkpoint: the checkpoint to resume from, if any.
        texts: a digest of each text, by the key that names it, such as "data.source".

    Raises:
        InputError: if one has changed.
    """
    before = ((read_state(checkpoint) or {}) if checkpoint else {}).get("texts", {})  # older checkpoints have none
    for key, digest in texts.items():
        if before.get(key, digest) != digest:
            source = getattr(config.data, key.removeprefix("data."))
            raise InputError(
                f"cannot resume {config.output_dir}: the text of {key}, {source}, has changed since its checkpoint was "
                "written; restore the text, or start anew with --overwrite"
            )


def _make_batches(config: RunConfig, pools: Pools) -> Batches:
    training, state = config.training, PartialState()
    if config.data.mode == "continuous":
        return ContinuousBatches(
            pools,
            training.batch_size,
            config.data.sequence_length,
            config.seed,
            state.process_index,
            state.num_processes,
        )
    return SentenceBatches(
        pools,
        training.batch_size,
        config.seed,
        state.process_index,
        state.num_processes,
        training.tokens_per_batch,
    )


def _open_stream(
    config: RunConfig,
    corpus: Corpus,
    other: Corpus | None,
    given: PreTrainedTokenizerBase | None,
    texts: dict[str, str],
) -> Data:
    """The data of a stream, for `prepare_data`; at most two pools of it are in memory."""
    data, stream = config.data, corpus.stream
    if stream is None:
        raise InputError(f"data.source {data.source!r} cannot be streamed: it is neither a text file nor a dataset")
    if other is None:
        stream, held = stream.hold_out(data.held_out)
        other = Corpus(data.source, held.sentences, documents=held.documents)

    def sample() -> Iterator[Sentence]:
        return islice(stream.sentences(), config.tokenizer.sentences)

    tokenizer = make_tokenizer(config.tokenizer, sample, given)
    frame = frame_of(config.tokenizer, tokenizer)
    continuous = data.mode == "continuous"
    # With a held-out part of a stream, the rest would have to be read in search of more.
    limit = data.validation_limit or (None if data.validation is not None else 200 if continuous else 5_000)
    size = TextSize()
    if continuous:
        tokens = encode_documents(tokenizer, islice(_documents(other), limit), frame, size=size)
    else:
        tokens = encode_sentences(tokenizer, islice(other, limit), data.max_length, frame, size=size)
    encoder = TextEncoder(tokenizer, stream.segmenter, data.max_length, frame, whole=continuous)
    state = PartialState()
    pools = StreamPools(stream, encoder, data.pool, data.workers, state.process_index, state.num_processes)
    notes = _about_tokenizer(config.tokenizer, frame)
    if given is not None:
        notes += _unscorable(tokenizer, other)
    notes += _marked(corpus, tokenizer, frame)
    return Data(_make_batches(config, pools), _not_empty(tokens), size, tokenizer, frame, texts, notes)


def _tokenise(
    config: RunConfig,
    corpus: Corpus,
    other: Corpus | None,
    given: PreTrainedTokenizerBase | None,
    texts: dict[str, str],
    *,
    resumed: bool,
    quiet: bool,
) -> Tokenised:
    """All training and validation text, from the cache if it has them with a resumed run's tokenizer."""
    data, key = config.data, None
    sources = [corpus] if other is None else [corpus, other]
    if len(texts) == len(sources):  # all that is read has a digest
        of_data = dataclasses.asdict(data)
        of_data["held_out_seed"] = data.split_seed(config.seed) if other is None else None
        # The digests replace the names of the files, except the endings, which determine how they are read.
        formats = [[format_of(file) for file in source.files] for source in sources]
        for name in ("source", "validation", "workers", "sequence_length", "pool"):
            del of_data[name]
        of_tokenizer = dataclasses.asdict(config.tokenizer)
        pretrained = given_tokenizer(config.tokenizer) if resumed else given
        if pretrained is not None:  # what it is, not where
            of_tokenizer |= {"pretrained": _content(pretrained), "class": type(pretrained).__name__}
        settings = {"texts": texts, "formats": formats, "data": of_data, "tokenizer": of_tokenizer}
        key = cache_key([file for source in sources for file in source.files], json.dumps(settings, sort_keys=True))
        kept = None if key is None else read_entry(key)
        if kept is not None and resumed and given is not None and _content(kept.tokenizer) != _content(given):
            kept = None
        # Another run may have written it between the checks of two processes, which must continue together.
        if all(gather_object([kept is not None])) and kept is not None:
            if not quiet:
                print_note(f"{data.source}: {len(kept.train.ids):,} tokens from the cache (stack-lm cache)")
            return kept if pretrained is None or resumed else kept._replace(tokenizer=pretrained)
    result = (_tokenise_documents if data.mode == "continuous" else _tokenise_sentences)(
        config, corpus, other, given, quiet
    )
    # With a checkpoint's tokenizer the entry might not be what a new run makes of the text.
    if key is not None and not resumed and PartialState().is_main_process:
        write_entry(key, result)
    return result


def _content(tokenizer: PreTrainedTokenizerBase) -> str:
    """Everything that determines a tokenizer's tokens for a text, and those that begin and end it."""
    return json.dumps([tokenizer.backend_tokenizer.to_str(), tokenizer.special_tokens_map], sort_keys=True, default=str)


def _tokenise_sentences(
    config: RunConfig, corpus: Corpus, other: Corpus | None, given: PreTrainedTokenizerBase | None, quiet: bool
) -> Tokenised:
    data = config.data
    sentences = SentenceStore(islice(corpus, data.limit))
    numbers: Sequence[int] = range(len(sentences))
    if other is None:
        numbers, held_out = hold_out(numbers, data.held_out, data.split_seed(config.seed))
        validation: Iterable[Sentence] = sentences.at(held_out[: data.validation_limit])
    else:
        validation = islice(other, data.validation_limit)
    tokenizer = make_tokenizer(config.tokenizer, lambda: sentences.at(numbers), given)
    frame = frame_of(config.tokenizer, tokenizer)
    size = TextSize()
    validation_tokens = _not_empty(encode_sentences(tokenizer, validation, data.max_length, frame, size=size))
    with progress("tokenizing", len(numbers), quiet=quiet) as advance:
        train = encode_sentences(tokenizer, sentences.at(numbers), data.max_length, frame, advance)
    return Tokenised(train, validation_tokens, size, tokenizer)


def _tokenise_documents(
    config: RunConfig, corpus: Corpus, other: Corpus | None, given: PreTrainedTokenizerBase | None, quiet: bool
) -> Tokenised:
    data = config.data
    counts: list[int] = []

    def count() -> Iterator[Sentence]:
        for document in islice(_documents(corpus), data.limit):
            counts.append(0)
            for sentence in document:
                counts[-1] += 1
                yield sentence

    store = SentenceStore(count())
    bounds = list(pairwise(accumulate(counts, initial=0)))
    numbers: Sequence[int] = range(len(bounds))
    if other is None:
        try:
            numbers, held_out = hold_out(numbers, data.held_out, data.split_seed(config.seed), "documents")
        except InputError as error:
            raise InputError(f"{error}; name another text with data.validation") from error
        validation: Iterable[Iterable[Sentence]] = (
            store.at(range(*bounds[i])) for i in held_out[: data.validation_limit]
        )
    else:
        validation = islice(_documents(other), data.validation_limit)

    def sample() -> Iterator[Sentence]:
        return chain.from_iterable(store.at(range(*bounds[i])) for i in numbers)

    tokenizer = make_tokenizer(config.tokenizer, sample, given)
    frame = frame_of(config.tokenizer, tokenizer)
    size = TextSize()
    validation_tokens = _not_empty(encode_documents(tokenizer, validation, frame, size=size))
    with progress("tokenizing", sum(counts[i] for i in numbers), quiet=quiet) as advance:
        train = encode_documents(tokenizer, (store.at(range(*bounds[i])) for i in numbers), frame, advance)
    return Tokenised(train, validation_tokens, size, tokenizer)


def _documents(corpus: Corpus) -> Iterable[Iterable[Sentence]]:
    """The documents of a corpus; all of it is one document if they are unknown."""
    return [corpus] if corpus.documents is None else corpus.documents()


def _open_source(config: RunConfig, split_words: bool, *, validation: bool = False) -> Corpus:
    data = config.data
    source, split = (str(data.validation), data.validation_split) if validation else (data.source, data.split)
    other = data.source if validation else data.validation
    # A table to train on and a text to validate on, or the reverse: the column is that of the table.
    is_text = Path(source).is_file() and not is_table(source)
    column = None if is_text and other is not None and is_table(other) else data.column
    return open_corpus(source, split=split, segmentation=data.segmentation, column=column, split_words=split_words)


def _not_empty(validation: TokenArray) -> TokenArray:
    if not validation:
        raise InputError("no validation text has two tokens or more")
    return validation


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
    return train_subword_tokenizer(
        sentences, config.vocab_size, kind=config.kind, split_digits=config.split_digits, **common
    )


def collate(batch: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and labels [B, T], padded on the right.

    No mask is needed: in a causal model padding after a sentence does not affect it, and the labels there are ignored.
    An empty batch has only padding: two steps, because the actions of a single step change nothing, and processes that
    average gradients wait for those of every parameter.
    """
    batch = batch or [()]
    lengths = np.fromiter(map(len, batch), np.int64, len(batch))
    inside = np.arange(int(lengths.max()) or 2) < lengths[:, None]
    labels = np.full(inside.shape, IGNORED, np.int64)
    labels[inside] = np.fromiter(chain.from_iterable(batch), np.int64, lengths.sum())
    ids = np.where(inside, labels, 0)
    return _moved(ids, device), _moved(labels, device)


def _moved(numbers: np.ndarray, device: torch.device) -> Tensor:
    """An array as a tensor on a device; from pinned memory to a GPU, since other copies wait for the update before."""
    tensor = torch.from_numpy(numbers)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def collate_segments(batch: Segments, device: torch.device) -> dict[str, Any]:
    """Input ids and their targets [B, T], padded on the right, and a mask of rows that begin a document.

    A piece is followed by padding in its row, and then the row is reset, so no mask is needed here either.
    """
    ids, _ = collate([tokens[:-1] for tokens in batch.tokens], device)
    _, targets = collate([tokens[1:] for tokens in batch.tokens], device)
    return {"input_ids": ids, "shift_labels": targets, "fresh": batch.fresh}
