"""The common part of the configurations of all trainers: dataclasses whose field types define the allowed values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from ..core.checks import Count, CountOrZero, Integer, NotNegative, Positive, check_fields
from ..core.errors import InputError
from ..core.messages import explaining
from ..text.tokenization import Lowercase, SubwordKind, check_subwords

# For fields whose value a resumed run may change.
MAY_CHANGE = {"may_change": True}


def resume_invariants(config: Any) -> dict[str, Any]:
    """The values that a resumed run must share with the run that it resumes."""
    kept = (entry.name for entry in dataclasses.fields(config) if not entry.metadata.get("may_change"))
    return {name: _plain(getattr(config, name)) for name in kept}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return resume_invariants(value) if dataclasses.is_dataclass(value) else value


def differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The keys, with their parents, in which two mappings differ, and both values; None is a missing value."""
    for key in {**before, **now}:
        one, other = before.get(key), now.get(key)
        if isinstance(one, Mapping) or isinstance(other, Mapping):
            one, other = ({} if value is None else value for value in (one, other))
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from differences(one, other, f"{prefix}{key}.")
        elif one != other:
            yield f"{prefix}{key}", one, other


@dataclass(frozen=True)
class BaseConfig:
    """A training run: everything that decides its outcome.

    Attributes:
        output_dir: the run's directory: the model, its tokenizer, metrics and checkpoints.
        seed: seed of the initial weights, dropout, the order of batches and, without `held_out_seed`, the choice of
            held-out sentences.
        model: fields of the model's configuration, except those that the data decide. `model_type` selects another
            registered kind of model (see `stack_lm.register_model`).
    """

    output_dir: str = field(default="runs/model", metadata=MAY_CHANGE)
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 0
    model: dict[str, Any] = field(default_factory=dict)

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size",)

    def check(self) -> None:
        """Reject values that cannot work.

        Raises:
            InputError: naming the key.
        """
        check_fields(self)
        if not self.output_dir:
            raise InputError("output_dir must name a directory; it is empty")
        for key in self.FROM_DATA:
            if key in self.model:
                raise InputError(f"model.{key} cannot be set: it comes from the data")

    def find_data(self) -> None:
        """Look for the files of the data, which needs no slow import.

        Raises:
            InputError: naming the first that does not exist.
        """


@dataclass(frozen=True)
class BaseDataConfig:
    """The validation data of a run.

    Attributes:
        validation: source of the validation sentences; null holds out part of the training source.
        held_out: number of sentences to hold out (of continuous text: documents) if 1 or more, else their share. Of a
            stream, the share of its documents.
        held_out_seed: seed of that choice; null takes `seed`. Runs with different seeds and the same `held_out_seed`
            validate on the same sentences. Not for a stream: all its runs hold out the same documents.
    """

    validation: str | None = None
    held_out: Positive = 0.1
    held_out_seed: CountOrZero | None = None

    def split_seed(self, run_seed: int) -> int:
        """The seed of the choice of held-out sentences."""
        return run_seed if self.held_out_seed is None else self.held_out_seed


@dataclass(frozen=True)
class BaseTokenizerConfig:
    """The tokenizer: an existing one, or one that is trained.

    Attributes:
        pretrained: an existing fast tokenizer: a directory, a tokenizer.json, or a name on the hub. null trains one.
        kind: kind of tokenizer to train: "word" keeps the most frequent words; "bpe" and "unigram" make subwords.
        vocab_size: number of words to keep, or maximum number of subwords; special tokens are added to them.
        lowercase: words to lower-case: "none", the "first_word" of each sentence, or "all".
        split_digits: for subwords: one token for each digit.
        detokenize: for subwords: read a treebank's tokens as ordinary text, "do n't ." as "don't.", and generate such.
    """

    pretrained: str | None = None
    kind: Literal["word", SubwordKind] = "word"
    vocab_size: Count = 10_000
    lowercase: Lowercase = "first_word"
    split_digits: bool = False
    detokenize: bool = False

    def with_initial_model(self, initial_model: str | None) -> Self:
        """The tokenizer of a run that begins with a model: that model's, unless another is named."""
        if initial_model is None or self.pretrained is not None:
            return self
        return dataclasses.replace(self, pretrained=initial_model)

    def check(self) -> None:
        """Reject settings that conflict.

        Raises:
            InputError: naming them.
        """
        if self.pretrained is not None:
            from ..hub.tokenizers import find_tokenizer

            with explaining(f"cannot load a tokenizer from {self.pretrained or repr('')}", InputError):
                find_tokenizer(self.pretrained)
            return
        if self.kind == "word":
            for key in ("split_digits", "detokenize"):
                if getattr(self, key):
                    raise InputError(f"tokenizer.{key} needs tokenizer.kind bpe or unigram; got word")
            return
        check_subwords(self.kind, self.vocab_size)


@dataclass(frozen=True)
class BaseLoopConfig:
    """The settings of every trainer.

    Attributes:
        epochs: passes over the training sentences. A stream ends by `max_steps` instead.
        max_steps: maximum number of updates.
        patience: early stopping: validations in a row without a lower loss before the run stops; the model is then that
            of the best validation. null trains to the end and keeps the last model.
        batch_size: sentences in a batch, per process; of continuous text, documents side by side.
        gradient_accumulation: batches in an update, per process.
        optimizer: a class of torch.optim, in any case ("adam", "adamw", "adafactor"), or one of an installed package
            by its import path ("bitsandbytes.optim.AdamW8bit").
        optimizer_settings: further arguments of its class, such as {betas: [0.9, 0.95]}.
        learning_rate: highest learning rate.
        weight_decay: weight decay of all parameters, biases and norms included: an L2 term in the gradient; AdamW
            decouples it.
        schedule: course of the learning rate after the warm-up.
        warmup_steps: updates over which the learning rate rises; it is 0 in the first, as in transformers.
        decay_steps: updates at the end over which a constant learning rate falls linearly to 0. A run can be resumed
            with it from any earlier checkpoint.
        max_grad_norm: maximum norm of the gradient; null does not clip.
        on_nan: at a loss that is not finite, "stop" the run; or "skip" updates whose loss or gradients are not finite.
        temperature_decay: factor exp(-decay) by which each sentence multiplies the temperature of controls that have
            one.
        temperature_minimum: lowest temperature.
        mixed_precision: precision of training; null takes the setting of `accelerate launch`.
        log_every: updates between lines of metrics.jsonl.
        eval_every: updates between validations within an epoch; null validates after each epoch only.
        save_every: updates between checkpoints; null saves one after each epoch and, within an epoch, half an hour
            after the last.
        keep_checkpoints: number of checkpoints to keep; with `patience`, the best one is kept too.
        save_epochs: keep the model after each epoch, in epochs/N; or after those of a list, also parts of one, such as
            [0.1, 0.5, 1, 2], which a stream has not.
        tracker: an Accelerate tracker that gets the metrics too, such as "tensorboard" (needs `stack-lm[tracking]`).
        threads: threads of a single process on a CPU: a number, or "auto" for torch's number, up to 8. On a GPU and
            with several processes, torch's own number is kept.
        initial_model: a model, a directory or a name on the hub, whose weights the run begins with. Its tokenizer, and
            the fields of its configuration that `model` does not set, are the run's. null begins with random weights.
        freeze: weights to leave as they are, by the names of modules or of single weights, such as [model.cell].
    """

    epochs: Count = field(default=5, metadata=MAY_CHANGE)
    max_steps: Count | None = field(default=None, metadata=MAY_CHANGE)
    patience: Count | None = field(default=None, metadata=MAY_CHANGE)
    batch_size: Count = 16
    gradient_accumulation: Count = 1
    optimizer: str = "adam"
    optimizer_settings: dict[str, Any] = field(default_factory=dict)
    learning_rate: Positive = field(default=1e-3, metadata=MAY_CHANGE)
    weight_decay: NotNegative = 0.0
    schedule: Literal["constant", "linear", "cosine"] = field(default="constant", metadata=MAY_CHANGE)
    warmup_steps: CountOrZero = field(default=0, metadata=MAY_CHANGE)
    decay_steps: CountOrZero = field(default=0, metadata=MAY_CHANGE)
    max_grad_norm: Positive | None = None
    on_nan: Literal["stop", "skip"] = field(default="stop", metadata=MAY_CHANGE)
    temperature_decay: NotNegative = 0.0
    temperature_minimum: Positive = 0.5
    mixed_precision: Literal["no", "bf16", "fp16"] | None = None
    log_every: Count = field(default=50, metadata=MAY_CHANGE)
    eval_every: Count | None = field(default=None, metadata=MAY_CHANGE)
    save_every: Count | None = field(default=None, metadata=MAY_CHANGE)
    keep_checkpoints: Count = field(default=2, metadata=MAY_CHANGE)
    save_epochs: bool | list[Positive] = field(default=False, metadata=MAY_CHANGE)
    tracker: str | None = field(default=None, metadata=MAY_CHANGE)
    threads: Literal["auto"] | Count = field(default="auto", metadata=MAY_CHANGE)
    initial_model: str | None = None
    freeze: list[str] = field(default_factory=list, metadata=MAY_CHANGE)

    def check(self) -> None:
        """Reject settings that conflict.

        Raises:
            InputError: naming them.
        """
        if self.decay_steps and self.schedule != "constant":
            raise InputError(f"training.decay_steps needs training.schedule constant; got {self.schedule}")
        if self.initial_model is not None:
            from ..hub.locating import find_models

            find_models(self.initial_model, what="model")


@dataclass(frozen=True)
class TextRunConfig(BaseConfig):
    """A training run on text; the classes of the sections differ from run to run."""

    tokenizer: BaseTokenizerConfig = field(default_factory=BaseTokenizerConfig)
    data: BaseDataConfig = field(default_factory=BaseDataConfig)
    training: BaseLoopConfig = field(default_factory=BaseLoopConfig)

    def __post_init__(self) -> None:
        """Take the tokenizer of the initial model."""
        object.__setattr__(self, "tokenizer", self.tokenizer.with_initial_model(self.training.initial_model))

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        self.training.check()
        self.tokenizer.check()
