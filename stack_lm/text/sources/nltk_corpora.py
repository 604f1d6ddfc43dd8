"""Installed NLTK corpora."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ...core.errors import InputError
from ..corpora import Corpus, Request, Sentence, register_source
from ..plain import Segmenter


@register_source("nltk:NAME")
def open_nltk(request: Request) -> Corpus:
    """An NLTK corpus, such as nltk:brown or nltk:treebank, with its tags, if any."""
    import nltk.corpus
    from nltk.corpus.reader import PlaintextCorpusReader

    name = request.argument
    reader = getattr(nltk.corpus, name, None) if name and not name.startswith("_") else None
    if reader is None or (not hasattr(reader, "_LazyCorpusLoader__reader_cls") and not hasattr(reader, "fileids")):
        raise InputError(f"NLTK has no corpus {name!r}; nltk:brown and nltk:treebank are two it has")
    try:
        reader.ensure_loaded()
    except LookupError as error:
        get = f"run `python -m nltk.downloader {name}`, or set NLTK_DATA to where it is"
        raise InputError(f"the NLTK corpus {name!r} is not installed: {get}") from error
    if isinstance(reader, PlaintextCorpusReader):
        # Its own sentences need a model that has to be downloaded; ours are learned from the text, once.
        @cache
        def segmenter() -> Segmenter:
            documents = (reader.raw(file) for file in reader.fileids())
            return Segmenter(request.segmentation or "raw", documents, split_words=request.split_words)

        def plain(files: list[str]) -> Iterator[Sentence]:
            for file in files:
                yield from map(Sentence, segmenter()(reader.raw(file)))

        return _by_file(request, reader, plain)
    if hasattr(reader, "tagged_sents"):

        def tagged(files: list[str]) -> Iterator[Sentence]:
            for sentence in reader.tagged_sents(files):
                pairs = [(word, tag) for word, tag in sentence if tag != "-NONE-"]  # not the traces of a treebank
                if pairs:
                    yield Sentence([word for word, _ in pairs], [tag for _, tag in pairs])

        return _by_file(request, reader, tagged)
    if hasattr(reader, "sents"):
        return _by_file(
            request, reader, lambda files: (Sentence(list(words)) for words in reader.sents(files) if words)
        )
    raise InputError(f"the NLTK corpus {name!r} has no sentences")


def _by_file(request: Request, reader: Any, sentences: Callable[[list[str]], Iterator[Sentence]]) -> Corpus:
    """A corpus with one document per file."""
    return Corpus(
        request.source,
        lambda: sentences(reader.fileids()),
        documents=lambda: (sentences([file]) for file in reader.fileids()),
    )
