"""From corpora to a language model's training data: a tokenizer, batches of token ids and validation text."""

from __future__ import annotations

import dataclasses
import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from ..core.console import print_note, progress
from ..core.errors import InputError
from ..text import Corpus, Sentence, hold_out, open_corpus
from ..text.corpora import several_in_a_line
from ..text.formats import format_of, is_table
from ..text.tokenization import Frame, splits_words
from .batches import Batches, Pools, SentenceBatches, StreamPools, WholePools
from .checkpoints import read_state
from .compact import SentenceStore, TokenArray
from .config import RunConfig
from .continuous import ContinuousBatches
from .encoding import (
    TextEncoder,
    TextSize,
    Tokenised,
    cache_key,
    encode_documents,
    encode_sentences,
    read_entry,
    size_digest,
    text_digest,
    write_entry,
)
from .tokenizer import frame_of, given_tokenizer, make_tokenizer, tokenizer_notes, unscorable_notes

# The smallest share of truncated sentences that is reported.
_SHARE_CUT = 1e-3
# Of validation text that is in the training text too; 0.9% of the sentences of Wikipedia are.
_SHARE_REPEATED = 0.05
# Sentences searched for tokens that the run adds itself.
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


class _Texts(NamedTuple):
    """The texts of a run before they are tokenised.

    `validation` is None if a part of `corpus` is held out, `given` the run's existing tokenizer, if any, and `digests`
    those of the texts that are files, by key.
    """

    config: RunConfig
    corpus: Corpus
    validation: Corpus | None
    given: PreTrainedTokenizerBase | None
    digests: dict[str, str]

    @property
    def continuous(self) -> bool:
        """Whether the units of text are documents, not sentences."""
        return self.config.data.mode == "continuous"

    def units(self, corpus: Corpus) -> Iterable[Any]:
        """The documents of a corpus, all of it if they are unknown; or its sentences."""
        if not self.continuous:
            return corpus
        return [corpus] if corpus.documents is None else corpus.documents()

    def encode(
        self,
        tokenizer: PreTrainedTokenizerBase,
        units: Iterable[Any],
        advance: Callable[[int], None] = lambda n: None,
        size: TextSize | None = None,
    ) -> TokenArray:
        """Units of text as token ids; see `encode_sentences`."""
        frame = frame_of(self.config.tokenizer, tokenizer)
        if self.continuous:
            return encode_documents(tokenizer, units, frame, advance, size)
        return encode_sentences(tokenizer, units, self.config.data.max_length, frame, advance, size=size)

    def encode_validation(
        self, tokenizer: PreTrainedTokenizerBase, units: Iterable[Any], limit: int | None
    ) -> tuple[TokenArray, TextSize]:
        """Validation text, and its size."""
        size = TextSize()
        tokens = self.encode(tokenizer, islice(units, limit), size=size)
        if not tokens:
            raise InputError("no validation text has two tokens or more")
        return tokens, size


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
    validation = None if config.data.validation is None else _open_source(config, split_words, validation=True)
    files = {"data.source": corpus.files, "data.validation": () if validation is None else validation.files}
    # Of a stream by their sizes, because it may be very large.
    digests = digest_files(config, checkpoint, files, size_digest if config.data.streaming else text_digest)
    texts = _Texts(config, corpus, validation, given, digests)
    notes = []
    if config.data.streaming:
        pools, validation, content = _open_stream(texts)
    else:
        several = "" if config.data.segmentation is not None else several_in_a_line(corpus)
        notes += [f"{several}: for ordinary text, data.segmentation=raw"] if several else []
        content = _tokenise(texts, resumed=checkpoint is not None, quiet=quiet)
        if not len(content.train):
            kind = "documents" if texts.continuous else "training sentences"
            raise InputError(f"{config.data.source} has no {kind} of two tokens or more")
        pools = WholePools(content.train)
    frame = frame_of(config.tokenizer, content.tokenizer)
    notes += tokenizer_notes(config.tokenizer, frame)
    if given is not None and (checkpoint is None or config.data.streaming):
        notes += unscorable_notes(content.tokenizer, validation or corpus)
    notes += _marked(corpus, content.tokenizer, frame) + _repeated(content)
    if not texts.continuous:
        notes += _cut_sentences(content.train, config.data.max_length, frame)
    size, packing, tokens = config.training.batch_size, config.training.packing, config.training.tokens_per_batch
    batches: Batches = SentenceBatches(pools, size, config.seed, tokens_per_batch=tokens, mixed=packing)
    if texts.continuous:
        batches = ContinuousBatches(pools, size, config.data.sequence_length, config.seed)
    return Data(batches, content.validation, content.size, content.tokenizer, frame, digests, notes)


def _cut_sentences(sentences: TokenArray, max_length: int, frame: Frame) -> list[str]:
    """Warn of training sentences that lost their end, if they are more than a few."""
    longest = sentences.lengths == max_length
    cut = longest & (sentences.ids[sentences.ends - 1] != frame.end[-1]) if frame.end else longest
    n, total = int(cut.sum()), len(sentences)
    if n == 0 or n < _SHARE_CUT * total:
        return []
    verb = "is" if n == 1 else "are"
    what = f"{n:,} of {total:,} training sentences {verb} cut off at data.max_length={max_length} tokens"
    return [f"{what}; data.mode=continuous reads long texts to their ends"]


def _repeated(content: Tokenised) -> list[str]:
    """Warn of validation text that the model is trained on."""
    n, total = int(content.train.contains(content.validation).sum()), len(content.validation)
    if n < _SHARE_REPEATED * total:
        return []
    return [f"{n:,} of {total:,} pieces of validation text are in the training text too: perplexity will look too good"]


def _marked(corpus: Corpus, tokenizer: PreTrainedTokenizerBase, frame: Frame) -> list[str]:
    """Warn of files whose sentences, or the first of them, have the tokens that a run puts around sentences."""
    tokens = {*tokenizer.convert_ids_to_tokens([*frame.begin, *frame.end])}
    read = islice(corpus, _SCANNED) if corpus.files else ()
    added = {word for sentence in read for word in sentence.words if word in tokens}
    where = f"{corpus.name} has the words {' and '.join(sorted(added))}, which the run adds itself"
    return [f"{where}; remove them from the text"] if added else []


def digest_files(
    config: Any,
    checkpoint: Path | None,
    files: Mapping[str, Sequence[str | Path]],
    digest: Callable[[Iterable[Path]], str] = text_digest,
) -> dict[str, str]:
    """A digest of the files of each key that names some, in a resumed run the same as in its checkpoint.

    Args:
        config: the run.
        checkpoint: the checkpoint to resume from, if any.
        files: the files of each text, by the key that names it, such as "data.source".
        digest: the function of the files.

    Raises:
        InputError: if one has changed.
    """
    texts = {key: digest(map(Path, named)) for key, named in files.items() if named and all(map(os.path.isfile, named))}
    before = ((read_state(checkpoint) or {}) if checkpoint else {}).get("texts", {})  # older checkpoints have none
    for key in texts:
        if before.get(key, texts[key]) != texts[key]:
            source = getattr(config.data, key.removeprefix("data."))
            hint = "restore it, or start anew with --overwrite"
            raise InputError(f"cannot resume {config.output_dir}: the text of {key}, {source}, has changed; {hint}")
    return texts


def _open_stream(texts: _Texts) -> tuple[Pools, Corpus, Tokenised]:
    """The pools and the validation text of a stream; at most two pools of it are in memory."""
    config, validation, stream = texts.config, texts.validation, texts.corpus.stream
    data = config.data
    if stream is None:
        raise InputError(f"data.source {data.source!r} cannot be streamed: it is neither a text file nor a dataset")
    if validation is None:
        stream, held = stream.hold_out(data.held_out)
        for part, what in ((stream, "left to train on"), (held, "held out")):
            if next(part.documents(), None) is None:
                found = f"no document of {data.source} is {what} with data.held_out={data.held_out:g}"
                raise InputError(f"{found}: set data.validation, or in plain text put empty lines between documents")
        validation = Corpus(data.source, held.sentences, documents=held.documents)
    sample = stream.sentences
    tokenizer = make_tokenizer(config.tokenizer, lambda: islice(sample(), config.tokenizer.sentences), texts.given)
    # With a held-out part of a stream, the rest would have to be read in search of more.
    most = None if data.validation is not None else 200 if texts.continuous else 5_000
    tokens, size = texts.encode_validation(tokenizer, texts.units(validation), data.validation_limit or most)
    frame = frame_of(config.tokenizer, tokenizer)
    encoder = TextEncoder(tokenizer, stream.segmenter, data.max_length, frame, whole=texts.continuous)
    pools = StreamPools(stream, encoder, data.pool, data.workers)
    nothing = TokenArray.pack([], len(tokenizer))
    return pools, validation, Tokenised(nothing, tokens, size, tokenizer)


def _tokenise(texts: _Texts, *, resumed: bool, quiet: bool) -> Tokenised:
    """All training and validation text, from the cache if it has them with a resumed run's tokenizer."""
    given, sources = texts.given, [corpus for corpus in (texts.corpus, texts.validation) if corpus is not None]
    key = None
    if len(texts.digests) == len(sources):  # all that is read has a digest
        pretrained = given_tokenizer(texts.config.tokenizer) if resumed else given
        files = [file for source in sources for file in source.files]
        key = cache_key(files, _cache_settings(texts, sources, pretrained))
        cached = None if key is None else read_entry(key)
        if cached is not None and resumed and given is not None and _content(cached.tokenizer) != _content(given):
            cached = None
        # Another run may have written it between the checks of two processes, which must continue together.
        if all(gather_object([cached is not None])) and cached is not None:
            if not quiet:
                source = texts.config.data.source
                print_note(f"{source}: {len(cached.train.ids):,} tokens from the cache (docs/text.md)")
            return cached if pretrained is None or resumed else cached._replace(tokenizer=pretrained)
    result = _tokenise_whole(texts, quiet)
    # With a checkpoint's tokenizer the entry might not be what a new run makes of the text.
    if key is not None and not resumed and PartialState().is_main_process:
        write_entry(key, result)
    return result


def _cache_settings(texts: _Texts, sources: Sequence[Corpus], pretrained: PreTrainedTokenizerBase | None) -> str:
    """Everything that affects the tokens of a run."""
    config = texts.config
    data_settings = dataclasses.asdict(config.data)
    data_settings["held_out_seed"] = config.data.split_seed(config.seed) if texts.validation is None else None
    # The digests replace the names of the files, except the endings, which determine how they are read.
    formats = [[format_of(file) for file in source.files] for source in sources]
    for name in ("source", "validation", "workers", "sequence_length", "pool"):
        del data_settings[name]
    tokenizer = dataclasses.asdict(config.tokenizer)
    if pretrained is not None:  # what it is, not where
        tokenizer |= {"pretrained": _content(pretrained), "class": type(pretrained).__name__}
    settings = {"texts": texts.digests, "formats": formats, "data": data_settings, "tokenizer": tokenizer}
    return json.dumps(settings, sort_keys=True)


def _content(tokenizer: PreTrainedTokenizerBase) -> str:
    """Everything that determines a tokenizer's tokens for a text, and those that begin and end it."""
    return json.dumps([tokenizer.backend_tokenizer.to_str(), tokenizer.special_tokens_map], sort_keys=True, default=str)


def _tokenise_whole(texts: _Texts, quiet: bool) -> Tokenised:
    config, data, continuous = texts.config, texts.config.data, texts.continuous
    counts = array("q")  # of the sentences of each document

    def count() -> Iterator[Sentence]:
        for document in islice(texts.units(texts.corpus), data.limit):
            counts.append(0)
            for sentence in document:
                counts[-1] += 1
                yield sentence

    store = SentenceStore(count() if continuous else islice(texts.corpus, data.limit))
    ends = list(accumulate(counts))

    def unit(i: int) -> Any:
        return map(store.__getitem__, range(ends[i] - counts[i], ends[i])) if continuous else store[i]

    numbers: Sequence[int] = range(len(counts) if continuous else len(store))
    validation = None if texts.validation is None else texts.units(texts.validation)
    if validation is None:
        kind = "documents" if continuous else "sentences"
        numbers, held_out = hold_out(numbers, data.held_out, data.split_seed(config.seed), kind)
        validation = map(unit, held_out)

    def sample() -> Iterator[Sentence]:
        units = map(unit, numbers)
        return chain.from_iterable(units) if continuous else units

    tokenizer = make_tokenizer(config.tokenizer, sample, texts.given)
    tokens, size = texts.encode_validation(tokenizer, validation, data.validation_limit)
    total = sum(counts[i] for i in numbers) if continuous else len(numbers)
    with progress("tokenizing", total, quiet=quiet) as advance:
        train = texts.encode(tokenizer, map(unit, numbers), advance)
    return Tokenised(train, tokens, size, tokenizer)


def _open_source(config: RunConfig, split_words: bool, *, validation: bool = False) -> Corpus:
    data = config.data
    source, split = (str(data.validation), data.validation_split) if validation else (data.source, data.split)
    other = data.source if validation else data.validation
    # A table to train on and a text to validate on, or the reverse: the column is that of the table.
    is_text = Path(source).is_file() and not is_table(source)
    column = None if is_text and other is not None and is_table(other) else data.column
    return open_corpus(source, split=split, segmentation=data.segmentation, column=column, split_words=split_words)
