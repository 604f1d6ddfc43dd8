"""Streamed datasets of the Hugging Face hub. One more line at the end gives a dataset a short name."""

from __future__ import annotations

from ...core.errors import InputError
from ..corpora import Corpus, DocumentStream, Request, register_source
from ..plain import Segmenter
from ..records import choose_column, open_dataset

# The short names, and the datasets that they name.
DATASETS: dict[str, str] = {}


@register_source("hub:DATASET[:CONFIG]")
@register_source("hf:DATASET[:CONFIG]")
def open_named(request: Request) -> Corpus:
    """Any dataset of the hub, or a local directory of one."""
    name, _, config = request.argument.partition(":")
    return _open(request, name, config or None, "lines")


def _register_dataset(usage: str, name: str, config: str, segmentation: str) -> None:
    """Register a short name of a dataset.

    Args:
        usage: see `register_source`; the argument is another configuration.
        name: the name of the dataset on the hub.
        config: the configuration taken if none is named.
        segmentation: the form of its text.
    """
    DATASETS[usage.partition("[")[0]] = name

    @register_source(usage)
    def open_dataset(request: Request) -> Corpus:
        return _open(request, name, request.argument or config, segmentation)


def _open(request: Request, name: str, config: str | None, segmentation: str) -> Corpus:
    dataset, first = open_dataset(f"{name}:{config}" if config else name, request.split)
    column = choose_column(first, request.column, f"the dataset {name!r}")
    if not isinstance(first[column], str):
        raise InputError(f"the column {column!r} of {name!r} has no text; its columns are {', '.join(first)}")
    documents = (document[column] for document in dataset.take(2_000))
    segmenter = Segmenter(request.segmentation or segmentation, documents, split_words=request.split_words)
    stream = DocumentStream(request.source, dataset, column, segmenter)
    return Corpus(request.source, stream.sentences, stream, documents=stream.documents)


_register_dataset("wikipedia[:CONFIG]", "wikimedia/wikipedia", "20231101.en", "articles")
_register_dataset("wikitext[:CONFIG]", "Salesforce/wikitext", "wikitext-103-raw-v1", "paragraphs")
