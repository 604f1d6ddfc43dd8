"""Read texts from files for commands, and report those without a result."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..config_files import read_run_config
from ..console import Problems, print_note
from ..data import Sentence, open_corpus
from ..data.corpora import SOURCES, Corpus, several_in_a_line
from ..data.records import HUB, Record, read_records
from ..data.text import Segmenter, has_several_sentences
from ..errors import InputError

_LISTED = 10  # numbers of records in a note


def add_text_options(parser: argparse.ArgumentParser, what: str, default_split: str = "test") -> None:
    """Add the options of a `ScoredText`; the help calls the text `what`, and names the default split."""
    parser.add_argument(
        "--data",
        metavar="PATH",
        required=True,
        help=f"{what}: a file of text, .jsonl, .json, .csv, .tsv, .parquet or .mrg, a directory of them, nltk:NAME, "
        "generated:N:SEED, wikitext, hub:DATASET, or - for standard input",
    )
    parser.add_argument("--split", help=f"split of a dataset of the hub (default: {default_split})")
    parser.add_argument(
        "--segmentation", choices=Segmenter.MODES, help="layout of the text (default: the one that fits the source)"
    )
    add_column(parser)


def text_record(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_text_options`, for JSON."""
    return {name: getattr(options, name) for name in ("data", "split", "segmentation", "column")}


class ScoredText:
    """The sentences of `--data` for models that score them.

    Tokenizers take a sentence in one of two forms, split into words or as it stands.

    Args:
        options: the options of `add_text_options`.
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


def add_column(parser: argparse.ArgumentParser) -> None:
    """Add the option for the text column of a table."""
    parser.add_argument(
        "--column",
        metavar="NAME",
        help="column with the text, in tables and JSON (default: text, or sentence, or the only column of text)",
    )


def add_keep_going(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--keep-going`, which leaves out unreadable parts of the input; the help calls them `what`."""
    parser.add_argument(
        "--keep-going", action="store_true", help=f"leave out {what} that cannot be read, and fail at the end"
    )


def read_texts(source: str, column: str | None, problems: Problems, *, split: str | None = None) -> list[Record | None]:
    """Read all records of a file in order, including empty ones; None for one that could not be read.

    Of a dataset of the hub, those of a split; None is "train".

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

    for record in read_records(source, column=column, split=split or "train", on_error=leave_out):
        records.append(record)
    return records


def note_without_result(
    records: Sequence[Record | None], unknown: Sequence[int], knows: str = "the model knows"
) -> None:
    """Print one note on the records that are empty, and those without a word that the model knows.

    Args:
        records: all records of a source.
        unknown: the indices of those without a known word.
        knows: the subject and verb of the note's clause, such as "the model knows".
    """
    there = [record for record in records if record is not None]
    several = len({record.source for record in there}) > 1
    of_unknown = [record for place in unknown if (record := records[place]) is not None]
    parts = [
        _these([record for record in there if not record.text], "is empty", "are empty", several),
        _these(of_unknown, f"has no word that {knows}", f"have no word that {knows}", several),
    ]
    if any(parts):
        print_note("; ".join(filter(None, parts)))


def note_several_sentences(records: Sequence[Record | None]) -> None:
    """Print one note on the records that seem to have several sentences, which a model would read as one."""
    there = [record for record in records if record is not None]
    found = [record for record in there if has_several_sentences(record.text)]
    if found:
        sources = len({record.source for record in there}) > 1
        rows = _these(found, "seems to have several sentences", "seem to have several sentences", sources)
        print_note(f"{rows}; a model reads a row as one sentence")


def _these(records: Sequence[Record], one: str, many: str, several: bool) -> str:
    """Name the first records with their number and a verb for one or many; "" for none."""
    if not records:
        return ""
    first = records[0]
    if len(records) == 1:
        place = first.where if several else f"{first.unit} {first.number}"
        return f"{place} {one}"
    names = ", ".join(record.where if several else str(record.number) for record in records[:_LISTED])
    more = ", ..." if len(records) > _LISTED else ""
    return f"{len(records):,} {first.unit}s {many} ({names}{more})"
