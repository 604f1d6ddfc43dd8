"""Configurations of the trainers: dataclasses, the types of whose fields say what they allow."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from ..checks import Count, CountOrZero, Integer, NotNegative, Positive, check_fields
from ..errors import InputError
from ..tokenization import Lowercase, SubwordKind, check_subwords

# Of fields of which a resumed run may have another value.
MAY_CHANGE = {"may_change": True}


def settled(config: Any) -> dict[str, Any]:
    """The values that a resumed run must share with the run that it resumes."""
    values: dict[str, Any] = {}
    for entry in dataclasses.fields(config):
        value = getattr(config, entry.name)
        if not entry.metadata.get("may_change"):
            values[entry.name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return settled(value) if dataclasses.is_dataclass(value) else value


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

    output_dir: str = field(default="runs/model", metadata=MAY_CHANGE)
    seed: Annotated[int, Integer(0, 2**31 - 1)] = 0
    model: dict[str, Any] = field(default_factory=dict)

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size",)

    def check(self) -> None:
        """Find values that cannot work.

        Raises:
            InputError: that names the key.
        """
        check_fields(self)
        if not self.output_dir:
            raise InputError("output_dir must name a directory; it is empty")
        for key in self.FROM_DATA:
            if key in self.model:
                raise InputError(f"model.{key} cannot be set: it comes from the data")

    def registered_names(self) -> dict[str, list[str]]:
        """The names, by kind, that the run looks up in registries, where plug-ins may have put them."""
        layers = self.model.get("layers")
        each = [
            self.model,
            *(entry for entry in (layers if isinstance(layers, list) else ()) if isinstance(entry, dict)),
        ]
        return {
            "memory": [str(fields.get("memory", "")) for fields in each],
            "model_type": [self.model.get("model_type", "")],
        }


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
    held_out: Positive = 0.1
    held_out_seed: CountOrZero | None = None

    def split_seed(self, run_seed: int) -> int:
        """The seed of the choice of held-out sentences."""
        return run_seed if self.held_out_seed is None else self.held_out_seed


@dataclass(frozen=True)
class TokenizerConfig:
    """Where the tokenizer comes from.

    Attributes:
        pretrained: an existing tokenizer: a directory, a tokenizer.json, or a name on the hub; otherwise one is made.
        kind: which: "word", with the most frequent words, or of parts of words, "bpe" or "unigram".
        vocab_size: most frequent words, or most parts of words, to keep.
        lowercase: "none", "first_word" of each sentence, or "all"; see `stack_lm.tokenization.case_rule`.
        split_digits: of parts of words: a token for each digit.
        tag_rare_words: of words: put part-of-speech tags in the place of those outside the vocabulary.
        add_bos: begin sentences with the tokenizer's beginning token; one made here has one (`<s>`).
        add_eos: likewise end them with its end token (`</s>`).
        sentences: of a stream, how many sentences to make the tokenizer of.
    """

    pretrained: str | None = None
    kind: Literal["word", SubwordKind] = "word"
    vocab_size: Count = 10_000
    lowercase: Lowercase = "first_word"
    split_digits: bool = False
    tag_rare_words: bool = False
    add_bos: bool = True
    add_eos: bool = True
    sentences: Count = 1_000_000

    def check(self) -> None:
        """Find settings that do not go together.

        Raises:
            InputError: that names them.
        """
        if self.pretrained is not None:
            from ..hub.tokenizers import find_tokenizer

            try:
                find_tokenizer(self.pretrained)
            except InputError as error:
                raise InputError(f"cannot load a tokenizer from {self.pretrained or repr('')}: {error}") from error
            return
        if self.kind == "word":
            if self.split_digits:
                raise InputError("tokenizer.split_digits needs tokenizer.kind bpe or unigram; got word")
            return
        if self.tag_rare_words:
            raise InputError(f"tokenizer.tag_rare_words needs tokenizer.kind word; got {self.kind}, with no rare words")
        check_subwords(self.kind, self.vocab_size)


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
    column: str | None = None
    mode: Literal["sentences", "continuous"] = "sentences"
    sequence_length: Count = 64
    streaming: bool = False
    validation_split: str = "validation"
    validation_limit: Count | None = None
    limit: Count | None = None
    max_length: Annotated[int, Integer(2)] = 200
    pool: Count = 20_000
    workers: Annotated[int, Integer(0, 1024)] = field(default=1, metadata=MAY_CHANGE)


@dataclass(frozen=True)
class BaseLoopConfig:
    """How to train: the settings of every trainer.

    Attributes:
        epochs: passes over the training sentences; a stream goes by max_steps instead.
        max_steps: stop after this number of updates.
        patience: stop after this number of validations in a row without a lower loss than the best before, and take the
            model of the best; null trains to the end and takes the last.
        batch_size: sentences in a batch, on each process; of continuous text, documents next to each other.
        gradient_accumulation: batches in an update, on each process.
        optimizer: "adam", "adamw", "rmsprop" or "sgd".
        learning_rate: of the optimizer, at its highest.
        weight_decay: of the optimizer, as an L2 term in the gradient; of AdamW decoupled from it.
        schedule: of the learning rate, after the warm-up.
        warmup_steps: updates over which the learning rate rises.
        decay_steps: updates at the end over which a constant learning rate falls to 0, along a line. A run can be
            resumed with it from any checkpoint before them.
        max_grad_norm: clip gradients to this norm; null does not.
        on_nan: "stop" the run where a loss is not finite, or "skip" updates whose loss or gradients are not.
        temperature_decay: of controls with a temperature; see `TemperatureSchedule`. 0 leaves the temperature as it is.
        temperature_minimum: the lowest temperature.
        mixed_precision: "no", "bf16" or "fp16"; null takes what `accelerate launch` says.
        log_every: updates between lines in metrics.jsonl.
        eval_every: updates between validations; null validates after each epoch only.
        save_every: updates between checkpoints to resume from; null saves one after each epoch.
        keep_checkpoints: how many checkpoints to keep; with `patience` that of the best validation too.
        save_epochs: keep the model of each epoch, in epochs/1 and so on.
        tracker: also report metrics to an Accelerate tracker, such as "tensorboard".
        threads: of one process on a CPU: their number, or "auto" to measure which number is fastest; see
            `ThreadChooser`. On a GPU and with several processes torch's own number is kept.
    """

    epochs: Count = field(default=5, metadata=MAY_CHANGE)
    max_steps: Count | None = field(default=None, metadata=MAY_CHANGE)
    patience: Count | None = field(default=None, metadata=MAY_CHANGE)
    batch_size: Count = 16
    gradient_accumulation: Count = 1
    optimizer: Literal["adam", "adamw", "rmsprop", "sgd"] = "adam"
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 0.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: CountOrZero = 0
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
    save_epochs: bool = field(default=False, metadata=MAY_CHANGE)
    tracker: str | None = field(default=None, metadata=MAY_CHANGE)
    threads: Literal["auto"] | Count = field(default="auto", metadata=MAY_CHANGE)

    def check(self) -> None:
        """Find settings that do not go together.

        Raises:
            InputError: that names them.
        """
        if self.decay_steps and self.schedule != "constant":
            raise InputError(
                "training.decay_steps is the end of a constant learning rate, so training.schedule must be constant; "
                f"got {self.schedule}"
            )


@dataclass(frozen=True)
class LoopConfig(BaseLoopConfig):
    """How to train a language model.

    Attributes:
        tokens_per_batch: tokens in a batch of sentences, padding included, on each process, in place of batch_size.
        loss_dtype: of the matrix products of the loss and of its gradients, "float32" or "bfloat16". "auto" is bfloat16
            on a CPU that multiplies it natively; elsewhere what mixed_precision says. On a CPU that does not, it is
            float32 in any case. Validation is as mixed_precision says.
    """

    tokens_per_batch: Count | None = None
    loss_dtype: Literal["auto", "float32", "bfloat16"] = "auto"


@dataclass(frozen=True)
class RunConfig(BaseConfig):
    """A language model's training run."""

    output_dir: str = field(default="runs/generated", metadata=MAY_CHANGE)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: LoopConfig = field(default_factory=LoopConfig)

    def registered_names(self) -> dict[str, list[str]]:
        """See `BaseConfig.registered_names`."""
        sources = (self.data.source, self.data.validation or "")
        return super().registered_names() | {"corpus": [source.partition(":")[0] for source in sources]}

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        self.tokenizer.check()
        self.training.check()
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

    vocab_size: Count = 10_000
    lowercase: Lowercase = "none"


@dataclass(frozen=True)
class ClassificationDataConfig(BaseDataConfig):
    """What to train, stop and test on: tables with a text and a label in each row, or files of the number prediction
    task (Linzen et al. 2016), which are those that have no ending of a table (.csv, .tsv, .jsonl, .json, .parquet).

    Attributes:
        train: the file to train on.
        test: the file, or the files, to report scores on, which have no part in training.
        column: of tables, the one with the texts; null takes "text", "sentence", or the only one of text.
        label_column: of tables, the one with the labels: any strings, or integers.
        limit: maximum number of training sentences, taken from the start; null for all.
        max_length: longest sentence, in words; of longer ones the beginning is cut off, as the verb is at the end.
    """

    train: str = "numpred.train"
    test: list[str] | str = field(default_factory=list)
    column: str | None = None
    label_column: str = "label"
    limit: Count | None = None
    max_length: Count = 200


@dataclass(frozen=True)
class ClassificationLoopConfig(BaseLoopConfig):
    """How to train a classifier of texts: until the validation loss stops falling, with AdamW."""

    epochs: Count = field(default=50, metadata=MAY_CHANGE)
    patience: Count | None = field(default=5, metadata=MAY_CHANGE)
    optimizer: Literal["adam", "adamw", "rmsprop"] = "adamw"


@dataclass(frozen=True)
class ClassificationConfig(BaseConfig):
    """A training run of a classifier of texts."""

    output_dir: str = field(default="runs/classifier", metadata=MAY_CHANGE)
    tokenizer: VocabularyConfig = field(default_factory=VocabularyConfig)
    data: ClassificationDataConfig = field(default_factory=ClassificationDataConfig)
    training: ClassificationLoopConfig = field(default_factory=ClassificationLoopConfig)

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "pad_token_id", "num_labels", "id2label", "label2id")

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        if self.data.column == self.data.label_column:
            raise InputError(f"data.column and data.label_column must differ; got {self.data.column!r} for both")
        self.training.check()
