"""`stack-lm suites`: predictions about the surprisal of regions, by suite and circuit."""

from __future__ import annotations

import argparse
from typing import Any

from ...core.console import print_note, progress, write_table
from ...core.errors import InputError
from ...eval.choices import Accuracy
from ...eval.suites import SuiteResult, evaluate_suite, mean_accuracy, read_suite
from ...hub.locating import find_models
from ..choices import load_language_model
from ..files import check_different, check_files
from ..options import DEVICE, option, shared
from ..printing import Heading, PrintedTable
from ..report import Report

EXAMPLE = "stack-lm suites models/wikipedia-base number_orc.json subordination.json --items items.tsv"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm suites`."""
    shared(parser, "MODEL")
    option(
        parser,
        "FILE ...",
        "suites in SyntaxGym's JSON; or .csv, with item_number, condition_name, region_number, content",
    )
    formula = "a prediction, such as '(2;%%good%%) < (2;%%bad%%)', in place of the files' own"
    option(parser, "--formula TEXT ...", formula)
    shared(parser, "--items", *DEVICE, items="predictions of items, with the surprisal of their regions")


def run(options: argparse.Namespace) -> Report:
    """Test the predictions of suites."""
    check_different(options.files)
    check_files(options, options.model, *options.files)
    find_models(options.model)
    suites = [read_suite(path, options.formula) for path in options.files]
    names = [suite.name for suite in suites]
    if len(set(names)) < len(names):
        raise InputError("two files have the same name; a suite's name is that of its file")
    model = load_language_model(options.model, options)
    with progress(f"scoring {options.model}", sum(len(suite.items) for suite in suites)) as advance:
        results = [evaluate_suite(model, suite, progress=advance) for suite in suites]
    if unknown := sum(int(result.unknown.sum()) for result in results):
        n = sum(len(suite.items) for suite in suites)
        print_note(f"in {unknown:,} of {n:,} items, a region of a prediction has a word outside the vocabulary")
    if options.items is not None:
        write_table(options.items, *_items_table(results))
    means = _means(results)
    record: dict[str, Any] = {"model": options.model, "files": options.files}
    record["suites"] = [
        {"suite": result.suite.name, "circuit": result.suite.circuit}
        | _record(result.accuracy, [result])
        | {"formulas": [formula.text for formula in result.suite.formulas], "n_unknown": int(result.unknown.sum())}
        for result in results
    ]
    record["means"] = {name: _record(mean_accuracy(some), some) for name, some in means.items()}
    rows: list[list[Any] | Heading] = [_row(result.suite.name, result.accuracy, [result]) for result in results]
    if means:
        rows.append(Heading("means over suites"))
        rows += [_row(name, mean_accuracy(some), some) for name, some in means.items()]
    columns = ["suite", "accuracy", "95% interval", "items", "by prediction"]
    note = "accuracy: items whose predictions all hold; by prediction: the mean over predictions"
    return Report(
        record, [PrintedTable(f"suites accuracy in %, {options.model}", columns, rows, note=note)], [options.items]
    )


def _means(results: list[SuiteResult]) -> dict[str, list[SuiteResult]]:
    """The suites of each circuit, and all; with suites outside the circuits, also all of the circuits."""
    if len(results) == 1:
        return {}
    circuits = list(dict.fromkeys(result.suite.circuit for result in results if result.suite.circuit))
    means = {name: [result for result in results if result.suite.circuit == name] for name in circuits}
    inside = [result for result in results if result.suite.circuit]
    return means | ({"all circuits": inside} if inside else {}) | ({"all files": results} if inside != results else {})


def _record(accuracy: Accuracy, results: list[SuiteResult]) -> dict[str, Any]:
    return accuracy.record() | {"by_prediction": _by_prediction(results)}


def _row(name: str, accuracy: Accuracy, results: list[SuiteResult]) -> list[Any]:
    interval = f"{accuracy.low:.2f} - {accuracy.high:.2f}"
    return [name, accuracy.accuracy, interval, accuracy.n, _by_prediction(results)]


def _by_prediction(results: list[SuiteResult]) -> float:
    return sum(result.by_prediction for result in results) / len(results)


def _items_table(results: list[SuiteResult]) -> tuple[list[str], list[list[Any]]]:
    """A row for each prediction of each item, with the surprisal of the terms of its formula, in bits."""
    rows = []
    for result in results:
        for item, surprisals, holds in zip(result.suite.items, result.surprisals, result.holds, strict=True):
            for number, formula in enumerate(result.suite.formulas, start=1):
                terms = [f"({region};%{name}%) {surprisals[name][region]:.4f}" for region, name in formula.regions]
                unique = "; ".join(dict.fromkeys(terms))
                rows.append([result.suite.name, item.number, number, formula.text, unique, int(holds[number - 1])])
    return ["suite", "item", "prediction", "formula", "bits", "holds"], rows
