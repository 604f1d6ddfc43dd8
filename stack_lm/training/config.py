"""Configurations of the trainers: dataclasses whose field types define the allowed values."""

from __future__ import annotations

import dataclasses
import glob
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from ..checks import Count, CountOrZero, Integer, NotNegative, Positive, Probability, check_fields
from ..data.files import UNPACKERS
from ..data.text import Segmentation
from ..errors import InputError
from ..parsing.ensemble import OUTLIER_SHARE
from ..tokenization import Lowercase, SubwordKind, check_subwords

# For fields whose value a resumed run may change.
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

    def registered_names(self) -> dict[str, list[str]]:
        """The names, by kind, that the run looks up in registries and that plug-ins may have registered."""
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
    """

    pretrained: str | None = None
    kind: Literal["word", SubwordKind] = "word"
    vocab_size: Count = 10_000
    lowercase: Lowercase = "first_word"
    split_digits: bool = False

    def that_of(self, initial_model: str | None) -> Self:
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

            try:
                find_tokenizer(self.pretrained)
            except InputError as error:
                raise InputError(f"cannot load a tokenizer from {self.pretrained or repr('')}: {error}") from error
            return
        if self.kind == "word":
            if self.split_digits:
                raise InputError("tokenizer.split_digits needs tokenizer.kind bpe or unigram; got word")
            return
        check_subwords(self.kind, self.vocab_size)


@dataclass(frozen=True)
class TokenizerConfig(BaseTokenizerConfig):
    """The tokenizer: an existing one, or one that is trained on the corpus.

    Attributes:
        tag_rare_words: for words: replace words outside the vocabulary with their part-of-speech tags, if the corpus
            has tags.
        add_bos: begin sentences with a beginning token (`<s>` if the tokenizer is trained).
        add_eos: end sentences with an end token (`</s>` if the tokenizer is trained).
        sentences: for a stream, number of sentences to train the tokenizer on.
    """

    tag_rare_words: bool = False
    add_bos: bool = True
    add_eos: bool = True
    sentences: Count = 1_000_000

    def check(self) -> None:
        """See `BaseTokenizerConfig.check`."""
        super().check()
        if self.pretrained is None and self.kind != "word" and self.tag_rare_words:
            raise InputError(f"tokenizer.tag_rare_words needs tokenizer.kind word; got {self.kind}, with no rare words")


@dataclass(frozen=True)
class DataConfig(BaseDataConfig):
    """The text of a language model's run.

    Attributes:
        source: the training text; see `stack_lm.data.open_corpus` for all sources.
        split: split of the source.
        segmentation: form of the text: "lines" (one sentence a line), "paragraphs" (several sentences a line, words
            separated by spaces), "raw" (ordinary text) or "articles" (without lines that end in no punctuation). null
            takes the source's default.
        column: column of a table or key of JSON objects that has the text. null takes `text`, `sentence`, or the only
            column of text.
        mode: "sentences" batches sentences of similar length; "continuous" reads documents from beginning to end,
            `batch_size` of them side by side, and carries the state on.
        sequence_length: for continuous text, steps in an update (truncated backpropagation through time).
        streaming: read files or a hub dataset as a stream, never whole.
        validation_split: split of the validation source.
        validation_limit: maximum number of validation sentences, or documents. Of what is held out of a stream, null is
            5,000 sentences, or 200 documents.
        limit: read at most this many sentences, or documents, from the start of the training text, those that are held
            out included. Not for a stream.
        max_length: maximum length of a sentence, in tokens; the rest is cut off. Continuous text is not cut.
        pool: for a stream, approximate number of sentences (of 100 characters) held in memory and sorted by length.
        workers: for a stream, processes that read and tokenize, for each process that trains. 0 uses none.
    """

    source: str = "generated"
    split: str = "train"
    segmentation: Segmentation | None = None
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
    """The settings of every trainer.

    Attributes:
        epochs: passes over the training sentences. A stream ends by `max_steps` instead.
        max_steps: maximum number of updates.
        patience: early stopping: validations in a row without a lower loss before the run stops; the model is then that
            of the best validation. null trains to the end and keeps the last model.
        batch_size: sentences in a batch, per process; of continuous text, documents side by side.
        gradient_accumulation: batches in an update, per process.
        optimizer: optimizer; Adam, AdamW, RMSprop or SGD.
        learning_rate: highest learning rate.
        weight_decay: weight decay: an L2 term in the gradient; AdamW decouples it.
        schedule: course of the learning rate after the warm-up.
        warmup_steps: updates over which the learning rate rises.
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
        save_every: updates between checkpoints; null saves one after each epoch.
        keep_checkpoints: number of checkpoints to keep; with `patience`, the best one is kept too.
        save_epochs: keep each epoch's model in epochs/N.
        tracker: an Accelerate tracker that gets the metrics too, such as "tensorboard" (needs `stack-lm[tracking]`).
        threads: threads of a single process on a CPU: a number, or "auto" to measure the fastest. On a GPU and with
            several processes, torch's own number is kept.
        initial_model: a model, a directory or a name on the hub, whose weights the run begins with. Its tokenizer, and
            the fields of its configuration that `model` does not set, are the run's. null begins with random weights.
        freeze: weights to leave as they are, by the names of modules or of single weights, such as [model.cell].
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
    initial_model: str | None = None
    freeze: list[str] = field(default_factory=list, metadata=MAY_CHANGE)

    def check(self) -> None:
        """Reject settings that conflict.

        Raises:
            InputError: naming them.
        """
        if self.decay_steps and self.schedule != "constant":
            raise InputError(
                "training.decay_steps is the end of a constant learning rate, so training.schedule must be constant; "
                f"got {self.schedule}"
            )
        if self.initial_model is not None:
            from ..hub.locating import find_models

            try:
                find_models(self.initial_model, what="model")
            except InputError as error:
                raise InputError(f"training.initial_model: {error}") from error


@dataclass(frozen=True)
class LoopConfig(BaseLoopConfig):
    """The training of a language model.

    Attributes:
        tokens_per_batch: tokens in a batch of sentences, padding included, per process; replaces `batch_size`.
        loss_dtype: type of the matrix products of the loss and its gradients. "auto" follows
            `mixed_precision` if that is set, and on a GPU; otherwise it is bfloat16 on a CPU that multiplies it
            natively. Other CPUs compute in float32, also with "bfloat16".
        softmax_samples: estimate the loss, in training, from the words of each batch and this number of others; null
            computes the whole softmax.
    """

    tokens_per_batch: Count | None = None
    loss_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    softmax_samples: Count | None = field(default=None, metadata=MAY_CHANGE)


def _name_of(source: str) -> str:
    """A file name for what is made of a source: the name of its file without endings, or the source itself."""
    name = source
    if ":" not in source:
        name = next((part for part in reversed(Path(source).parts) if not glob.has_magic(part)), "")
        if Path(name).suffix.lower() in UNPACKERS:
            name = Path(name).stem
        name = Path(name).stem
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "text"


@dataclass(frozen=True)
class TextRunConfig(BaseConfig):
    """A training run on text; the classes of the sections differ from run to run."""

    tokenizer: BaseTokenizerConfig = field(default_factory=BaseTokenizerConfig)
    data: BaseDataConfig = field(default_factory=BaseDataConfig)
    training: BaseLoopConfig = field(default_factory=BaseLoopConfig)

    def __post_init__(self) -> None:
        """Take the tokenizer of the initial model."""
        object.__setattr__(self, "tokenizer", self.tokenizer.that_of(self.training.initial_model))

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        self.training.check()
        self.tokenizer.check()


# Fields of `model` with which it is not the default network, the u1 of Merrill et al. (2019), or starts otherwise.
_NETWORK = {
    "model_type",
    "architectures",
    "layers",
    "memory",
    "push_control",
    "pop_control",
    "push_strength_init",
    "bias",
}


@dataclass(frozen=True)
class RunConfig(TextRunConfig):
    """A language model's training run.

    Attributes:
        model: as in every run. The default network's push starts at half an element, as in the presets: from the middle
            of its range it makes worse trees.
        output_dir: the run's directory: the model, its tokenizer, metrics and checkpoints. By default it is named after
            `data.source`: runs/my_text for texts/my_text.txt, runs/nltk-brown for nltk:brown.
    """

    output_dir: str = field(default=None, metadata=MAY_CHANGE)  # type: ignore[assignment]  # `__post_init__` fills it
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        """Name the directory after the text, take the tokenizer of the initial model, and start the default network."""
        if self.output_dir is None:
            object.__setattr__(self, "output_dir", f"runs/{_name_of(str(self.data.source))}")
        if self.training.initial_model is None and not _NETWORK & self.model.keys():
            object.__setattr__(self, "model", self.model | {"push_strength_init": 0.5})
        super().__post_init__()

    def registered_names(self) -> dict[str, list[str]]:
        """See `BaseConfig.registered_names`."""
        sources = (self.data.source, self.data.validation or "")
        return super().registered_names() | {"corpus": [source.partition(":")[0] for source in sources]}

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
            raise InputError("data.limit is not for a stream, which training.max_steps limits")
        if self.data.streaming and self.data.held_out_seed is not None:
            raise InputError("data.held_out_seed is not for a stream, of which every run holds out the same documents")
        tokens = self.training.tokens_per_batch
        if tokens is not None and self.data.mode == "continuous":
            raise InputError("training.tokens_per_batch is for sentences; continuous text uses batch_size")
        if tokens is not None and tokens < self.data.max_length:
            raise InputError(
                f"training.tokens_per_batch must be at least data.max_length, {self.data.max_length}; got {tokens}"
            )


@dataclass(frozen=True)
class ClassificationTokenizerConfig(BaseTokenizerConfig):
    """The tokenizer: an existing one, or one that is trained on the training texts."""

    lowercase: Lowercase = "none"


@dataclass(frozen=True)
class ClassificationDataConfig(BaseDataConfig):
    """The data of a classifier: tables with a text and a label in each row, or files of the number prediction task.

    A file without the ending of a table (.csv, .tsv, .jsonl, .json, .parquet) is one of number prediction (Linzen et
    al. 2016).

    Attributes:
        train: file to train on; it has to be named.
        test: file, or list of files, to test on after training.
        column: column of tables that has the texts; null takes `text`, `sentence`, or the only column of text.
        label_column: column of tables that has the labels, strings or integers.
        limit: read at most this many texts from the start of the training file, those that are held out included.
        max_length: maximum length of a text, in tokens; the beginning of a longer one is cut off, as the verb comes
            last.
    """

    train: str = ""
    test: list[str] | str = field(default_factory=list)
    column: str | None = None
    label_column: str = "label"
    limit: Count | None = None
    max_length: Count = 200


@dataclass(frozen=True)
class ClassificationLoopConfig(BaseLoopConfig):
    """The training of a classifier of texts: AdamW, until the validation loss stops falling."""

    epochs: Count = field(default=50, metadata=MAY_CHANGE)
    patience: Count | None = field(default=5, metadata=MAY_CHANGE)
    optimizer: Literal["adam", "adamw", "rmsprop"] = "adamw"


@dataclass(frozen=True)
class ClassificationConfig(TextRunConfig):
    """A training run of a classifier of texts."""

    output_dir: str = field(default="runs/classifier", metadata=MAY_CHANGE)
    tokenizer: ClassificationTokenizerConfig = field(default_factory=ClassificationTokenizerConfig)
    data: ClassificationDataConfig = field(default_factory=ClassificationDataConfig)
    training: ClassificationLoopConfig = field(default_factory=ClassificationLoopConfig)

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "pad_token_id", "num_labels", "id2label", "label2id")

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        if not self.data.train:
            raise InputError("data.train must name a file of labelled texts: data.train=reviews.csv")
        if self.data.column == self.data.label_column:
            raise InputError(f"data.column and data.label_column must differ; got {self.data.column!r} for both")


@dataclass(frozen=True)
class TreesConfig(BaseDataConfig):
    """The trees of a span parser's run.

    Attributes:
        trees: a file of trees, such as a treebank; or files of trees of the same sentences, one for each voter:
            bracketed trees, one a line, or JSON lines, as `stack-lm parse --output` writes them. A pattern of names,
            such as "trees/*.mrg", is several files. A sentence with an empty line in one of them is left out.
        validation: such a file, or files, of other sentences; null holds out some of the sentences.
        prior: trees that vote too, except in `validation`: "right-branching", or null for none.
        prior_votes: the number of votes that they have.
        outlier_share: a file whose mean F1 with the others is below this share of the median has no vote, usually
            because its model failed; 0 lets all vote. At least half of the files, and two, always vote.
        limit: maximum number of training sentences, from the start, without those that are held out.
    """

    trees: list[str] | str = field(default_factory=list)
    validation: list[str] | str | None = None  # type: ignore[assignment]
    prior: Literal["right-branching"] | None = None
    prior_votes: Count = 1
    outlier_share: Probability = OUTLIER_SHARE
    limit: Count | None = None


@dataclass(frozen=True)
class SpanParserTokenizerConfig(TokenizerConfig):
    """The tokenizer: subwords, so that no word is unknown, unless it says otherwise."""

    kind: Literal["word", SubwordKind] = "bpe"


@dataclass(frozen=True)
class SpanParserLoopConfig(BaseLoopConfig):
    """The training of a span parser."""

    batch_size: Count = 32
    max_grad_norm: Positive | None = 5.0


@dataclass(frozen=True)
class SpanParserTrainingConfig(TextRunConfig):
    """A training run of a parser that scores spans."""

    output_dir: str = field(default="runs/parser", metadata=MAY_CHANGE)
    tokenizer: SpanParserTokenizerConfig = field(default_factory=SpanParserTokenizerConfig)
    data: TreesConfig = field(default_factory=TreesConfig)
    training: SpanParserLoopConfig = field(default_factory=SpanParserLoopConfig)

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        if not self.data.trees:
            raise InputError("data.trees must name a file of trees, or one for each voter: data.trees=[a.mrg, b.mrg]")
        if self.data.prior_votes > 1 and self.data.prior is None:
            raise InputError("data.prior_votes needs data.prior: data.prior=right-branching")
