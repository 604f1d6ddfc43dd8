"""The sentences of Linzen et al. (2016)."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import InputError
from ..corpora import Corpus, Request, Sentence, register_source
from ..records import read_records


@register_source("linzen:FILE.tsv")
def open_linzen(request: Request) -> Corpus:
    """The column "sentence" of their table, `agr_50_mostcommon_10K.tsv`."""
    return Corpus(request.source, lambda: _read(request.argument))


def _read(path: str) -> Iterator[Sentence]:
    for record in read_records(path, column="sentence", format_name="tsv"):
        if not record.text:
            raise InputError(f"{record.where}: the sentence is empty")
        yield Sentence(record.text.split())
