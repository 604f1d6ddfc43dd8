"""Labelled texts from tables: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

from typing import NamedTuple

from ..core.errors import InputError
from .records import choose_column, read_records


class LabelledText(NamedTuple):
    """A text and its label.

    Attributes:
        words: the words of the text.
        label: as text, even if it is an integer.
        where: its file and row, for messages.
    """

    words: tuple[str, ...]
    label: str
    where: str


def read_labelled(path: str, column: str | None, label_column: str) -> list[LabelledText]:
    """The texts of a table, with their labels.

    Args:
        path: the path of the file.
        column: the column with the texts; None as for `read_records`, among the others than that of the labels.
        label_column: the column with the labels, strings or integers.

    Raises:
        InputError: naming the file and the row: as `read_records`, and for a missing column, text or label.
    """
    texts = []
    for record in read_records(path, column=column, not_text=label_column):
        if not record.fields:
            continue  # an empty line
        try:
            label = record.fields[choose_column(record.fields, label_column, record.source)]
        except InputError as error:
            raise InputError(f"{error}; data.label_column names the column of the labels") from error
        if type(label) not in (str, int) or not str(label).strip():
            raise InputError(f"{record.where}: a label must be a string or an integer; got {label!r:.60}")
        if not record.words:
            raise InputError(f"{record.where} has no text")
        texts.append(LabelledText(record.words, str(label).strip(), record.where))
    return texts
