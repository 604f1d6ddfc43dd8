"""Training language models, on one process or many (Accelerate): the one training loop of the toolkit.

The loop owns its batches instead of handing a DataLoader to Accelerate: each process takes every n-th batch of the same
shuffled list, or its own part of a stream, so that no sentence is lost or read twice, and a position in them is a few
numbers that a checkpoint keeps.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import torch
import yaml
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object, set_seed
from torch import Tensor
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerBase,
    get_scheduler,
)

from ..atomic import atomic_directory, atomic_file
from ..config_files import build
from ..configuration_stack_rnn import StackRNNConfig
from ..console import print_note, progress
from ..data import Corpus, Sentence, hold_out, open_corpus
from ..data.corpora import DocumentStream, Position
from ..errors import InputError
from ..modeling_stack_rnn import StackRNNForCausalLM
from ..tokenization import Lowercase, WordPreparation, train_word_tokenizer
from .temperature import TemperatureSchedule

IGNORED = -100
OPTIMIZERS: dict[str, type[torch.optim.Adam] | type[torch.optim.RMSprop]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
}
CONFIG_FILE, METRICS_FILE, STATE_FILE = "training_config.yaml", "metrics.jsonl", "trainer_state.json"


@dataclass(frozen=True)
class TokenizerConfig:
    """Where the tokenizer comes from.

    Attributes:
        pretrained: an existing tokenizer, by directory or name on the hub; otherwise a word-level one is made.
        vocab_size: most frequent words to keep.
        lowercase: "none", "first_word" of each sentence, or "all".
        tag_rare_words: put part-of-speech tags in the place of words outside the vocabulary.
        add_bos, add_eos: begin, or end, sentences with a token.
        sentences: of a stream, how many sentences to count words in.
    """

    pretrained: str | None = None
    vocab_size: int = 10_000
    lowercase: Lowercase = "first_word"
    tag_rare_words: bool = False
    add_bos: bool = False
    add_eos: bool = False
    sentences: int = 1_000_000


@dataclass(frozen=True)
class DataConfig:
    """What to train and validate on; see `stack_lm.data.open_corpus` for the sources.

    Attributes:
        source: of the training sentences.
        split, segmentation, column: see `open_corpus`.
        streaming: read a hub dataset as a stream, never whole.
        validation: source of the validation sentences; null holds some of the training source out.
        validation_split: of that source.
        held_out: how many sentences to hold out (1 or more), or which share (below 1). Of a stream: which share of
            the documents.
        validation_limit: validate on at most so many sentences.
        limit: train on at most so many sentences, the first; null for all. Not for a stream.
        max_length: longest sentence, in tokens; the rest of longer ones is cut off.
        pool: of a stream, how many sentences to sort by length at a time.
    """

    source: str = "generated"
    split: str = "train"
    segmentation: str | None = None
    column: str = "text"
    streaming: bool = False
    validation: str | None = None
    validation_split: str = "validation"
    held_out: float = 0.1
    validation_limit: int | None = None
    limit: int | None = None
    max_length: int = 200
    pool: int = 20_000


@dataclass(frozen=True)
class LoopConfig:
    """How to train.

    Attributes:
        epochs: passes over the training sentences; a stream goes by max_steps instead.
        max_steps: stop after so many updates.
        batch_size: sentences in a batch, on each process.
        gradient_accumulation: batches in an update, on each process.
        optimizer: "adam" or "rmsprop".
        learning_rate: of the optimizer, at its highest.
        weight_decay: of the optimizer, as an L2 term in the gradient.
        schedule: of the learning rate, after the warm-up.
        warmup_steps: updates over which the learning rate rises.
        max_grad_norm: clip gradients to this norm; null does not.
        temperature_decay, temperature_minimum: of controls with a temperature; see `TemperatureSchedule`. A decay of 0
            leaves the temperature as it is.
        mixed_precision: "no", "bf16" or "fp16"; null takes what `accelerate launch` says.
        log_every: updates between lines in metrics.jsonl.
        eval_every: updates between validations; null validates after each epoch only.
        save_every: updates between checkpoints to resume from; null saves one after each epoch.
        keep_checkpoints: how many checkpoints to keep.
        save_epochs: keep the model of each epoch, in epochs/1 and so on.
        tracker: also report metrics to an Accelerate tracker, such as "tensorboard".
    """

    epochs: int = 5
    max_steps: int | None = None
    batch_size: int = 16
    gradient_accumulation: int = 1
    optimizer: Literal["adam", "rmsprop"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    max_grad_norm: float | None = None
    temperature_decay: float = 0.0
    temperature_minimum: float = 0.5
    mixed_precision: Literal["no", "bf16", "fp16"] | None = None
    log_every: int = 50
    eval_every: int | None = None
    save_every: int | None = None
    keep_checkpoints: int = 2
    save_epochs: bool = False
    tracker: str | None = None


@dataclass(frozen=True)
class RunConfig:
    """A training run: everything that decides its outcome.

    Attributes:
        output_dir: where the model, its tokenizer, metrics and checkpoints go.
        seed: of initial weights, dropout, the order of batches and the choice of held-out sentences.
        model: fields of `StackRNNConfig`; the vocabulary size comes from the tokenizer.
    """

    output_dir: str = "runs/generated"
    seed: int = 0
    model: dict[str, Any] = field(default_factory=dict)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: LoopConfig = field(default_factory=LoopConfig)

    def check(self) -> None:
        """Find values that cannot work.

        Raises:
            InputError: that names the key.
        """
        positive = {
            "tokenizer.vocab_size": self.tokenizer.vocab_size,
            "tokenizer.sentences": self.tokenizer.sentences,
            "data.max_length": self.data.max_length - 1,
            "data.pool": self.data.pool,
            "data.held_out": self.data.held_out,
            "training.epochs": self.training.epochs,
            "training.batch_size": self.training.batch_size,
            "training.gradient_accumulation": self.training.gradient_accumulation,
            "training.learning_rate": self.training.learning_rate,
            "training.log_every": self.training.log_every,
            "training.keep_checkpoints": self.training.keep_checkpoints,
            "training.max_steps": self.training.max_steps,
            "training.eval_every": self.training.eval_every,
            "training.save_every": self.training.save_every,
            "training.max_grad_norm": self.training.max_grad_norm,
            "training.temperature_minimum": self.training.temperature_minimum,
            "data.validation_limit": self.data.validation_limit,
            "data.limit": self.data.limit,
        }
        for key, value in positive.items():
            if value is not None and not value > 0:
                least = "at least 2" if key == "data.max_length" else "more than 0"
                shown = self.data.max_length if key == "data.max_length" else value
                raise InputError(f"{key} must be {least}; got {shown}")
        for key, number in (
            ("training.warmup_steps", self.training.warmup_steps),
            ("training.weight_decay", self.training.weight_decay),
            ("training.temperature_decay", self.training.temperature_decay),
        ):
            if number < 0:
                raise InputError(f"{key} must be at least 0; got {number}")
        if not self.output_dir:
            raise InputError("output_dir must name a directory; it is empty")
        if "vocab_size" in self.model:
            raise InputError("model.vocab_size cannot be set: it comes from the tokenizer; set tokenizer.vocab_size")
        if self.data.streaming and self.training.max_steps is None:
            raise InputError("data.streaming needs training.max_steps: the length of a stream is not known")
        if self.data.streaming and self.data.validation is None and self.data.held_out >= 1:
            raise InputError(
                f"data.held_out of a stream is a share of its documents, below 1; got {self.data.held_out:g}"
            )


class Batches(Protocol):
    """Batches of sentences that one process trains on, readable from any position."""

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches of each process in an epoch; None where that is not known."""

    def read(self, position: dict[str, Any] | None) -> Iterator[tuple[list[list[int]], dict[str, Any]]]:
        """Batches (lists of sentences as token ids) without end, each with the position behind it; the position has
        the epoch of the next batch under "epoch"."""


def _bucket(sentences: Sequence[list[int]], batch_size: int, rng: random.Random) -> list[list[list[int]]]:
    """Batches of sentences of about the same length, in random order."""
    noisy = [(len(ids) * rng.uniform(0.9, 1.1), i) for i, ids in enumerate(sentences)]
    order = [i for _, i in sorted(noisy)]
    batches = [[sentences[i] for i in order[start : start + batch_size]] for start in range(0, len(order), batch_size)]
    rng.shuffle(batches)
    return batches


@dataclass(frozen=True, eq=False)
class EpochBatches:
    """Batches of sentences that are all in memory, shuffled anew for each epoch in the same way on all processes."""

    sentences: Sequence[list[int]]
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
            batches = _bucket(self.sentences, self.batch_size, random.Random(f"{self.seed}/{epoch}"))
            own = batches[self.rank :: self.n_processes][:steps]
            for i in range(start, steps):
                last = i + 1 == steps
                yield own[i], {"epoch": epoch + last, "batch": 0 if last else i + 1}
            epoch, start = epoch + 1, 0


@dataclass(frozen=True, eq=False)
class StreamBatches:
    """Batches of a process's part of a stream, sorted by length a pool at a time."""

    stream: DocumentStream
    encode: Callable[[Sequence[Sentence]], list[list[int]]]
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
                batches = _bucket(self.encode(sentences), self.batch_size, random.Random(f"{self.seed}/{number}"))
                for i in range(start, len(batches)):
                    any_batch = True
                    at = {"epoch": epoch, "pool": number, "batch": i + 1, **place._asdict()}
                    yield batches[i], at
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


def prepare_data(config: RunConfig, accelerator: Accelerator, directory: Path, tokenizer_path: Path | None) -> Data:
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

    tokenizer = _make_tokenizer(config.tokenizer, sample, accelerator, directory, tokenizer_path)

    def encode(sentences: Sequence[Sentence]) -> list[list[int]]:
        return encode_sentences(tokenizer, sentences, data.max_length)

    encoded_validation = encode(validation)
    if not encoded_validation:
        raise InputError("no validation sentence has two tokens or more")
    rank, n_processes = accelerator.process_index, accelerator.num_processes
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


def _make_tokenizer(
    config: TokenizerConfig,
    sample: Callable[[], Iterator[Sentence]],
    accelerator: Accelerator,
    directory: Path,
    checkpoint: Path | None,
) -> PreTrainedTokenizerBase:
    """The tokenizer, the same on all processes."""
    source: str | Path | None = checkpoint or config.pretrained
    if source is None:
        # The first process makes it and the others read it, so that a stream is counted once.
        source = directory / "tokenizer"
        if accelerator.is_main_process:
            tokenizer = train_word_tokenizer(
                sample(),
                config.vocab_size,
                lowercase=config.lowercase,
                tag_rare_words=config.tag_rare_words,
                add_bos=config.add_bos,
                add_eos=config.add_eos,
            )
            with atomic_directory(source, overwrite=True) as path:
                tokenizer.save_pretrained(path)
        accelerator.wait_for_everyone()
    try:
        return AutoTokenizer.from_pretrained(source)
    except Exception as error:  # many kinds: of the hub, of files, of formats
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot load a tokenizer from {source}: {reason[:200]}") from error


def make_model(config: RunConfig, tokenizer: PreTrainedTokenizerBase) -> StackRNNForCausalLM:
    """A new model of the configured shape, for the tokenizer's vocabulary.

    Raises:
        InputError: for a key or value that `StackRNNConfig` refuses, and for a model that is no language model.
    """
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    try:
        model_config = StackRNNConfig(vocab_size=len(tokenizer), **(special | config.model))
    except (ValueError, TypeError) as error:
        raise InputError(f"model: {error}") from error
    kinds = model_config.architectures or [StackRNNForCausalLM.__name__]
    if kinds != [StackRNNForCausalLM.__name__]:
        raise InputError(f"model.architectures must be [StackRNNForCausalLM], which is trained here; got {kinds}")
    return StackRNNForCausalLM(model_config)


def _make_temperature_schedule(loop: LoopConfig, model: torch.nn.Module) -> TemperatureSchedule | None:
    if not loop.temperature_decay:
        return None
    try:
        schedule = TemperatureSchedule(loop.temperature_decay, loop.temperature_minimum)
        schedule.check(model)
    except ValueError as error:
        raise InputError(f"training.temperature_decay: {error}") from error
    return schedule


def collate(batch: Sequence[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and labels [B, T], padded on the right.

    A mask is not needed: in a causal model nothing after a sentence reaches it, and the labels there are ignored.
    """
    length = max(map(len, batch))
    ids = torch.tensor([sentence + [0] * (length - len(sentence)) for sentence in batch])
    steps, lengths = torch.arange(length), torch.tensor([len(sentence) for sentence in batch])
    labels = ids.masked_fill(steps >= lengths.unsqueeze(1), IGNORED)
    return ids.to(device), labels.to(device)


@torch.no_grad()
def evaluate_loss(
    model: torch.nn.Module, sentences: Sequence[list[int]], accelerator: Accelerator, batch_tokens: int = 2048
) -> tuple[float, int]:
    """Mean loss in nats per predicted token, over all processes, and the number of those tokens."""
    model = accelerator.unwrap_model(model)
    training = model.training
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    own = sorted(sentences, key=len)[accelerator.process_index :: accelerator.num_processes]
    start = 0
    while start < len(own):
        stop = start + 1
        while stop < len(own) and len(own[stop]) * (stop + 1 - start) <= batch_tokens:
            stop += 1
        ids, labels = collate(own[start:stop], accelerator.device)
        with accelerator.autocast():
            loss = model(ids, labels=labels, use_cache=False, skip_logits=True, num_items_in_batch=1).loss
        totals += torch.tensor([float(loss), float((labels[:, 1:] != IGNORED).sum())], dtype=torch.float64)
        start = stop
    model.train(training)
    # Sums over processes, then one division: means of means would weigh the processes' tokens unequally.
    dtype = torch.float32 if accelerator.device.type == "mps" else torch.float64
    nats, count = accelerator.reduce(totals.to(accelerator.device, dtype), reduction="sum").tolist()
    return nats / count, int(count)


class Trainer:
    """One training run; `train` runs it.

    Args:
        config: the run.
        resume: continue from the last checkpoint in `output_dir`, if there is one.
        overwrite: remove an earlier run in `output_dir`.
        quiet: no progress bar and no notes.

    Raises:
        InputError: if the configuration or the data cannot work, or `output_dir` has a run already.
    """

    def __init__(
        self, config: RunConfig, *, resume: bool = False, overwrite: bool = False, quiet: bool = False
    ) -> None:
        config.check()
        self.config = config
        self.directory = Path(config.output_dir)
        loop = config.training
        self.accelerator = Accelerator(
            mixed_precision=loop.mixed_precision, log_with=loop.tracker, project_dir=str(self.directory)
        )
        self.quiet = quiet or not self.accelerator.is_main_process
        self.step = 0
        self.sequences = 0  # trained on, where a temperature goes by them
        self.seconds = 0.0  # of training before this process took over
        self.position: dict[str, Any] | None = None
        checkpoint = self._agree_on_checkpoint(resume, overwrite)
        set_seed(config.seed)
        tokenizer_path = checkpoint / "tokenizer" if checkpoint else None
        try:
            self.data = prepare_data(config, self.accelerator, self.directory, tokenizer_path)
            model = make_model(config, self.data.tokenizer)
            self.temperature = _make_temperature_schedule(loop, model)
        except InputError:
            if checkpoint is None and self.accelerator.is_main_process:
                _remove_run(self.directory)
            raise
        set_seed(config.seed, device_specific=True)  # from here on each process has its own dropout
        optimizer = OPTIMIZERS[loop.optimizer](
            model.parameters(), lr=loop.learning_rate, weight_decay=loop.weight_decay
        )
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        per_epoch = self.data.batches.steps_per_epoch
        self.updates_per_epoch = None if per_epoch is None else math.ceil(per_epoch / loop.gradient_accumulation)
        planned = None if self.updates_per_epoch is None else loop.epochs * self.updates_per_epoch
        self.total = min(n for n in (planned, loop.max_steps) if n is not None)
        self.scheduler = get_scheduler(
            loop.schedule if loop.schedule != "constant" else "constant_with_warmup",
            self.optimizer.optimizer if hasattr(self.optimizer, "optimizer") else self.optimizer,
            num_warmup_steps=loop.warmup_steps,
            num_training_steps=self.total,
        )
        if loop.tracker:
            self.accelerator.init_trackers("stack-lm")
        if checkpoint:
            self._load(checkpoint)

    def _agree_on_checkpoint(self, resume: bool, overwrite: bool) -> Path | None:
        """What the first process finds in the directory, on all processes: its files must not be in the others' way."""
        found: list[Any] = [None, None]
        if self.accelerator.is_main_process:
            try:
                found[0] = self._open_directory(resume, overwrite)
            except InputError as error:
                found[1] = str(error)
        checkpoint, refusal = broadcast_object_list(found)
        if refusal is not None:
            raise InputError(refusal)
        return checkpoint

    def _open_directory(self, resume: bool, overwrite: bool) -> Path | None:
        """The checkpoint to resume from, if any; else the directory is made, or cleared, or refused."""
        config_file = self.directory / CONFIG_FILE
        if resume:
            checkpoint = self._last_checkpoint()
            if checkpoint is not None:
                self._check_same_run(yaml.safe_load(config_file.read_text(encoding="utf-8")))
                return checkpoint
            if config_file.is_file() and not overwrite:
                raise InputError(f"{self.directory} has no checkpoint to resume from; start anew with --overwrite")
        elif self.directory.is_dir() and any(self.directory.iterdir()) and not overwrite:
            raise InputError(
                f"{self.directory} is not empty; resume its run with --resume, replace it with --overwrite, or name "
                "another output_dir"
            )
        if config_file.is_file():
            _remove_run(self.directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make output_dir {self.directory}: {error.strerror}") from error
        with atomic_file(config_file) as path:
            path.write_text(yaml.safe_dump(dataclasses.asdict(self.config), sort_keys=False), encoding="utf-8")
        return None

    def _check_same_run(self, earlier: dict[str, Any]) -> None:
        """A run may be resumed for longer, but not as another one."""
        now = dataclasses.asdict(self.config)
        earlier = dataclasses.asdict(build(RunConfig, earlier))  # with the defaults of settings that are newer
        for key in (
            "epochs",
            "max_steps",
            "log_every",
            "eval_every",
            "save_every",
            "keep_checkpoints",
            "save_epochs",
            "tracker",
        ):
            now["training"].pop(key)
            earlier["training"].pop(key)
        now.pop("output_dir"), earlier.pop("output_dir")
        for section, values in now.items():
            if values != earlier[section]:
                raise InputError(
                    f"cannot resume {self.directory}: its {section} was {earlier[section]}, and is {values} now"
                )

    def _last_checkpoint(self) -> Path | None:
        found = [path for path in self.directory.glob("checkpoints/step-*") if (path / STATE_FILE).is_file()]
        return max(found, key=lambda path: int(path.name.split("-")[1]), default=None)

    def train(self) -> dict[str, Any]:
        """Train, validating and saving on the way.

        Returns:
            The last validation: eval_nats_per_token, eval_perplexity, eval_tokens; with step, epoch and seconds.

        Raises:
            InputError: when the loss is not finite any more. No model is written then.
        """
        loop = self.config.training
        self.started = time.perf_counter()
        losses: list[Tensor] = []
        counts: list[Tensor] = []
        last: dict[str, Any] = {}
        clock = time.perf_counter()
        batches = self.data.batches.read(self.position)
        self._note(f"training on {self.accelerator.num_processes} process(es), {self.accelerator.device}")
        self.model.train()
        with progress("training", self.total) if not self.quiet else _silent() as advance:
            advance(self.step)
            while self.step < self.total:
                epoch = self.epoch
                loss, count = self._update(batches)
                losses.append(loss)
                counts.append(count)
                self.step += 1
                advance(1)
                ended = self.epoch > epoch and self.updates_per_epoch is not None
                final = self.step == self.total
                if self.step % loop.log_every == 0 or final or ended:
                    self._check_finite(losses)
                    seconds = time.perf_counter() - clock
                    weights = torch.stack(counts).double()
                    total = int(weights.sum())
                    mean = float((torch.stack(losses).double() * weights).sum()) / total
                    self._log({"train_nats_per_token": mean, "tokens_per_second": total / seconds})
                    losses, counts, clock = [], [], time.perf_counter()
                if ended or final or (loop.eval_every and self.step % loop.eval_every == 0):
                    self._check_finite(losses)
                    last = self._validate()
                    clock = time.perf_counter()
                if ended and loop.save_epochs:
                    self._save_model(self.directory / "epochs" / str(self.epoch))
                due = self.step % loop.save_every == 0 if loop.save_every else ended
                if due and not final:
                    self._check_finite(losses)
                    self._save_checkpoint()
        self._save_checkpoint()
        self._save_model(self.directory)
        if loop.tracker:
            self.accelerator.end_training()
        return last or self._validate()  # a resumed run that was complete

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.position["epoch"] if self.position else 0

    def _update(self, batches: Iterator[tuple[list[list[int]], dict[str, Any]]]) -> tuple[Tensor, Tensor]:
        """One update of the weights: its mean loss per token over all processes, and the number of those tokens."""
        loop = self.config.training
        parts: list[tuple[Tensor, Tensor]] = []
        epoch = self.epoch
        while len(parts) < loop.gradient_accumulation and self.epoch == epoch:
            batch, self.position = next(batches)
            parts.append(collate(batch, self.accelerator.device))
        count = torch.stack([(labels[:, 1:] != IGNORED).sum() for _, labels in parts]).sum()
        world = self.accelerator.num_processes
        if world > 1:
            count = self.accelerator.reduce(count, reduction="sum")
        if self.temperature is not None:
            read = torch.tensor(sum(len(ids) for ids, _ in parts), device=self.accelerator.device)
            self.sequences += int(self.accelerator.reduce(read, reduction="sum") if world > 1 else read)
            self.temperature.step(self.accelerator.unwrap_model(self.model), self.sequences)
        total = torch.zeros((), device=self.accelerator.device)
        for i, (ids, labels) in enumerate(parts):
            last = i + 1 == len(parts)
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                # DDP averages gradients over processes: dividing by count / world makes that the mean over tokens.
                loss = self.model(ids, labels=labels, use_cache=False, num_items_in_batch=count / world).loss
                self.accelerator.backward(loss)
            total += loss.detach()
        if loop.max_grad_norm is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), loop.max_grad_norm)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        if world > 1:
            total = self.accelerator.reduce(total, reduction="mean")
        return total, count

    def _check_finite(self, losses: Sequence[Tensor]) -> None:
        for i, loss in enumerate(losses):
            if not math.isfinite(float(loss)):
                step = self.step - len(losses) + i + 1
                rate = self.config.training.learning_rate
                raise InputError(
                    f"the loss is {float(loss)} at step {step}, so training cannot go on and no model is written to "
                    f"{self.directory}; a lower training.learning_rate (now {rate:g}) or a training.max_grad_norm "
                    "may help"
                )

    def _validate(self) -> dict[str, Any]:
        nats, count = evaluate_loss(self.model, self.data.validation, self.accelerator)
        if not math.isfinite(nats):
            raise InputError(f"the validation loss is {nats} at step {self.step}; no model is written")
        perplexity = math.exp(min(nats, 700))
        record = {"eval_nats_per_token": nats, "eval_perplexity": perplexity, "eval_tokens": count}
        self._note(f"step {self.step:,}, epoch {self.epoch}: validation perplexity {perplexity:.2f}")
        return self._log(record)

    def _log(self, values: dict[str, Any]) -> dict[str, Any]:
        """Append a line to metrics.jsonl."""
        rate = self.scheduler.get_last_lr()[0]
        seconds = self.seconds + time.perf_counter() - self.started
        record = {"step": self.step, "epoch": self.epoch, **values, "learning_rate": rate, "seconds": seconds}
        if self.accelerator.is_main_process:
            with open(self.directory / METRICS_FILE, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        if self.config.training.tracker:
            self.accelerator.log(values, step=self.step)
        return record

    def _note(self, text: str) -> None:
        if not self.quiet:
            print_note(text)

    def _save_checkpoint(self) -> None:
        """Everything that resuming needs, as checkpoints/step-N."""
        target = self.directory / "checkpoints" / f"step-{self.step}"
        if target.is_dir():
            return
        positions = gather_object([self.position])
        partial = target.with_name(f".{target.name}.partial")
        if self.accelerator.is_main_process:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        self.accelerator.wait_for_everyone()
        self.accelerator.save_state(str(partial))
        if self.accelerator.is_main_process:
            self.data.tokenizer.save_pretrained(partial / "tokenizer")
            state = {
                "step": self.step,
                "sequences": self.sequences,
                "seconds": self.seconds + time.perf_counter() - self.started,
                "positions": positions,
                "scheduler": self.scheduler.state_dict(),
            }
            (partial / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            os.replace(partial, target)
            found = sorted(target.parent.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
            for old in found[: -self.config.training.keep_checkpoints]:
                shutil.rmtree(old)

    def _load(self, checkpoint: Path) -> None:
        state = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
        if len(state["positions"]) != self.accelerator.num_processes:
            raise InputError(
                f"{checkpoint} is of {len(state['positions'])} processes; it cannot be resumed on "
                f"{self.accelerator.num_processes}"
            )
        self.accelerator.load_state(str(checkpoint))
        self.step, self.seconds = state["step"], state["seconds"]
        self.sequences = state.get("sequences", 0)
        self.position = state["positions"][self.accelerator.process_index]
        self.scheduler.load_state_dict(state["scheduler"])
        metrics = self.directory / METRICS_FILE
        if self.accelerator.is_main_process and metrics.is_file():
            # What was logged after the checkpoint will be logged again.
            lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
            with atomic_file(metrics) as path:
                path.write_text(
                    "".join(line for line in lines if json.loads(line)["step"] <= self.step), encoding="utf-8"
                )
        self._note(f"resuming at step {self.step:,}")

    def _save_model(self, target: Path) -> None:
        """The model and its tokenizer, ready for from_pretrained."""
        weights = self.accelerator.get_state_dict(self.model)  # gathers them, where they are shared out
        if not self.accelerator.is_main_process:
            return
        with atomic_directory(target / ".new" if target == self.directory else target, overwrite=True) as directory:
            self.accelerator.unwrap_model(self.model).save_pretrained(directory, state_dict=weights)
            self.data.tokenizer.save_pretrained(directory)
            if target == self.directory:
                for file in sorted(directory.iterdir()):
                    os.replace(file, target / file.name)
        shutil.rmtree(target / ".new", ignore_errors=True)


def _remove_run(directory: Path) -> None:
    """Remove what a run wrote, and the directory if nothing else is in it."""
    for name in ("checkpoints", "epochs", "tokenizer"):
        shutil.rmtree(directory / name, ignore_errors=True)
    for pattern in (
        CONFIG_FILE,
        METRICS_FILE,
        "config.json",
        "generation_config.json",
        "*.safetensors*",
        "tokenizer*.json",
    ):
        for file in directory.glob(pattern):
            file.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()


@contextmanager
def _silent() -> Iterator[Callable[[int], None]]:
    """A progress bar that shows nothing."""
    yield lambda n: None
