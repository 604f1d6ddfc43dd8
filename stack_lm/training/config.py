"""The configurations of the trainers of language models, classifiers and span parsers."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from ..core.checks import Count, Integer, Positive, Probability
from ..core.errors import InputError
from ..parsing.ensemble import OUTLIER_SHARE
from ..text.files import UNPACKERS, check_file
from ..text.plain import Segmentation
from ..text.records import is_pattern
from ..text.sources import find_source
from ..text.tokenization import Lowercase, SubwordKind
from .base_config import MAY_CHANGE, BaseDataConfig, BaseLoopConfig, BaseTokenizerConfig, TextRunConfig


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
        source: the training text; see `stack_lm.text.open_corpus` for all sources.
        split: split of the source.
        segmentation: form of the text: "lines" (one sentence a line), "paragraphs" (several sentences a line, words
            separated by spaces), "raw" (ordinary text) or "articles" (without lines that end in no punctuation). null
            takes the source's default.
        column: column of a table or key of JSON objects that has the text. null takes `text`, `sentence`, or the only
            column of text.
        mode: "sentences" reads sentences by themselves; "continuous" reads documents from beginning to end,
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
class LoopConfig(BaseLoopConfig):
    """The training of a language model.

    Attributes:
        tokens_per_batch: tokens in a batch of sentences, padding included, per process; replaces `batch_size`.
        packing: take sentences of all lengths into a batch, end to end in one row without padding; by default they are
            of similar length. Updates are better and take a little longer: see docs/scaling.md.
        loss_dtype: type of the matrix products of the loss and its gradients. "auto" follows
            `mixed_precision` if that is set, and on a GPU; otherwise it is bfloat16 on a CPU that multiplies it
            natively. Other CPUs compute in float32, also with "bfloat16".
        softmax_samples: estimate the loss, in training, from the words of each batch and this number of others; null
            computes the whole softmax.
    """

    tokens_per_batch: Count | None = None
    packing: bool = False
    loss_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    softmax_samples: Count | None = field(default=None, metadata=MAY_CHANGE)


def listed(paths: list[str] | str) -> list[str]:
    """The paths of a field that has one or several."""
    return [paths] if isinstance(paths, str) else paths


def _name_of(source: str) -> str:
    """A file name for what is made of a source: the name of its file without endings, or the source itself."""
    name = source
    if ":" not in source:
        name = next((part for part in reversed(Path(source).parts) if not glob.has_magic(part)), "")
        if Path(name).suffix.lower() in UNPACKERS:
            name = Path(name).stem
        name = Path(name).stem
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "text"


# Fields of `model` with which it is not the default network, the u = 1 of Merrill et al. (2019); with their values, by
# which they may also be named. With both strengths free, little text drives the pop to zero in every seed.
_NETWORK = {
    "model_type": "stack_rnn",
    "architectures": None,
    "layers": None,
    "memory": "stack",
    "push_control": "expected_value",
    "pop_control": 1,
    "bias": True,
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
        default = all(self.model.get(name, value) == value for name, value in _NETWORK.items())
        if self.training.initial_model is None and default and "push_strength_init" not in self.model:
            object.__setattr__(self, "model", self.model | {"push_strength_init": 0.5})
        super().__post_init__()

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        data, tokens = self.data, self.training.tokens_per_batch
        if data.streaming:
            if self.training.max_steps is None:
                raise InputError("data.streaming needs training.max_steps: the length of a stream is not known")
            if data.validation is None and data.held_out >= 1:
                raise InputError(f"data.held_out of a stream must be a share below 1; got {data.held_out:g}")
            if data.limit is not None:
                raise InputError("data.limit is not for a stream, which training.max_steps limits")
            if data.held_out_seed is not None:
                raise InputError("data.held_out_seed is not for a stream: every run holds out the same documents of it")
        if tokens is not None and data.mode == "continuous":
            raise InputError("training.tokens_per_batch is for sentences; continuous text uses batch_size")
        if self.training.packing and data.mode == "continuous":
            raise InputError("training.packing is for sentences; continuous text has no padding")
        if tokens is not None and tokens < data.max_length:
            most = data.max_length
            raise InputError(f"training.tokens_per_batch must be at least data.max_length, {most}; got {tokens}")

    def find_data(self) -> None:
        """See `BaseConfig.find_data`."""
        for source in filter(None, (self.data.source, self.data.validation)):
            find_source(source)


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
    optimizer: str = "adamw"


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

    def find_data(self) -> None:
        """See `BaseConfig.find_data`."""
        for path in filter(None, (self.data.train, self.data.validation, *listed(self.data.test))):
            check_file(path)


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

    def find_data(self) -> None:
        """See `BaseConfig.find_data`."""
        for path in (*listed(self.data.trees), *listed(self.data.validation or [])):
            if not is_pattern(path):
                check_file(path)
