"""`stack-lm surprisal`."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...core.atomic import atomic_file
from ...core.console import CARRIAGE_RETURN, print_note, progress, rounded, with_command
from ...core.errors import InputError, fail
from ...core.messages import counted
from ...figures.figures import save_figure
from ...figures.surprisal import MOST_MODELS, SurprisalCurve, plot_surprisal
from ...hub.locating import find_models
from ...text.files import check_file
from ...text.formats import read_rows
from ...text.records import HUB, Record, choose_column
from ..files import check_different, check_files, short_names
from ..models import open_scorer, shown_words
from ..options import DEVICE, declare, option, shared
from ..printing import PrintedTable
from ..report import Problems, Report
from ..texts import add_sentences, note_strange_words, note_without_result, read_sentences

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx")
BASES = {"2": "bits", "e": "nats", "10": "bans"}
# Of the table for people.
_SENTENCES_SHOWN, _ROWS_SHOWN = 3, 60

EXAMPLE = (
    'stack-lm surprisal models/wikipedia-u1 "The horse raced past the barn fell."\n'
    "  stack-lm surprisal models/wikipedia-u1 --data sentences.csv --column sentence --output surprisal.csv\n"
    '  stack-lm surprisal models/wikipedia-u1 models/wikipedia-lstm "The dog barks ." --figure curve.png'
)


OPTIONS: dict[str, str | tuple[str, dict[str, Any]]] = {
    "-o, --output FILE": (
        f"write a row for each word: {', '.join(ENDINGS)}; - is standard output, as .csv",
        {"endings": (*ENDINGS, "-")},
    ),
    "--base": ("base of the logarithm; 2 gives bits", {"choices": BASES, "default": "2"}),
    "--punctuation": (
        "count punctuation with the word that it touches, or give it rows of its own",
        {"choices": ("attach", "split"), "default": "attach"},
    ),
    "--word-ends": (
        "where tokens begin with spaces, the word whose surprisal has the probability that a word ends: its own, or "
        "the next; auto is own",
        {"choices": ("auto", "own", "next"), "default": "auto"},
    ),
    "--context NAME": "column with a text's story, document or dialogue: read each text after those before it there",
    "--window N": "tokens that a model with attention reads at once (default: its positions)",
    "--entropy": "add the entropy of the next token before each word, and its reduction",
    "--frequencies FILE": "add log frequencies, from a table with the columns word and count; model: that of the first "
    "model, word_counts.tsv",
    "--lags N": ("repeat the numbers of N words before, for spillover", {"default": 0}),
    "--end": "also write a row for the end of each sentence",
    "--figure": "the first sentence",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm surprisal`."""
    models = "model directories, or models on the hub: any causal language model; and sentences: arguments with a space"
    option(parser, "MODEL|SENTENCE ...", models, dest="models")
    add_sentences(parser)
    declare(parser, OPTIONS)
    shared(parser, "--word-strength", *DEVICE)
    parser.set_defaults(layer=None)  # rows have the strengths of all memory layers


def run(options: argparse.Namespace) -> Report | None:
    """Compute the table, and write it; an excerpt is printed."""
    sentences = [text for text in options.models if len(text.split()) > 1 and not os.path.exists(text)]
    options.models = [text for text in options.models if text not in sentences]
    _check_options(options)
    problems = Problems(options.keep_going)
    source, records = read_sentences(options, sentences, problems)
    frame, column = _frame(records, options)
    empty = [number for number, record in enumerate(records, start=1) if record is None or not record.text]

    frequencies = _frequencies(options)
    tables = {model: _table(model, frame, column, options, frequencies) for model in options.models}
    _print_notes(records, frame.columns.drop(column), tables, options.end)
    everything = _joined(tables)
    if options.output == "-":
        _write_text(sys.stdout, everything, ",")
    elif options.output:
        _write(options.output, everything)
    if options.figure:
        save_figure(options.figure, _figure(options, tables, everything["sentence"].min()))
    names = ("data", "segmentation", "context", "base", "punctuation", "word_ends", "window", "lags", "end")
    about = {name: getattr(options, name) for name in names}
    about |= {"column": column, "unit": BASES[options.base], "sentences": len(frame), "empty": empty}
    about["models"] = [{"model": model} | _summary(table, options.end) for model, table in tables.items()]
    written = [path for path in (options.output, options.figure) if path]
    if options.output and options.output != "-":
        written.append(_write_origin(options.output, about))
    if options.json and not options.output:
        about["rows"] = json.loads(everything.to_json(orient="records", double_precision=15))
    about["written"] = written
    if options.output == "-":
        problems.finish()
        return None
    shown = _shown(options, tables, everything, source or counted(len(sentences), "sentence"))
    return Report(about, shown, written, problems.finish)


def _check_options(options: argparse.Namespace) -> None:
    """Check the options before anything is read."""
    if not options.models:
        raise InputError("give a MODEL beside the sentences")
    check_different(options.models)
    check_files(options, *options.models, options.data, options.frequencies)
    if options.context is not None and options.data is None:
        raise InputError("--context is for --data")
    if options.figure is not None and len(options.models) > MOST_MODELS:
        raise InputError(f"--figure shows at most {MOST_MODELS} models; got {len(options.models)}")
    if options.json and options.output == "-":
        raise InputError("--json and --output - both print on standard output; leave one out")
    if options.data is not None and options.data.partition(":")[0] not in HUB:
        check_file(options.data)  # not a directory: rows are numbered within one file
    find_models(*options.models)


def _frame(records: Sequence[Record | None], options: argparse.Namespace) -> tuple[pd.DataFrame, str]:
    """The columns of the data, and the name of the sentence column; the sentence of a record left out is empty."""
    import pandas as pd

    fields = next((record.fields for record in records if record is not None and record.fields), {})
    column = choose_column(fields, options.column, options.data) if fields else "text"
    left_out = dict.fromkeys(fields) | {column: ""}
    rows = [
        left_out if record is None else record.fields | {column: record.tokens or record.text} for record in records
    ]
    return pd.DataFrame(rows).convert_dtypes(), column


def _frequencies(options: argparse.Namespace) -> dict[str, int] | None:
    """The counts of words, in lower case."""
    if options.frequencies is None:
        return None
    path = options.frequencies
    if path == "model":
        path = str(Path(options.models[0]) / "word_counts.tsv")
        if not Path(path).is_file():
            raise InputError(f"--frequencies model: {options.models[0]} has no word_counts.tsv; name a table")
    counts: dict[str, int] = {}
    for number, row in read_rows(path, None, fail, None)[1]:
        if not (isinstance(row, dict) and {"word", "count"} <= row.keys() and str(row["count"]).isdecimal()):
            raise InputError(f"{path}, row {number}: a word and its count are needed, in the columns word and count")
        counts[row["word"].lower()] = counts.get(row["word"].lower(), 0) + int(row["count"])
    return counts


def _write_origin(output: str, about: dict[str, Any]) -> str:
    """Write where a table comes from beside it: version, command, settings, and the hashes of the models' files."""
    for model in about["models"]:
        files = sorted(path for path in Path(model["model"]).glob("*") if path.suffix in (".safetensors", ".bin"))
        model["sha256"] = {}
        for path in files:
            with open(path, "rb") as stream:
                model["sha256"][path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    name = f"{output}.json"
    with atomic_file(name) as temporary:
        content = with_command({"stack-lm": __version__} | about)
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return name


def _table(
    model: str, frame: pd.DataFrame, column: str, options: argparse.Namespace, frequencies: dict[str, int] | None
) -> pd.DataFrame:
    """The rows of one model."""
    from ...scoring.surprisal import surprisal

    scorer = open_scorer(model, options, window=options.window)
    if options.end and not scorer.end_tokens:
        raise InputError(f"--end: {model} has no token that ends sentences")
    names = ("context", "base", "punctuation", "word_ends", "end", "entropy", "lags")
    settings = {name: getattr(options, name) for name in names} | {"frequencies": frequencies}
    with progress(f"scoring with {model}", sum(map(bool, frame[column]))) as advance:
        return surprisal(scorer, frame, column=column, progress=advance, **settings)


def _print_notes(
    records: Sequence[Record | None], columns: pd.Index, tables: dict[str, pd.DataFrame], end: bool
) -> None:
    """Print notes on details that readers of the table could miss."""
    from ...scoring.surprisal import name_clashes

    for name, new in name_clashes(columns).items():
        print_note(f"the input's column {name!r} is called {new!r} in the result, which has a {name!r} of its own")
    for model, table in tables.items():
        words = _words(table, end)
        note_strange_words(model, words["word"].tolist(), words["unknown"].to_numpy(), words["n_tokens"].to_numpy())
        unknown = words.groupby("sentence")["unknown"].all()
        note_without_result(records, [number - 1 for number in unknown.index[unknown]], f"{model} knows")
        # So that each is noted once.
        records = [record if record is not None and record.text else None for record in records]


def _words(table: pd.DataFrame, end: bool) -> pd.DataFrame:
    """The rows of words, without those of sentence ends."""
    return table[table["sentence"].duplicated(keep="last")] if end else table


def _joined(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The rows of all models, with rounded numbers; with several models, each row has its model's name."""
    import pandas as pd

    from ...scoring.surprisal import numbers_in

    joined = pd.concat(tables.values(), ignore_index=True)
    for name in numbers_in(joined.columns):
        joined[name] = joined[name].map(rounded)
    if len(tables) > 1:
        names = [name for name, table in tables.items() for _ in range(len(table))]
        joined.insert(0, "model", pd.Series(names, dtype=joined["word"].dtype))
    return joined


def _write(path: str, table: pd.DataFrame) -> None:
    """Write a table atomically, in the format given by the file's ending."""
    ending = Path(path).suffix.lower()
    with atomic_file(path) as temporary:
        try:
            if ending == ".parquet":
                table.to_parquet(temporary, index=False)
            elif ending == ".xlsx":
                table.to_excel(temporary, index=False, engine="openpyxl")
            elif ending == ".jsonl":
                table.to_json(temporary, orient="records", lines=True, force_ascii=False, double_precision=15)
            else:
                _write_text(temporary, table, "\t" if ending == ".tsv" else ",")
        except ImportError as error:
            raise InputError(".xlsx needs openpyxl: pip install 'stack-lm[reading]'") from error
        # Several types in a column, numbers over 64 bits; over a million rows, control characters.
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
            raise InputError(f"{ending} cannot hold the table; name another --output: {error}") from error


def _write_text(target: Any, table: pd.DataFrame, separator: str) -> None:
    table = table.replace(CARRIAGE_RETURN, "\n")
    table.to_csv(target, index=False, sep=separator, lineterminator="\n")


def _figure(options: argparse.Namespace, tables: dict[str, pd.DataFrame], number: int) -> Figure:
    """The figure of one sentence."""
    from ...scoring.surprisal import strengths_in

    curves, words = [], []
    for name, table in zip(short_names(list(tables)), tables.values(), strict=True):
        rows = table[table["sentence"] == number]
        names = [column for column in strengths_in(rows.columns) if not column.startswith("total")]
        strengths = {column: rows[column].to_numpy() for column in names}
        curves.append(SurprisalCurve(name, rows["surprisal"].to_numpy(), rows["unknown"].to_numpy(), strengths))
        words.append(rows["word"].tolist())
    if any(of_model != words[0] for of_model in words):
        raise InputError(f"--figure: the models' rows of sentence {number} are not the same words; plot one model")
    return plot_surprisal(words[0], curves, BASES[options.base])


def _summary(table: pd.DataFrame, end: bool) -> dict[str, Any]:
    words = _words(table, end)
    return {
        "words": len(words),
        # The surprisal of an unknown word is that of all unknown words together, which is small.
        "mean_surprisal": float(words["surprisal"][~words["unknown"].astype(bool)].mean()),
        "without_surprisal": int(words["surprisal"].isna().sum()),
        "unknown": int(words["unknown"].sum()),
    }


def _shown(
    options: argparse.Namespace, tables: dict[str, pd.DataFrame], everything: pd.DataFrame, source: str
) -> Iterator[PrintedTable]:
    """The first sentences, unless there is a file of all, and a summary."""
    if not options.output:
        yield _excerpt(options, tables, everything)
    summaries = [(model, *_summary(table, options.end).values()) for model, table in tables.items()]
    names = ["model", "words", "mean surprisal", "without surprisal", "unknown"]
    note = "the mean leaves out unknown words" if everything["unknown"].any() else ""
    yield PrintedTable(f"surprisal, {source}", names, summaries, note=note)


def _excerpt(options: argparse.Namespace, tables: dict[str, pd.DataFrame], everything: pd.DataFrame) -> PrintedTable:
    """The rows of the first sentences."""
    from ...scoring.surprisal import numbers_in

    sentences = everything["sentence"].unique()
    first = everything[everything["sentence"].isin(sentences[:_SENTENCES_SHOWN])].head(_ROWS_SHOWN)
    columns = [name for name in ("model", "word", "sentence", "position", "n_tokens") if name in first]
    columns += [name for name in numbers_in(first.columns) if not name.startswith("total")]
    shown = first[columns].astype(object)
    shown["word"] = shown_words(first["word"], first["unknown"])
    hidden = len(everything) - len(shown)
    n = max(len(table["sentence"].unique()) for table in tables.values())
    return PrintedTable(
        f"first rows of {counted(n, 'sentence')}, surprisal in {BASES[options.base]}",
        [name.replace("_", " ") for name in columns],
        shown.to_numpy().tolist(),
        2 if "model" in first else 1,
        f"{hidden:,} more rows; --output FILE writes all" if hidden else "",
    )
