"""The file formats of agreement items."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from stack_lm.core.errors import InputError, OnError, fail
from stack_lm.core.messages import check_name, shortened
from stack_lm.text.formats import is_table
from stack_lm.text.inflection import other_form
from stack_lm.text.plain import read_lines
from stack_lm.text.records import Record, read_records

from .agreement import AgreementItem

T = TypeVar("T")

GENERATED_ITEMS = 300  # for each number of attractors
_NUMBERS = {"VBZ": "singular", "VBP": "plural"}


def number_of(form: str, other: str) -> str:
    """The number of a present-tense verb form, or of was and were, given its other form."""
    if form.endswith("s") != other.endswith("s"):
        return "singular" if form.endswith("s") else "plural"
    return "singular" if len(form) > len(other) else "plural"  # discusses, discuss


def _each(records: Iterable[T], make: Callable[[T], AgreementItem], on_error: OnError) -> list[AgreementItem]:
    """The items of some records, skipping records without an item."""
    items = []
    for record in records:
        try:
            items.append(make(record))
        except InputError as error:
            on_error(error)
    return items


def _read_linzen_table(source: str, on_error: OnError) -> list[AgreementItem]:
    format_name = None if is_table(source) else "tsv"  # whatever its name ends in
    records = read_records(source, column="sentence", format_name=format_name, on_error=on_error)
    rows = [record for record in records if record.fields]
    _check_header(source, rows, {"sentence", "verb_pos", "verb_index", "n_diff_intervening"})
    return _each(rows, _make_linzen_item, on_error)


def _check_header(source: str, rows: Sequence[Record], columns: set[str]) -> None:
    missing = columns - (rows[0].fields.keys() if rows else set())
    if missing:
        raise InputError(f"{source}: the header lacks the columns {', '.join(sorted(missing))}")


def _make_linzen_item(record: Record) -> AgreementItem:
    row, words = record.fields, record.text.split()
    place = _place(row["verb_index"], words, f"{record.where}: verb_index", first=1)
    attractors = _number(row["n_diff_intervening"], f"{record.where}: n_diff_intervening")
    tag = row["verb_pos"]
    if tag not in _NUMBERS:
        raise InputError(f"{record.where}: verb_pos must be VBZ or VBP; got {tag!r}")
    verb, distance = words[place], None
    if row.get("subj_index"):
        distance = place + 1 - _number(row["subj_index"], f"{record.where}: subj_index")
    return AgreementItem(
        tuple(words[:place]), verb, other_form(verb, tag), attractors, _NUMBERS[tag], distance=distance
    )


def _read_numpred(source: str, on_error: OnError) -> list[AgreementItem]:
    # The test set is divided by the number of attractors: numpred.test.0 to numpred.test.5.
    suffix = Path(source).suffix[1:]
    attractors = int(suffix) if suffix.isdecimal() else None

    def make_item(record: Record) -> AgreementItem:
        label, _, prefix = record.text.partition("\t")
        if label not in _NUMBERS or not prefix.strip():
            raise InputError(
                f"{record.where}: a line is VBZ or VBP, a tab and the words before the verb; "
                f"got {shortened(record.text, 50)!r} (a table of texts ends in .csv, .tsv, .jsonl, .json or .parquet)"
            )
        other = "VBP" if label == "VBZ" else "VBZ"
        return AgreementItem(tuple(prefix.split()), label, other, attractors, _NUMBERS[label])

    records = read_records(source, keep_empty=False, format_name="text", on_error=on_error)
    return _each(records, make_item, on_error)


def _read_linzen_gulordava(source: str, on_error: OnError) -> list[AgreementItem]:
    def make_item(pair: _Pair) -> AgreementItem:
        cells = pair.cells(4, "index, correct form, wrong form and attractors")
        place = _place(cells[0], pair.words, pair.where)
        correct, wrong = cells[1], cells[2]
        attractors = _number(cells[3], pair.where)
        if pair.words[place].casefold() != correct.casefold():
            raise InputError(
                f"{pair.where}: word {place} of the text, counted from 0, is {pair.words[place]!r}, not {correct!r}"
            )
        return AgreementItem(tuple(pair.words[:place]), correct, wrong, attractors, number_of(correct, wrong))

    return _each(_read_pairs(source), make_item, on_error)


def _read_gulordava(source: str, on_error: OnError) -> list[AgreementItem]:
    pairs = _read_pairs(source)
    # Attractors and distances are in another table, with a line for each of the two forms.
    table = Path(f"{_stem(Path(source))}.tab")
    rows = list(read_records(table, column="form", format_name="tsv")) if table.is_file() else []
    if rows:
        _check_header(str(table), rows, {"form", "n_attr", "len_context"})
    details = [record.fields for record in rows][::2]
    if details and len(details) != len(pairs):
        raise InputError(f"{table} has {2 * len(details)} rows; two for each of {len(pairs)} items are needed")

    def make_item(pair: _Pair) -> AgreementItem:
        # NOTE: the prefix in the last column is that of the original sentence, even for nonce sentences.
        cells = pair.cells(12, "pattern, construction, sentence, index, ..., correct and wrong form, ..., prefix")
        place = _place(cells[3], pair.words, pair.where)
        number = re.search(r"Number=(Sing|Plur)", cells[5])
        if number is None:
            raise InputError(f"{pair.where}: the sixth column must have Number=Sing or Number=Plur; got {cells[5]!r}")
        detail = details[pair.place] if details else {}
        if detail and detail["form"] != cells[6]:
            raise InputError(
                f"{table}: item {pair.place + 1} is of the form {detail['form']!r}, but {pair.where} is of {cells[6]!r}"
            )
        return AgreementItem(
            tuple(pair.words[:place]),
            cells[6],
            cells[7],
            n_attractors=_number(detail["n_attr"], str(table)) if detail else None,
            number="singular" if number[1] == "Sing" else "plural",
            construction="original" if cells[2] == "0" else "nonce",
            distance=_number(detail["len_context"], str(table)) if detail else None,
        )

    return _each(pairs, make_item, on_error)


class _Pair(NamedTuple):
    """Matching lines of a .text and a .gold file: their index from 0, the words, and the gold line."""

    place: int
    where: str
    words: list[str]
    row: str

    def cells(self, n: int, columns: str) -> list[str]:
        cells = self.row.split("\t")
        if len(cells) != n:
            raise InputError(f"{self.where}: {len(cells)} columns; {n} are needed: {columns}")
        return cells


def _read_pairs(source: str) -> list[_Pair]:
    stem = _stem(Path(source))
    text = list(read_lines(f"{stem}.text"))
    gold = list(read_lines(f"{stem}.gold"))
    if len(text) != len(gold):
        raise InputError(f"{stem}.text has {len(text)} lines, but {stem}.gold has {len(gold)}")
    return [
        _Pair(place, f"{stem}.gold, line {number}", sentence.split(), row)
        for place, ((number, sentence), (_, row)) in enumerate(zip(text, gold, strict=True))
    ]


def _place(text: str | int, words: Sequence[str], where: str, first: int = 0) -> int:
    """The place of a word from 0, from an index that begins with `first`."""
    place = _number(text, where) - first
    if not 0 <= place < len(words):
        raise InputError(f"{where}: index {place + first} is outside a sentence of {len(words)} words")
    return place


def _stem(path: Path) -> str:
    """The common path of a .text and a .gold file, from a directory, one of the files, or the path itself."""
    if path.is_dir():
        stems = sorted(str(file.with_suffix("")) for file in path.glob("*.gold"))
        if len(stems) != 1:
            raise InputError(f"the directory {path} must have one .gold file; it has {len(stems)}")
        return stems[0]
    return str(path.with_suffix("")) if path.suffix in (".text", ".gold", ".eval") else str(path)


def _number(text: str | int, where: str) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        raise InputError(f"{where}: not a whole number: {text!r}") from None


def _read_generated(source: str, on_error: OnError) -> list[AgreementItem]:
    """Items from the built-in corpus: N for each number of attractors from 0 to 3. The source is SEED or SEED:N."""
    import random

    from stack_lm.text.generated import generate_sentence

    where = "--data of the format 'generated' is SEED or SEED:N, N items for each number of attractors"
    seed, colon, number = source.partition(":")
    number_of_items = _number(number, where) if colon else GENERATED_ITEMS
    if number_of_items < 1:
        raise InputError(f"{where}; N must be 1 or more, got {number_of_items}")
    rng = random.Random(_number(seed, where))
    bins: dict[int, list[AgreementItem]] = {k: [] for k in range(4)}
    while any(len(items) < number_of_items for items in bins.values()):
        sentence = generate_sentence(rng)
        for item in sentence.agreement:
            chosen = bins.get(item.n_attractors)
            if chosen is not None and len(chosen) < number_of_items:
                prefix = sentence.words[: item.verb]
                chosen.append(AgreementItem(prefix, item.correct, item.wrong, item.n_attractors, item.number))
    return [item for items in bins.values() for item in items]


AGREEMENT_FORMATS: dict[str, Callable[[str, OnError], list[AgreementItem]]] = {
    "linzen": _read_linzen_table,
    "linzen-gulordava": _read_linzen_gulordava,
    "linzen-numpred": _read_numpred,
    "gulordava": _read_gulordava,
    "generated": _read_generated,
}
"""Readers by the format's name."""


def read_agreement(source: str, format_name: str, *, on_error: OnError = fail) -> list[AgreementItem]:
    """Read agreement items.

    Args:
        source: a path, or for "generated" SEED or SEED:N.
        format_name: "linzen" (the table of Linzen et al. 2016 with its 18 columns, `agr_50_mostcommon_10K.tsv`),
            "linzen-gulordava" (the aligned files .text and .gold: the directory, one of them, or their path without
            the ending), "linzen-numpred" (number prediction, for classifiers: VBZ or VBP, a tab, the words before the
            verb; a file name ending in .k gives the number of attractors, k), "gulordava" (the nonce sentences of
            Gulordava et al. 2018: .text and .gold as before, with attractors and distances from the .tab file next to
            them), or "generated" (the built-in English).
        on_error: called with the error of an item, which is then left out; the default raises it.

    Raises:
        InputError: for an unknown format, or a missing, empty or malformed file, with the line.
    """
    check_name("format", format_name, AGREEMENT_FORMATS)
    items = AGREEMENT_FORMATS[format_name](source, on_error)
    if not items:
        raise InputError(f"{source} has no agreement items")
    return items
