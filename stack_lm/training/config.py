"""Configurations of the trainers: dataclasses whose fields carry their ranges, so that one loop checks them all."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ..errors import InputError
from ..tokenization import Lowercase

_MOST = 2**53  # what no whole number may exceed: JSON and arrays take so much


def setting(
    default: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    may_change: bool = False,
) -> Any:
    """A field of a configuration.

    Args:
        default: its value where none is given.
        above: it must be more than this; None, where the field allows it, is in range.
        at_least: likewise it must be this or more.
        at_most: likewise it must be this or less. No whole number may be more than 2^53.
        may_change: a resumed run may have another value.
    """
    metadata = {"above": above, "at_least": at_least, "at_most": at_most, "may_change": may_change}
    return field(default=default, metadata=metadata)


def check_ranges(config: Any, where: str = "") -> None:
    """Check the numbers in a configuration, in nested ones too.

    Raises:
        InputError: that names the key, its range and the value.
    """
    for entry in dataclasses.fields(config):
        value, key = getattr(config, entry.name), where + entry.name
        above, least, most = (entry.metadata.get(name) for name in ("above", "at_least", "at_most"))
        if dataclasses.is_dataclass(value):
            check_ranges(value, key + ".")
        elif not isinstance(value, (int, float)):
            continue
        elif above is not None and not value > above:
            raise InputError(f"{key} must be more than {above}; got {value}")
        elif least is not None and not value >= least:
            raise InputError(f"{key} must be at least {least}; got {value}")
        elif isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{key} must be a finite number; got {value}")
        elif isinstance(value, int) and value > (most or _MOST):
            raise InputError(f"{key} must be at most {most or _MOST}; got {str(value)[:40]}")


def settled(config: Any) -> dict[str, Any]:
    """The values that a resumed run must share with the run that it resumes."""
    values: dict[str, Any] = {}
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if not entry.metadata.get("may_change"):
            values[entry.name] = settled(value) if dataclasses.is_dataclass(value) else value
    return values


@dataclass(frozen=True)
class BaseConfig:
    """A training run: everything that decides its outcome.

    Attributes:
        output_dir: where the model, its tokenizer, metrics and checkpoints go.
        seed: of initial weights, dropout, the order of batches and, unless they have a seed of their own, the choice of
            held-out sentences.
        model: fields of `StackRNNConfig` but those that come from the data; or `model_type`, another registered kind of
            model (see `stack_lm.register_model`), and fields of its configuration.
    """

    output_dir: str = setting("runs/model", may_change=True)
    seed: int = setting(0, at_least=0, at_most=2**31 - 1)
    model: dict[str, Any] = field(default_factory=dict)

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size",)

    def check(self) -> None:
        """Find values that cannot work.

        Raises:
            InputError: that names the key.
        """
        check_ranges(self)
        if not self.output_dir:
            raise InputError("output_dir must name a directory; it is empty")
        for key in self.FROM_DATA:
            if key in self.model:
                raise InputError(f"model.{key} cannot be set: it comes from the data")


@dataclass(frozen=True)
class BaseDataConfig:
    """What validates a run.

    Attributes:
        validation: source of the validation sentences; null holds some of the training source out.
        held_out: how many sentences (of continuous text: documents) to hold out, 1 or more, or which share, below 1.
            Of a stream: which share of the documents.
        held_out_seed: of that choice; null takes the run's seed. Runs of several seeds that share it validate on the
            same sentences. Not for a stream, of which the choice is always the same.
    """

    validation: str | None = None
    held_out: float = setting(0.1, above=0)
    held_out_seed: int | None = setting(None, at_least=0)

    def split_seed(self, run_seed: int) -> int:
        """The seed of the choice of held-out sentences."""
        return run_seed if self.held_out_seed is None else self.held_out_seed


@dataclass(frozen=True)
class TokenizerConfig:
    """Where the tokenizer comes from.

    Attributes:
        pretrained: an existing tokenizer, by directory or name on the hub; otherwise a word-level one is made.
        vocab_size: most frequent words to keep.
        lowercase: "none", "first_word" of each sentence, or "all"; see `stack_lm.tokenization.case_rule`.
        tag_rare_words: put part-of-speech tags in the place of words outside the vocabulary.
        add_bos: begin sentences with the tokenizer's beginning token; a word-level tokenizer has one (`<s>`).
        add_eos: likewise end them with its end token (`</s>`).
        sentences: of a stream, how many sentences to count words in.
    """

    pretrained: str | None = None
    vocab_size: int = setting(10_000, above=0)
    lowercase: Lowercase = "first_word"
    tag_rare_words: bool = False
    add_bos: bool = True
    add_eos: bool = True
    sentences: int = setting(1_000_000, above=0)


@dataclass(frozen=True)
class DataConfig(BaseDataConfig):
    """What to train and validate on; see `stack_lm.data.open_corpus` for the sources.

    Attributes:
        source: of the training sentences.
        split: as of `open_corpus`.
        segmentation: as of `open_corpus`.
        column: as of `open_corpus`.
        mode: "sentences", each on its own and next to others of about its length; or "continuous": documents from
            their beginning to their end, `batch_size` of them next to each other, with the state carried on.
        sequence_length: of continuous text, steps in an update: backpropagation through time is truncated there.
        streaming: read text files or a hub dataset as a stream, never whole.
        validation_split: of that source.
        validation_limit: maximum number of validation sentences, or documents.
        limit: maximum number of training sentences, or documents, taken from the start; null for all. Not for a stream.
        max_length: longest sentence, in tokens; the rest of longer ones is cut off. Continuous text is not cut.
        pool: of a stream, about how many sentences (of 100 characters) to have in memory and sort by length.
        workers: of a stream, processes that find sentences and tokens, for each that trains; 0 has it do so itself.
    """

    source: str = "generated"
    split: str = "train"
    segmentation: str | None = None
    column: str = "text"
    mode: Literal["sentences", "continuous"] = "sentences"
    sequence_length: int = setting(64, above=0)
    streaming: bool = False
    validation_split: str = "validation"
    validation_limit: int | None = setting(None, above=0)
    limit: int | None = setting(None, above=0)
    max_length: int = setting(200, at_least=2)
    pool: int = setting(20_000, above=0)
    workers: int = setting(1, at_least=0, at_most=1024, may_change=True)


@dataclass(frozen=True)
class LoopConfig:
    """How to train.

    Attributes:
        epochs: passes over the training sentences; a stream goes by max_steps instead.
        max_steps: stop after this number of updates.
        batch_size: sentences in a batch, on each process; of continuous text, documents next to each other.
        tokens_per_batch: tokens in a batch of sentences, padding included, on each process, in place of batch_size.
        gradient_accumulation: batches in an update, on each process.
        optimizer: "adam" or "rmsprop".
        learning_rate: of the optimizer, at its highest.
        weight_decay: of the optimizer, as an L2 term in the gradient.
        schedule: of the learning rate, after the warm-up.
        warmup_steps: updates over which the learning rate rises.
        decay_steps: updates at the end over which a constant learning rate falls to 0, along a line. A run can be
            resumed with it from any checkpoint before them.
        max_grad_norm: clip gradients to this norm; null does not.
        on_nan: "stop" the run where a loss is not finite, or "skip" updates whose loss or gradients are not.
        temperature_decay: of controls with a temperature; see `TemperatureSchedule`. 0 leaves the temperature as it is.
        temperature_minimum: the lowest temperature.
        mixed_precision: "no", "bf16" or "fp16"; null takes what `accelerate launch` says.
        loss_dtype: of the matrix products of a language model's loss and of its gradients, "float32" or "bfloat16".
            "auto" is bfloat16 on a CPU that multiplies it natively; elsewhere what mixed_precision says. On a CPU that
            does not, it is float32 in any case. Validation is as mixed_precision says.
        log_every: updates between lines in metrics.jsonl.
        eval_every: updates between validations; null validates after each epoch only.
        save_every: updates between checkpoints to resume from; null saves one after each epoch.
        keep_checkpoints: how many checkpoints to keep.
        save_epochs: keep the model of each epoch, in epochs/1 and so on.
        tracker: also report metrics to an Accelerate tracker, such as "tensorboard".
        threads: of one process on a CPU: their number, or "auto" to measure which number is fastest; see
            `ThreadChooser`. On a GPU and with several processes torch's own number is kept.
    """

    epochs: int = setting(5, above=0, may_change=True)
    max_steps: int | None = setting(None, above=0, may_change=True)
    batch_size: int = setting(16, above=0)
    tokens_per_batch: int | None = setting(None, above=0)
    gradient_accumulation: int = setting(1, above=0)
    optimizer: Literal["adam", "rmsprop"] = "adam"
    learning_rate: float = setting(1e-3, above=0)
    weight_decay: float = setting(0.0, at_least=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = setting(0, at_least=0)
    decay_steps: int = setting(0, at_least=0, may_change=True)
    max_grad_norm: float | None = setting(None, above=0)
    on_nan: Literal["stop", "skip"] = setting("stop", may_change=True)
    temperature_decay: float = setting(0.0, at_least=0)
    temperature_minimum: float = setting(0.5, above=0)
    mixed_precision: Literal["no", "bf16", "fp16"] | None = None
    loss_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    log_every: int = setting(50, above=0, may_change=True)
    eval_every: int | None = setting(None, above=0, may_change=True)
    save_every: int | None = setting(None, above=0, may_change=True)
    keep_checkpoints: int = setting(2, above=0, may_change=True)
    save_epochs: bool = setting(False, may_change=True)
    tracker: str | None = setting(None, may_change=True)
    threads: Literal["auto"] | int = setting("auto", above=0, may_change=True)


@dataclass(frozen=True)
class RunConfig(BaseConfig):
    """A language model's training run."""

    output_dir: str = setting("runs/generated", may_change=True)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: LoopConfig = field(default_factory=LoopConfig)

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        if self.data.streaming and self.training.max_steps is None:
            raise InputError("data.streaming needs training.max_steps: the length of a stream is not known")
        if self.data.streaming and self.data.validation is None and self.data.held_out >= 1:
            raise InputError(
                f"data.held_out of a stream is a share of its documents, below 1; got {self.data.held_out:g}"
            )
        if self.data.streaming and self.data.limit is not None:
            raise InputError("data.limit is not for a stream, which goes by training.max_steps")
        if self.data.streaming and self.data.held_out_seed is not None:
            raise InputError("data.held_out_seed is not for a stream, of which every run holds out the same documents")
        if self.training.decay_steps and self.training.schedule != "constant":
            raise InputError(
                "training.decay_steps is the end of a constant learning rate, so training.schedule must be constant; "
                f"got {self.training.schedule}"
            )
        tokens = self.training.tokens_per_batch
        if tokens is not None and self.data.mode == "continuous":
            raise InputError("training.tokens_per_batch is for sentences; continuous text goes by batch_size")
        if tokens is not None and tokens < self.data.max_length:
            raise InputError(
                f"training.tokens_per_batch must be at least data.max_length, {self.data.max_length}; got {tokens}"
            )


@dataclass(frozen=True)
class VocabularyConfig:
    """The word-level vocabulary, from the training sentences.

    Attributes:
        vocab_size: most frequent words to keep.
        lowercase: "none", "first_word" of each sentence, or "all".
    """

    vocab_size: int = setting(10_000, above=0)
    lowercase: Lowercase = "none"


@dataclass(frozen=True)
class NumberDataConfig(BaseDataConfig):
    """What to train, stop and test on: files of the number prediction task (Linzen et al. 2016).

    Attributes:
        train: the file to train on.
        test: files to report accuracies on, which have no part in training.
        limit: maximum number of training sentences, taken from the start; null for all.
        max_length: longest sentence, in words; of longer ones the beginning is cut off, as the verb is at the end.
    """

    train: str = "numpred.train"
    test: list[str] = field(default_factory=list)
    limit: int | None = setting(None, above=0)
    max_length: int = setting(200, above=0)


@dataclass(frozen=True)
class NumberPredictionLoopConfig:
    """How to train.

    Attributes:
        epochs: maximum number of passes over the training sentences.
        patience: stop after this number of epochs without a lower validation loss; the best epoch's model is kept.
        batch_size: sentences in a batch, on each process.
        learning_rate: of Adam.
        weight_decay: of AdamW, decoupled from the gradient.
        max_grad_norm: clip gradients to this norm; null does not.
        mixed_precision: "no", "bf16" or "fp16".
        threads: see `LoopConfig`.
    """

    epochs: int = setting(50, above=0, may_change=True)
    patience: int = setting(5, above=0, may_change=True)
    batch_size: int = setting(16, above=0)
    learning_rate: float = setting(1e-3, above=0)
    weight_decay: float = setting(0.0, at_least=0)
    max_grad_norm: float | None = setting(None, above=0)
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    threads: Literal["auto"] | int = setting("auto", above=0, may_change=True)


@dataclass(frozen=True)
class NumberPredictionConfig(BaseConfig):
    """A number prediction classifier's training run."""

    output_dir: str = setting("runs/number", may_change=True)
    tokenizer: VocabularyConfig = field(default_factory=VocabularyConfig)
    data: NumberDataConfig = field(default_factory=NumberDataConfig)
    training: NumberPredictionLoopConfig = field(default_factory=NumberPredictionLoopConfig)

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "num_labels", "id2label", "label2id")

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        if not all(isinstance(path, str) for path in self.data.test):
            raise InputError(f"data.test must be a list of paths; got {self.data.test!r}")
