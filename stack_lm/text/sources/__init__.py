"""The sources of text, one a file; `open_corpus` opens one by name.

Every module in this folder is imported and registers its sources with `register_source`, so a new source is a new file.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from ...core.errors import InputError, OnError
from ...core.messages import check_name, did_you_mean, similar_path
from ..corpora import SOURCE_NAME, SOURCES, Corpus, Request
from ..plain import Segmenter
from ..records import is_pattern
from .text_files import open_files

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def source_usages() -> str:
    """All sources as they are written, for messages."""
    usages = (source.usage for source in SOURCES.values())
    return "; ".join((*usages, "a file of text, a directory of them, or a pattern of their names"))


def open_corpus(
    source: str = "generated",
    *,
    split: str = "train",
    segmentation: str | None = None,
    column: str | None = None,
    on_error: OnError | None = None,
    split_words: bool = True,
) -> Corpus:
    """Open a corpus by name.

    Args:
        source: one of
            "generated", "generated:N", "generated:N:SEED": the built-in generated English, N sentences of it;
            "nltk:NAME": an installed NLTK corpus, such as nltk:brown or nltk:treebank, with its tags;
            "wikipedia", "wikipedia:CONFIG", "wikitext", "wikitext:CONFIG": streamed from the Hugging Face hub;
            "hub:DATASET" or "hub:DATASET:CONFIG" (or hf: for hub:): any other dataset of the hub, or a local
            directory of one, streamed;
            "linzen:FILE.tsv": the sentences of Linzen et al. (2016), `agr_50_mostcommon_10K.tsv`;
            a file, a directory, a pattern or "-", standard input, as in `read_records`;
            a source that `register_source` has added.
        split: the split, for a dataset of the hub.
        segmentation: "lines", "paragraphs", "raw" or "articles" (see `Segmenter`); None takes what fits the source:
            "articles" for wikipedia, "paragraphs" for wikitext, "lines" otherwise.
        column: for a table, JSON or a dataset of the hub, the column with the text; see `read_records`.
        on_error: called with the error of a line or row of a file that cannot be read, which is then left out; None
            raises the error.
        split_words: in raw text, split punctuation off the words as the Penn Treebank does. Otherwise white space alone
            separates them, for tokenizers that were made for text as it stands.

    Raises:
        InputError: if there is no such source or segmentation, or the source cannot be read. Text files are checked
            when they are iterated.
    """
    if segmentation is not None:  # whether or not this source uses it
        check_name("segmentation", segmentation, Segmenter.MODES)
    name, argument = find_source(source)
    request = Request(source, argument, split, segmentation, column, on_error, split_words)
    return open_files(request) if name is None else SOURCES[name].open(request)


def find_source(source: str) -> tuple[str | None, str]:
    """The name of a registered source, None for files, and what follows the name; nothing is opened.

    Raises:
        InputError: if there is no such source or file.
    """
    if not source:
        raise InputError(f"the name of the corpus is empty; it must be one of: {source_usages()}")
    name, _, argument = source.partition(":")
    if SOURCE_NAME.fullmatch(name) and name in SOURCES:  # no plug-in is looked for where it must be a path
        return name, argument
    if not Path(source).exists() and not is_pattern(source):
        near = similar_path(source) or did_you_mean(name, SOURCES)
        raise InputError(f"{source} does not exist; a corpus must be one of: {source_usages()}{near}")
    return None, argument
