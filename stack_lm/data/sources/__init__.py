"""The sources of text, one a file; `open_corpus` opens one by name.

Every module in this folder is imported and registers its sources with `register_source`, so a new source is a new file.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from ...errors import InputError
from ..corpora import SOURCE_NAME, SOURCES, Corpus, Request
from .text_files import open_files


def load_sources() -> None:
    """Import all modules of this folder."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


load_sources()


def source_usages() -> str:
    """All sources as they are written, for messages."""
    usages = (source.usage for source in SOURCES.values())
    return "; ".join((*usages, "a text file (.txt, .txt.gz, .txt.xz) or a directory of them"))


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
            a path of a UTF-8 text file, which may be compressed (.gz, .xz), or of a directory of .txt, .txt.gz and
            .txt.xz files; "-" for standard input;
            a source that `register_source` has added.
        split: of a dataset of the hub.
        segmentation: "lines", "paragraphs" or "raw" (see `Segmenter`); None takes what fits the source: "raw" for
            wikipedia, "paragraphs" for wikitext, "lines" otherwise.
        column: of a dataset of the hub, the column with the text.

    Raises:
        InputError: if there is no such source, or it cannot be read. Text files are checked when they are iterated.
    """
    if not source:
        raise InputError(f"the name of the corpus is empty; it must be one of: {source_usages()}")
    name, _, argument = source.partition(":")
    request = Request(source, argument, split, segmentation, column)
    if SOURCE_NAME.fullmatch(name) and name in SOURCES:  # no plug-in is looked for where it must be a path
        return SOURCES[name].open(request)
    if not Path(source).exists():
        missing = f"{source} does not exist; a corpus must be one of: {source_usages()}"
        raise InputError(SOURCES.origin_note(name) or missing)
    return open_files(request)
