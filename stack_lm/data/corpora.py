"""The corpora that training and evaluation can name, opened by one function."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..errors import InputError
from .text import Segmenter, read_lines, read_table, text_files

SOURCES = (
    "generated[:N[:SEED]]",
    "nltk:NAME",
    "wikipedia[:CONFIG]",
    "wikitext[:CONFIG]",
    "hf:DATASET[:CONFIG]",
    "linzen:FILE.tsv",
    "a text file or directory",
    "- (standard input)",
)
# Short names of datasets on the hub: dataset, default configuration, how the text comes.
_HUB = {
    "wikipedia": ("wikimedia/wikipedia", "20231101.en", "raw"),
    "wikitext": ("Salesforce/wikitext", "wikitext-103-raw-v1", "paragraphs"),
}
GENERATED_SENTENCES = 20_000

Item = TypeVar("Item")


class Sentence(NamedTuple):
    """The words of a sentence and, where the corpus has them, their part-of-speech tags."""

    words: Sequence[str]
    tags: Sequence[str] | None = None


class Position(NamedTuple):
    """A place in a `DocumentStream`: a state of its dataset, and the sentences read of the document that follows."""

    documents: dict[str, Any] | None = None
    sentences: int = 0


class DocumentStream:
    """Sentences from the documents of a streaming dataset, readable from any position.

    Args:
        dataset: a `datasets.IterableDataset`.
        column: which holds a document's text.
        segmenter: from documents to sentences.
        keep: which documents to read.
    """

    def __init__(
        self,
        dataset: Any,
        column: str,
        segmenter: Segmenter,
        keep: Callable[[str], bool] = lambda document: True,
    ) -> None:
        self._dataset, self._column, self._segmenter, self._keep = dataset, column, segmenter, keep

    def shard(self, rank: int, n_processes: int) -> DocumentStream:
        """The part of the documents that one of several processes reads."""
        from datasets.distributed import split_dataset_by_node

        part = split_dataset_by_node(self._dataset, rank=rank, world_size=n_processes)
        return DocumentStream(part, self._column, self._segmenter, self._keep)

    def hold_out(self, share: float) -> tuple[DocumentStream, DocumentStream]:
        """Two streams: without a share of the documents, and of those alone.

        A hash of its text decides on a document, so the choice is the same for any order and number of processes.
        """

        def held(document: str) -> bool:
            digest = hashlib.blake2b(document.encode("utf-8", "replace"), digest_size=8).digest()
            return int.from_bytes(digest, "big") < share * 2**64

        parts = self._dataset, self._column, self._segmenter
        return DocumentStream(*parts, lambda document: not held(document)), DocumentStream(*parts, held)

    def read(self, position: Position | None = None) -> Iterator[tuple[Sentence, Position]]:
        """The sentences from a position on, each with the position behind it."""
        documents, skip = position or Position()
        self._dataset.load_state_dict(documents)
        for document in self._dataset:
            text = document[self._column]
            for i, words in enumerate(self._segmenter(text) if self._keep(text) else (), start=1):
                if i > skip:
                    yield Sentence(words), Position(documents, i)
            documents, skip = self._dataset.state_dict(), 0


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentences that can be iterated over again and again.

    Attributes:
        name: the source as it was asked for.
        sentences: starts an iteration.
        stream: the same as a stream, where the corpus may be too large for memory.
    """

    name: str
    sentences: Callable[[], Iterable[Sentence]]
    stream: DocumentStream | None = None

    def __iter__(self) -> Iterator[Sentence]:
        empty = True
        for sentence in self.sentences():
            empty = False
            yield sentence
        if empty:
            raise InputError(f"the corpus {self.name} has no sentences")


def open_corpus(
    source: str = "generated", *, split: str = "train", segmentation: str | None = None, column: str = "text"
) -> Corpus:
    """Open a corpus by name.

    Args:
        source: one of
            "generated", "generated:N", "generated:N:SEED": the built-in generated English, N sentences of it;
            "nltk:NAME": an installed NLTK corpus, such as nltk:brown or nltk:treebank, with its tags;
            "wikipedia", "wikipedia:CONFIG", "wikitext", "wikitext:CONFIG": streamed from the Hugging Face hub;
            "hf:DATASET" or "hf:DATASET:CONFIG": any other dataset of the hub, or a local directory, streamed;
            "linzen:FILE.tsv": the sentences of Linzen et al. (2016), `agr_50_mostcommon_10K.tsv`;
            a path of a UTF-8 text file or of a directory of .txt files; "-" for standard input.
        split: of a dataset of the hub.
        segmentation: "lines", "paragraphs" or "raw" (see `Segmenter`); None takes what fits the source: "raw" for
            wikipedia, "paragraphs" for wikitext, "lines" otherwise.
        column: of a dataset of the hub, the column with the text.

    Raises:
        InputError: if there is no such source, or it cannot be read. Text files are checked when they are iterated.
    """
    if not source:
        raise InputError(f"the name of the corpus is empty; it must be one of: {'; '.join(SOURCES)}")
    kind, _, rest = source.partition(":")
    if kind == "generated":
        return _open_generated(source, rest)
    if kind == "nltk":
        return _open_nltk(source, rest)
    if kind in _HUB:
        name, config, mode = _HUB[kind]
        return _open_hub(source, name, rest or config, split, segmentation or mode, column)
    if kind == "hf":
        name, _, config = rest.partition(":")
        return _open_hub(source, name, config or None, split, segmentation or "lines", column)
    if kind == "linzen":
        return Corpus(source, lambda: _read_linzen(Path(rest)))
    return _open_text(source, segmentation or "lines")


def hold_out(sentences: Sequence[Item], held_out: float, seed: int) -> tuple[list[Item], list[Item]]:
    """Split sentences at random into those to train on and those held out, both in their first order.

    Args:
        sentences: all of them, in whatever form.
        held_out: how many to hold out (an integer of 1 or more), or which share (below 1).
        seed: of the random choice; the same seed holds the same sentences out.

    Raises:
        InputError: if nothing would be left on one side.
    """
    count = round(len(sentences) * held_out) if held_out < 1 else int(held_out)
    if not 0 < count < len(sentences):
        raise InputError(f"cannot hold {held_out:g} out of {len(sentences)} sentences")
    chosen = set(random.Random(seed).sample(range(len(sentences)), count))
    train = [sentence for i, sentence in enumerate(sentences) if i not in chosen]
    return train, [sentence for i, sentence in enumerate(sentences) if i in chosen]


def _open_generated(source: str, rest: str) -> Corpus:
    from .generated import generate_corpus

    numbers = rest.split(":") if rest else []
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise InputError(f"the generated corpus is named generated[:N[:SEED]] with whole numbers; got {source!r}")
    count, seed = [int(number) for number in numbers] + [GENERATED_SENTENCES, 0][len(numbers) :]
    return Corpus(source, lambda: (Sentence(s.words, s.tags) for s in generate_corpus(count, seed)))


def _open_nltk(source: str, name: str) -> Corpus:
    import nltk.corpus
    from nltk.corpus.reader import PlaintextCorpusReader

    reader = getattr(nltk.corpus, name, None) if name and not name.startswith("_") else None
    if reader is None or (not hasattr(reader, "_LazyCorpusLoader__reader_cls") and not hasattr(reader, "fileids")):
        raise InputError(f"NLTK has no corpus {name!r}; nltk:brown and nltk:treebank are two it has")
    try:
        reader.ensure_loaded()
    except LookupError as error:
        raise InputError(
            f"the NLTK corpus {name!r} is not installed: run `python -m nltk.downloader {name}`, "
            "or set NLTK_DATA to where it is"
        ) from error
    if isinstance(reader, PlaintextCorpusReader):
        # Its own sentences need a model that has to be downloaded; ours are learned from the text.
        def plain() -> Iterator[Sentence]:
            documents = (reader.raw(file) for file in reader.fileids())
            segment = Segmenter("raw", documents)
            for file in reader.fileids():
                yield from map(Sentence, segment(reader.raw(file)))

        return Corpus(source, plain)
    if hasattr(reader, "tagged_sents"):

        def tagged() -> Iterator[Sentence]:
            for sentence in reader.tagged_sents():
                pairs = [(word, tag) for word, tag in sentence if tag != "-NONE-"]  # not the traces of a treebank
                if pairs:
                    yield Sentence([word for word, _ in pairs], [tag for _, tag in pairs])

        return Corpus(source, tagged)
    if hasattr(reader, "sents"):
        return Corpus(source, lambda: (Sentence(list(words)) for words in reader.sents() if words))
    raise InputError(f"the NLTK corpus {name!r} has no sentences")


def _open_hub(source: str, name: str, config: str | None, split: str, segmentation: str, column: str) -> Corpus:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise InputError(f"{source} needs the datasets library: pip install 'stack-lm[data]'") from error
    try:
        dataset = load_dataset(name, config, split=split, streaming=True)
        first = next(iter(dataset.take(1)), None)
    except Exception as error:  # the library raises its own kinds, those of the network and ValueErrors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot open the dataset {name!r} ({split}): {reason[:200]}") from error
    if first is None:
        raise InputError(f"the dataset {name!r} ({split}) is empty")
    if not isinstance(first.get(column), str):
        raise InputError(f"the dataset {name!r} has no text column {column!r}; its columns are {', '.join(first)}")
    documents = (document[column] for document in dataset.take(2_000))
    stream = DocumentStream(dataset, column, Segmenter(segmentation, documents))
    return Corpus(source, lambda: (sentence for sentence, _ in stream.read()), stream)


def _read_linzen(path: Path) -> Iterator[Sentence]:
    for number, row in read_table(path):
        if "sentence" not in row:
            raise InputError(f"{path}, line {number}: no column 'sentence'; the header has {', '.join(row)[:200]}")
        yield Sentence(row["sentence"].split())


def _open_text(source: str, segmentation: str) -> Corpus:
    files: list[str | Path] = ["-"] if source == "-" else list(text_files(Path(source)))
    documents = list(read_lines("-")) if source == "-" else None  # standard input can be read once only

    def lines() -> Iterator[str]:
        for file in files:
            yield from (line for _, line in (documents if documents is not None else read_lines(file)))

    segment = Segmenter(segmentation, islice(lines(), 100_000))
    return Corpus(source, lambda: (Sentence(words) for line in lines() for words in segment(line)))
