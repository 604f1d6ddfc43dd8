"""The common part of `agreement` and `minimal-pairs`: choices by group, item by item, and against another model."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from ..core.console import print_note, progress, write_table
from ..core.errors import InputError
from ..core.messages import check_name
from ..eval.choices import ChoiceResult, OutOfVocabulary, correct_codes, score_choices, with_unknown_words
from ..eval.significance import mcnemar
from ..hub.locating import find_models
from ..text.records import read_records
from .choice_runs import MEAN_OVER_SETS, SETS, SHOWN_VALUES, report_runs, runs_record, shown_properties
from .files import check_different, check_files, short_names
from .options import DEVICE, option, shared
from .printing import PrintedTable
from .report import Problems, Report
from .runs import check_runs


class ChoiceTask(NamedTuple):
    """The differences between the two commands.

    Attributes:
        items, files: and the file of each.
        properties: for grouping.
        evaluate, load: scores items with a model, which is loaded from a path.
        texts: the texts of an item, by column.
        names: the names of the two sides.
        shared: the words of both sides of an item, and whether each begins a sentence; None if models take no words.
    """

    items: Sequence[Any]
    files: list[str]
    properties: Callable[[Sequence[Any]], dict[str, Sequence[str | int | None]]]
    evaluate: Callable[..., ChoiceResult]
    load: Callable[[str], Any]
    texts: Callable[[Any], dict[str, str]]
    names: tuple[str, str]
    shared: Callable[[Any], Sequence[tuple[str, bool]]] | None = None


def add_choice_options(parser: argparse.ArgumentParser, formats: Sequence[str], *, models: str, data: str) -> None:
    """Add the arguments that the commands share, with help for the models and the data."""
    option(parser, "MODEL ...", models)
    option(parser, "--data PATH ...", data, required=True)
    option(parser, "--format NAME", f"one of {', '.join(formats)}", required=True)
    oov = "items that differ in a word outside the vocabulary: leave them out, or count them as wrong"
    option(parser, "--oov", oov, choices=get_args(OutOfVocabulary), default="skip")
    by = f"show scores by these properties (default: those with 2 to {SHOWN_VALUES} values; --json has all)"
    option(parser, "--by NAME ...", by)
    against = "items (McNemar's test of one against one), or over runs and items; or their --items tables"
    shared(parser, "--items", "--against", "--limit", items="items", against=against, limit="items")
    shared(parser, "--keep-going", *DEVICE, keep_going="items")


def check_choice_options(options: argparse.Namespace, what: str = "language model") -> None:
    """Check the options before a model is loaded; messages call the model `what`."""
    check_different(options.data)
    check_runs(options.models, options.against)
    if options.items is not None and len(options.models) > 1:
        raise InputError(f"--items takes the items of one model; got {len(options.models)} models")
    models = [*options.models, *options.against]
    check_files(options, *models, *options.data)
    find_models(*(path for path in models if not Path(path).is_file()), what=what)


def read_items(
    sources: Sequence[str], read: Callable[[str], Sequence[Any]], options: argparse.Namespace, problems: Problems
) -> tuple[list[Any], list[str]]:
    """The items of all sources, up to `--limit`, and the source of each."""
    items: list[Any] = []
    files: list[str] = []
    for source in sources:
        with problems.skipping():
            of_source = read(source)
            items += of_source
            files += [source] * len(of_source)
    return items[: options.limit], files[: options.limit]


def load_language_model(path: str, options: argparse.Namespace) -> Any:
    """Load the language model at a path with the given options."""
    from ..scoring.sentences import ModelScorer

    return ModelScorer.from_pretrained(path, device=options.device, batch_tokens=options.batch_tokens)


def score_task(options: argparse.Namespace, problems: Problems, task: ChoiceTask, **settings: str) -> Report:
    """Score the readable items with all models, write a table of items on request, and compare the models."""
    if not task.items:
        problems.finish()
    paths = list(dict.fromkeys(task.files))
    names = dict(zip(paths, short_names(paths), strict=True))
    files = {"file": [names[file] for file in task.files]} if len(paths) > 1 else {}
    properties = task.properties(task.items)
    known = [name for name, values in (properties | files).items() if any(value is not None for value in values)]
    for name in options.by or ():
        check_name("--by", name, known)
    if files and "file" in properties:
        raise InputError("the items have a property 'file', which groups items of several files; rename the property")
    models = [*options.models, *options.against]
    scores = {}
    for path in sorted(models, key=lambda path: not Path(path).is_file()):  # reading fails sooner
        scores[path] = _score(path, task, options, files)
    results, others = ([scores[path] for path in side] for side in (options.models, options.against))
    if options.items is not None:
        write_table(options.items, *_items_table(task, results[0]))
    head = {"data": options.data, "format": options.format} | settings
    if len(results) > 1:
        return report_runs(options, head, results, others, problems)
    if not others:
        record = {"model": options.models[0]} | head | results[0].record()
        return Report(record, [_table_of_one(options, results[0])], finish=problems.finish)
    return _compare_two(options, head, results[0], others[0], problems)


def _score(path: str, task: ChoiceTask, options: argparse.Namespace, files: dict[str, list[str]]) -> ChoiceResult:
    """The result of a model, or of its table of items."""
    if Path(path).is_file():
        return _read_result(path, task, options.oov, files)
    model = task.load(path)
    if task.shared is not None:
        unknown = int(with_unknown_words(model, [task.shared(item) for item in task.items]).sum())
        if unknown:
            of_all = f"{unknown:,} of {len(task.items):,} items"
            print_note(f"{path}: in {of_all}, a word shared by both sides is outside the vocabulary")
    try:
        with progress(f"scoring {path}", len(task.items)) as advance:
            return task.evaluate(model, task.items, oov=options.oov, groups=files, progress=advance)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _compare_two(
    options: argparse.Namespace, head: dict[str, Any], first: ChoiceResult, second: ChoiceResult, problems: Problems
) -> Report:
    """One model's accuracies, and McNemar's test against another's on the items that both have."""
    test = mcnemar(first.correct, second.correct)
    both = (first.correct >= 0) & (second.correct >= 0)
    mine, others = (100 * float(result.correct[both].mean()) for result in (first, second))
    compared = {"accuracy_first": mine, "accuracy_second": others} | dataclasses.asdict(test)
    shown: list[PrintedTable | str] = [
        _table_of_one(options, first),
        f"on the {test.n:,} items of both: {mine:.2f} for {options.models[0]}, {others:.2f} for {options.against[0]}",
        f"McNemar: right alone {test.only_first:,} and {test.only_second:,}, statistic {test.statistic:.2f}, p "
        f"{test.p_value:.3g} (exact {test.exact_p_value:.3g})",
    ]
    return Report(head | runs_record(options, [first], [second], compared), shown, finish=problems.finish)


def _items_table(task: ChoiceTask, result: ChoiceResult) -> tuple[list[str], list[list[Any]]]:
    """A table with one row per item: its texts, properties, both log-probabilities and the outcome.

    The column of a property whose name is taken ends in _input.
    """
    first, last = ["item", *task.texts(task.items[0])], [*(f"logprob_{side}" for side in task.names), "outcome"]
    properties = result.properties
    columns = [*first, *(f"{name}_input" if name in first + last else name for name in properties), *last]
    rows = [
        [
            i + 1,
            *task.texts(item).values(),
            *(values[i] for values in properties.values()),
            *result.logprobs[i].tolist(),
            result.outcomes[i],
        ]
        for i, item in enumerate(task.items)
    ]
    return columns, rows


def _read_result(path: str, task: ChoiceTask, oov: OutOfVocabulary, groups: dict[str, list[str]]) -> ChoiceResult:
    """Read a model's result from its table of the same items.

    Properties come from the items and from `groups`, not from the table: a cell does not record whether its value is
    text or a number.
    """
    kind = "csv" if path.lower().endswith(".csv") else "tsv"
    rows = list(read_records(path, column="outcome", format_name=kind, keep_empty=False))
    if len(rows) != len(task.items):
        raise InputError(f"{path} has {len(rows)} items; here there are {len(task.items)}")
    sides = [f"logprob_{side}" for side in task.names]
    missing = sorted({*sides, "outcome"} - rows[0].fields.keys())
    if missing:
        raise InputError(f"{path} is not a table written by --items: it has no column {missing[0]!r}")
    logprobs, outcomes = [], []
    for record, item in zip(rows, task.items, strict=True):
        row = record.fields
        for name, text in task.texts(item).items():
            if row.get(name) != text:
                raise InputError(f"{record.where}: another item: {name} is {row.get(name)!r}, here {text!r}")
        try:
            logprobs.append([float(row[side] or "nan") for side in sides])
        except ValueError as error:
            raise InputError(f"{record.where}: {error}") from None
        outcomes.append(row["outcome"])
    correct_codes(outcomes, oov)
    return score_choices(
        np.array(logprobs),
        task.properties(task.items) | groups,
        identical=[outcome == "identical" for outcome in outcomes],
        unknown=[outcome == "oov" for outcome in outcomes],
        oov=oov,
    )


def _table_of_one(options: argparse.Namespace, result: ChoiceResult) -> PrintedTable:
    """The accuracies of one model."""
    names = shown_properties(options.by, result)
    accuracies = {"all": result.overall}
    if (mean := result.mean_over(SETS)) is not None:
        accuracies[MEAN_OVER_SETS] = mean
    for name in names:
        accuracies |= {f"{name}: {value}": accuracy for value, accuracy in result.groups.get(name, {}).items()}
    rows = [
        (name, each.accuracy, f"{each.low:.2f} - {each.high:.2f}", each.n, each.majority)
        for name, each in accuracies.items()
    ]
    columns = ["items", "accuracy", "95% interval", "n", "always the more frequent number"]
    if result.overall.majority is None:
        columns, rows = columns[:-1], [row[:-1] for row in rows]  # type: ignore[misc]
    counts = {
        "with a word outside the vocabulary": result.n_oov if result.oov == "skip" else 0,
        "whose two sides are the same": result.n_identical,
        "without a probability": result.n_unpredicted,
    }
    reasons = ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)
    notes = [f"left out: {result.n_skipped:,} of {result.n_items:,}" + (f" ({reasons})" if reasons else "")]
    if result.oov == "wrong" and result.n_oov:
        notes.append(f"not correct: {result.n_oov:,} with a word outside the vocabulary")
    notes.append(f"ties (not correct): {result.n_ties:,}")
    if hidden := [name for name, group in result.groups.items() if name not in names and len(group) > 1]:
        notes.append(f"not shown: --by {' '.join(hidden)}")
    title = f"{options.command} accuracy in %, {', '.join(options.data)}"
    return PrintedTable(title, columns, rows, note="; ".join(notes))
