"""Report the accuracies of several runs, for `agreement` and `minimal-pairs` with more than one model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ..eval.choices import Accuracy, ChoiceResult
from ..eval.seeds import ALL, Spread, compare_runs, record, spreads
from .files import short_names
from .printing import PrintedTable
from .report import Problems, Report
from .runs import interval_and_p

# Properties with more values are shown only on request.
SHOWN_VALUES = 20
# The property whose values are the sets of a suite; the mean over them is shown, as papers report it.
SETS = "construction"
MEAN_OVER_SETS = f"mean over {SETS}s"


def shown_properties(by: Sequence[str] | None, result: ChoiceResult) -> Sequence[str]:
    """The properties to show: the requested ones, else those with 2 to `SHOWN_VALUES` values."""
    return by or [name for name, group in result.groups.items() if 1 < len(group) <= SHOWN_VALUES]


def report_runs(
    options: argparse.Namespace,
    head: dict[str, Any],
    results: Sequence[ChoiceResult],
    others: Sequence[ChoiceResult],
    problems: Problems,
) -> Report:
    """The spread over several runs of a model and of another model, and the test of their difference.

    Args:
        options: the options of the command; `models` and `against` name the runs.
        head: further JSON fields of the command.
        results: the results of each run.
        others: the results of each run of the other model; empty for no comparison.
        problems: the parts that were left out.
    """
    comparisons = compare_runs(results, others) if others else {}
    compared = runs_record(options, results, others, record(comparisons) if others else None)
    names = shown_properties(options.by, results[0])
    # Of all runs, because one with another vocabulary scores other items, perhaps none with some value.
    keys = spreads([*results, *others])
    shown = [ALL, *(key for name in names for key in keys if key != ALL and key[0] == name)]
    sides = [(paths, side) for paths, side in ((options.models, results), (options.against, others)) if side]
    tables = [_table_of_spreads(options.command, paths, side, shown) for paths, side in sides]
    if comparisons:
        tables.append(_table_of_comparisons(comparisons, shown, len(results), len(others)))
    return Report(head | compared, tables, finish=problems.finish)


def runs_record(
    options: argparse.Namespace,
    results: Sequence[ChoiceResult],
    others: Sequence[ChoiceResult],
    comparison: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The runs of one or two models with their spread, and their comparison, for JSON."""

    def side(paths: Sequence[str], of_side: Sequence[ChoiceResult]) -> dict[str, Any]:
        runs = [{"model": path} | result.record() for path, result in zip(paths, of_side, strict=True)]
        return {"runs": runs, "spread": record(spreads(of_side))}

    runs = side(options.models, results)
    return runs if comparison is None else runs | {"against": side(options.against, others), "comparison": comparison}


def _table_of_spreads(
    command: str, paths: Sequence[str], side: Sequence[ChoiceResult], shown: Sequence[Any]
) -> PrintedTable:
    by_label = {_label(*key): [_accuracy(result, *key) for result in side] for key in shown}
    by_label[MEAN_OVER_SETS] = [result.mean_over(SETS) for result in side]
    rows: list[tuple[object, ...]] = []
    for label, of_runs in by_label.items():
        accuracies = [accuracy for accuracy in of_runs if accuracy is not None]
        if accuracies:
            spread = Spread.of([accuracy.accuracy for accuracy in accuracies])
            numbers = (spread.mean, spread.sd, spread.min, spread.median, spread.max, accuracies[0].majority)
            rows.append((label, _range([accuracy.n for accuracy in accuracies]), *numbers))
    columns = ["items", "n", "mean", "sd", "min", "median", "max", "always the more frequent number"]
    if all(row[-1] is None for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    each = ", ".join(f"{name} {result.accuracy:.2f}" for name, result in zip(short_names(paths), side, strict=True))
    note = f"runs: {each}; left out: {_range([result.n_skipped for result in side])} of {side[0].n_items:,} "
    note += f"(out of vocabulary: {'left out' if side[0].oov == 'skip' else 'wrong'})"
    return PrintedTable(f"{command} accuracy in % of {len(side)} runs", columns, rows, note=note)


def _table_of_comparisons(
    comparisons: dict[Any, Any], shown: Sequence[Any], n_first: int, n_second: int
) -> PrintedTable:
    rows = [
        (_label(*key), f"{of.n_items:,}", f"{of.difference:+.2f}", *interval_and_p(of.low, of.high, of.p_value))
        for key, of in comparisons.items()
        if key in shown
    ]
    return PrintedTable(
        "difference of the means, in percentage points",
        ["items", "n", "difference", "95% interval", "p"],
        rows,
        note=f"over {n_first} and {n_second} runs and the items that all of them scored: min F' (Clark 1973)",
    )


def _accuracy(result: ChoiceResult, name: str, value: str | int) -> Accuracy | None:
    return result.overall if (name, value) == ALL else result.groups.get(name, {}).get(value)


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} - {most:,}"


def _label(name: str, value: str | int) -> str:
    return "all" if (name, value) == ALL else f"{name}: {value}"
