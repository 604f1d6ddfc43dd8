"""The sentences of Linzen et al. (2016)."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.errors import InputError, OnError, fail
from ..corpora import Corpus, Request, Sentence, register_source
from ..records import read_records


@register_source("linzen:FILE.tsv")
def open_linzen(request: Request) -> Corpus:
    """The column "sentence" of their table, `agr_50_mostcommon_10K.tsv`."""
    return Corpus(request.source, lambda: _read(request.argument, request.on_error))


def _read(path: str, on_error: OnError | None) -> Iterator[Sentence]:
    for record in read_records(path, column="sentence", format_name="tsv", on_error=on_error):
        if not record.text:
            (on_error or fail)(InputError(f"{record.where}: the sentence is empty"))
            continue
        yield Sentence(record.text.split())
