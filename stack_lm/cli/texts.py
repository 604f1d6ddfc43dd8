"""Read texts from files for commands, and report those without a result."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ..core.config_files import read_run_config
from ..core.console import print_note
from ..core.errors import InputError
from ..text import Sentence, open_corpus
from ..text.corpora import SOURCES, Corpus, several_in_a_line
from ..text.plain import Segmentation, Segmenter, has_several_sentences
from ..text.records import HUB, Record, read_records
from .models import words_of
from .options import option, shared
from .report import Problems

_LISTED = 10  # numbers of records in a note


def text_record(options: argparse.Namespace) -> dict[str, Any]:
    """The options of a text, for JSON."""
    return {name: getattr(options, name) for name in ("data", "split", "segmentation", "column")}


class ScoredText:
    """The sentences of `--data` for models that score them.

    Tokenizers take a sentence in one of two forms, split into words or as it stands.

    Args:
        options: those of `options.TEXT`, and `data`.
        problems: collects the unreadable parts.
        choose: chooses among all sentences.
        keep: keep the sentences in each form, for several models.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        problems: Problems,
        choose: Callable[[Corpus], Iterable[Sentence]],
        *,
        keep: bool,
    ) -> None:
        self._options, self._problems, self._choose = options, problems, choose
        self._kept: dict[bool, list[Sentence]] | None = {} if keep else None

    def sentences(self, split_words: bool) -> Iterable[Sentence]:
        """The sentences for a tokenizer that takes words, or text as it stands."""
        if self._kept is None:
            return self._read(split_words)
        if split_words not in self._kept:
            if self._kept and self._options.data == "-":
                raise InputError(
                    "standard input is read once, but these models need it in two forms, with punctuation split off "
                    "and as it stands; save it to a file"
                )
            self._kept[split_words] = list(self._read(split_words))
        return self._kept[split_words]

    def _read(self, split_words: bool) -> Iterable[Sentence]:
        options = self._options
        corpus = open_corpus(
            options.data,
            split=options.split or "test",
            segmentation=options.segmentation,
            column=options.column,
            on_error=self._problems.on_error,
            split_words=split_words,
        )
        checked = options.segmentation is not None or self._kept  # and noted, in the other form
        if not checked and (several := several_in_a_line(corpus)):
            print_note(f"{several}: for ordinary text, --segmentation raw")
        return self._choose(corpus)


def note_segmentation(models: Sequence[str], requested: str | None) -> None:
    """Print a note for each model that was trained on segmented text, if no segmentation is requested."""
    for path in models if requested is None else ():
        form = read_run_config(Path(path)).get("data", {}).get("segmentation")
        if form is not None:
            print_note(
                f"{path} was trained with data.segmentation={form}; for text that is not one sentence a line, "
                f"--segmentation {form}"
            )


def add_sentences(parser: argparse.ArgumentParser) -> None:
    """Add the options of `read_sentences`, besides the sentences among the arguments."""
    option(
        parser,
        "--data FILE",
        "one sentence per line or row: text, .jsonl, .json, .csv, .tsv, .parquet, or the words of trees, .mrg; also "
        "compressed; hub:DATASET; or - for standard input. A sentence without a known word gives an empty line",
    )
    shared(parser, "--column", "--limit", "--keep-going", limit="lines and rows", keep_going="lines and rows")
    segmentation = "split the texts of --data into sentences; raw is ordinary text (default: each is one sentence)"
    option(parser, "--segmentation", segmentation, choices=get_args(Segmentation))


def read_sentences(
    options: argparse.Namespace, sentences: Sequence[str], problems: Problems
) -> tuple[str | None, list[Record | None]]:
    """The sentences of `--data`, or those among the arguments, of which - is standard input.

    Returns:
        The source, None for sentences that are arguments; and the records, as `read_texts` gives them.
    """
    if options.data is not None and sentences:
        raise InputError("give sentences or --data, not both")
    source: str | None = "-" if list(sentences) == ["-"] else options.data
    if source is not None:
        records = read_texts(source, options, problems)
        if options.segmentation is not None:
            return source, _segmented(records, options.segmentation)
        note_several_sentences(records)
        return source, records
    for name in ("column", "limit", "keep_going", "segmentation"):
        if getattr(options, name):
            raise InputError(f"--{name.replace('_', '-')} is for --data")
    if not sentences:
        raise InputError("no sentence: give one or more, or --data FILE, or - for standard input")
    records = []
    for number, text in enumerate(sentences, start=1):
        words = words_of(text, f"sentence {number}")
        if not words:
            raise InputError(f"sentence {number} is empty")
        records.append(Record(number, " ".join(words), {}, "", "sentence"))
    if len(sentences) > 1 and not any(" " in text for text in sentences):
        print_note("each argument is a sentence of one word; put quotation marks around a sentence of several words")
    note_several_sentences(records)
    return None, records


def _segmented(records: Sequence[Record | None], mode: Segmentation) -> list[Record | None]:
    """The sentences of records. The lines of plain text are one document.

    Those of a table's row have the row's fields, its number, `row`, and the number of its words before, `words_before`.
    """
    if not any(record is not None and record.fields for record in records):
        lines = [record for record in records if record is not None]
        text = "\n".join(record.text for record in lines)
        records = [lines[0]._replace(text=text, unit="sentence")] if lines else []
    segment = Segmenter(mode, [record.text for record in records if record is not None], split_words=False)
    sentences: list[Record | None] = []
    for record in records:
        if record is None or not record.text:
            sentences.append(record)
            continue
        before = 0
        for words in segment(record.text):
            place = {"row": record.number, "words_before": before} if record.fields else {}
            number = record.number if record.fields else len(sentences) + 1
            sentences.append(record._replace(number=number, text=" ".join(words), fields=record.fields | place))
            before += len(words)
    return sentences


def note_strange_words(name: str, words: Sequence[str], unknown: np.ndarray, n_tokens: np.ndarray) -> None:
    """Print a note if a model hardly knows the words of a text, which may be in another language.

    Args:
        name: the model.
        words: all words of the text, n of them.
        unknown: whether a word is outside the vocabulary [n].
        n_tokens: their numbers of tokens [n].
    """
    lengths = np.array([sum(map(str.isalpha, word)) for word in words])
    marks = np.array([len(word) for word in words]) - lengths  # each may be a token
    pieces = (lengths > 3) & (3 * (n_tokens - marks) >= lengths)
    strange, n = int((unknown | pieces)[lengths > 0].sum()), int((lengths > 0).sum())
    if 2 * strange > n > 1:
        how = "unknown, or in tokens of at most three letters," if pieces.any() else "unknown"
        print_note(f"{strange:,} of {n:,} words are {how} to {name}; is it a model of this language?")


def read_texts(source: str, options: argparse.Namespace, problems: Problems) -> list[Record | None]:
    """Read the first records of a file in order, including empty ones; None for one that could not be read.

    Of a dataset of the hub, those of the split "train".

    Raises:
        InputError: as `read_records`, except for the records that `problems` leaves out.
    """
    name = source.partition(":")[0]
    if name in SOURCES and name not in (*HUB, "-") and not Path(source).exists():
        raise InputError(
            f"{source} is a corpus, which perplexity, strengths and parse-f1 read; here a text is a file, hub:DATASET "
            "or - for standard input"
        )
    records: list[Record | None] = []

    def leave_out(error: InputError) -> None:
        problems.on_error(error)
        records.append(None)

    for record in read_records(source, column=options.column, on_error=leave_out):
        records.append(record)
        if options.limit is not None and len(records) >= options.limit:
            break
    return records[: options.limit]


def note_without_result(
    records: Sequence[Record | None], unknown: Sequence[int], knows: str = "the model knows"
) -> None:
    """Print one note on the records that are empty, and those without a word that the model knows.

    Args:
        records: all records of a source.
        unknown: the indices of those without a known word.
        knows: the subject and verb of the note's clause, such as "the model knows".
    """
    empty = [i for i, record in enumerate(records) if record is not None and not record.text]
    parts = [
        _name_records(records, empty, "is empty", "are empty"),
        _name_records(records, unknown, f"has no word that {knows}", f"have no word that {knows}"),
    ]
    if any(parts):
        print_note("; ".join(filter(None, parts)))


def note_several_sentences(records: Sequence[Record | None]) -> None:
    """Print one note on the records that seem to have several sentences, which a model would read as one."""
    long = [i for i, record in enumerate(records) if record is not None and has_several_sentences(record.text)]
    if long:
        rows = _name_records(records, long, "seems to have several sentences", "seem to have several sentences")
        print_note(f"{rows}; a model reads a row as one sentence, unless --segmentation raw splits it")


def _name_records(records: Sequence[Record | None], indices: Sequence[int], one: str, many: str) -> str:
    """Name the first records of some with their number, and a verb for one or many; "" for none."""
    several_sources = len({record.source for record in records if record is not None}) > 1
    chosen = [record for i in indices if (record := records[i]) is not None]
    if not chosen:
        return ""
    unit = chosen[0].unit
    if len(chosen) == 1:
        return f"{chosen[0].where if several_sources else f'{unit} {chosen[0].number}'} {one}"
    names = ", ".join(record.where if several_sources else str(record.number) for record in chosen[:_LISTED])
    more = ", ..." if len(chosen) > _LISTED else ""
    return f"{len(chosen):,} {unit}s {many} ({names}{more})"
