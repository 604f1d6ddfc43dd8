"""Labelled texts from tables: CSV, TSV, JSON lines, Parquet."""

from __future__ import annotations

from typing import NamedTuple

from ..core.errors import InputError
from .records import Record, choose_column, read_records


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
        InputError: naming the file and the row: as `read_records`, or for a missing column, a row without a text or a
            label, or labels of several types.
    """
    texts = []
    types: set[type] = set()
    for record in read_records(path, column=column, not_text=label_column):
        if not record.fields:
            continue  # an empty line
        value = _label(record, label_column)
        types.add(type(value))
        if len(types) > 1:
            raise InputError(f"{record.where}: the label {value!r:.60} is of another type than those before it")
        words = record.words
        if not words:
            raise InputError(f"{record.where} has no text")
        texts.append(LabelledText(words, str(value).strip(), record.where))
    return texts


def _label(record: Record, column: str) -> str | int:
    try:
        value = record.fields[choose_column(record.fields, column, record.source)]
    except InputError as error:
        raise InputError(f"{error}; data.label_column names the column of the labels") from error
    if type(value) not in (str, int) or not str(value).strip():
        raise InputError(f"{record.where}: a label must be a string or an integer; got {value!r:.60}")
    return value
