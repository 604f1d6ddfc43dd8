"""`stack-lm results`: a paper's table beside ours, or the scores of models side by side."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...training.trials.config import parse_measure
from ..options import option
from ..printing import FORMS, Heading, PrintedTable
from ..report import Report

if TYPE_CHECKING:
    from ...training.trials.config import Table
    from ...training.trials.results import Trials

EXAMPLE = (
    "stack-lm results runs/hao2018-table1\n"
    "  stack-lm results runs/hao2018-table1 --format markdown\n"
    "  stack-lm results runs/hao2018-table1 --format latex > table1.tex\n"
    "  stack-lm results runs/deletang2023-hierarchy --matrix\n"
    "  stack-lm results runs/hao2018-table1 --output results/hao2018-table1\n"
    "  stack-lm results models/wikipedia-u1 models/wikipedia-lstm --rows 'prpn|accuracy'\n"
    "  stack-lm results u1.json lstm.json --rows 'perplexity|accuracy' --format latex\n"
    "  stack-lm results runs/u1-s? --column 'perplexity=wiki.*inner' --column 'F1=prpn.*algorithm1'\n"
    "  stack-lm results runs/u1-s? published.csv --column 'F1=prpn(, push_strength, algorithm1)?$' --summary "
    "--title 'F1 over seeds'"
)
_SHORT = {"minimum": "min", "median": "med", "maximum": "max", "mean": "mean", "best": "best"}
_SHORT |= {"mean_of_best_loss": "mean of best loss"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm results`."""
    directories = "an output_dir of `stack-lm train task`; several directories of one table are "
    directories += "merged. Or models, their cards, files of --json output of perplexity, parse-f1, agreement, "
    directories += "minimal-pairs or strengths, or tables with a column 'model' (.csv, .tsv), such as published scores"
    option(parser, "DIR ...", directories, dest="directories")
    matrix = "a matrix: tasks down, by their level of the Chomsky hierarchy, and networks across"
    option(parser, "--matrix", matrix)
    choices = parser.add_mutually_exclusive_group()
    option(choices, "--rows REGEX", "print only the rows (of models: scores) whose names match")
    column = "of models: print a row for each model, with a column for the score whose name matches; repeatable"
    option(choices, "--column HEAD=REGEX", column, action="append", default=[], dest="columns")
    summary = "with --column: also print the minimum, median and maximum over models whose names differ in the seed at "
    option(parser, "--summary", f"{summary}their end, such as u1-seed3")
    option(parser, "--title TEXT", "title of a table of models, the caption in LaTeX (default: Scores of models)")
    output = "also write the table and its trials, without models and scores by length, to a directory small enough to "
    option(parser, "-o, --output DIR", f"{output}publish, which this command can read")
    option(parser, "--format", "format of the table", choices=FORMS, default="text")


def run(options: argparse.Namespace) -> Report:
    """Describe the trials of a table, or the scores of models."""
    from ...training.trials.results import has_trials, read_trials, save_trials

    if not any(map(has_trials, options.directories)):
        from ...hub.card_scores import has_scores
        from ..card_results import scores_of_models

        if any(map(has_scores, options.directories)):
            return scores_of_models(options)
    about_models = {"--column": options.columns, "--summary": options.summary, "--title": options.title}
    given = next((option for option, value in about_models.items() if value), None)
    if given is not None:
        raise InputError(f"{given} is about the scores of models; {options.directories[0]} has trials, or none")
    trials = read_trials(*options.directories)
    if options.output is not None:
        save_trials(trials, options.output)
    results = trials.of_rows(options.rows)
    source = options.directories[0] if len(options.directories) == 1 else options.directories
    shown: Iterable[PrintedTable]
    if options.matrix:
        record, shown = _make_matrix(options, results)
    else:
        record, shown = describe(results), results_table(results)
    return Report({"output_dir": source} | record, shown, form=options.format)


def describe(results: Trials) -> dict[str, Any]:
    """Describe the table for JSON: each row's numbers by measure, fractions as in the results."""
    from ...training.trials.results import measure

    table = results.table()
    rows = []
    for row in table.rows:
        records = results.of_row(row)
        printed = zip(table.measures, row.paper or [None] * len(table.measures), strict=True)
        paper = {
            name: None if value is None else value / table.scale(parse_measure(name)[1]) for name, value in printed
        }
        rows.append(
            {
                "row": row.name,
                **dict(zip(table.columns, row.cells, strict=True)),
                "preset": row.preset,
                "task": row.task,
                "paper": paper,
                "ours": {name: measure(records, name) for name in table.measures},
                "seeds": [record["seed"] for record in records],
                "wanted": table.number_of_seeds(row),
                "seconds": statistics.fmean(record["seconds"] for record in records) if records else None,
            }
        )
    return {"title": table.title, "measures": table.measures, "rows": rows}


def results_table(results: Trials) -> Iterator[PrintedTable]:
    """The table for people."""
    table, rows = results.table(), describe(results)["rows"]
    compares = any(value is not None for row in rows for value in row["paper"].values())
    sides = ("paper", "ours") if compares else ("ours",)
    columns = [str(column) for column in table.columns]
    columns += [f"{side} {head}" for side in sides for head in _heads(table.measures)] + ["seeds"]
    body = []
    for row, described in zip(table.rows, rows, strict=True):
        numbers = [_number(table, name, described[side][name]) for side in sides for name in table.measures]
        finished, wanted = len(described["seeds"]), described["wanted"]
        seeds = str(finished) if finished >= wanted else f"{finished} of {wanted}"
        body.append([*map(str, row.cells), *numbers, seeds])
    yield PrintedTable(table.title, columns, body, len(table.columns), table.note)


def _number(table: Table, name: str, value: float | None) -> str:
    """Format a measure's value for the table; "" for None."""
    return "" if value is None else f"{table.scale(parse_measure(name)[1]) * value:.{table.decimals}f}"


def _make_matrix(options: argparse.Namespace, results: Trials) -> tuple[dict[str, Any], list[PrintedTable]]:
    """Tasks by networks: the record, and a table for each measure."""
    from ...training.trials.matrix import make_matrix, task_column
    from ...training.trials.results import measure

    table = results.table()
    if options.format == "csv" and len(table.measures) > 1:
        raise InputError(f"--matrix prints {len(table.measures)} tables, one for each measure; --format csv prints one")
    matrix = make_matrix(table)
    records = {place: results.of_row(row) for place, row in matrix.rows.items()}
    places = [(level, task) for level, tasks in matrix.levels.items() for task in tasks]
    cells = [
        {"level": level, "task": task, "network": network}
        | {name: measure(records[task, network], name) for name in table.measures}
        | {"seeds": [record["seed"] for record in records[task, network]]}
        for level, task in places
        for network in matrix.networks
        if (task, network) in records
    ]
    finished, wanted = len(results.records), sum(table.number_of_seeds(row) for row in table.rows)
    notes = [table.note] * bool(table.note)
    notes += [f"{finished} of {wanted} trials are finished."] * (finished < wanted)
    tables = []
    for name, head in zip(table.measures, _heads(table.measures), strict=True):
        body: list[list[str] | Heading] = []
        for level, tasks in matrix.levels.items():
            body += [Heading(level)] * bool(level)
            for task in tasks:
                values = [measure(records.get((task, network), []), name) for network in matrix.networks]
                body.append([task, *(_number(table, name, value) for value in values)])
        columns = [str(table.columns[task_column(table)]), *matrix.networks]
        title = f"{table.title} ({head})" if len(table.measures) > 1 else table.title
        tables.append(PrintedTable(title, columns, body, 1, " ".join(notes)))
    record = {"title": table.title, "measures": table.measures}
    return record | {"networks": matrix.networks, "levels": matrix.levels, "cells": cells}, tables


def _heads(measures: list[str]) -> list[str]:
    """Column names: the statistic, with the split and the score if there are several."""
    parsed = [parse_measure(measure) for measure in measures]
    several = [len({measure[part] for measure in parsed}) > 1 for part in range(2)]
    heads = []
    for *names, statistic in parsed:
        told = [name for name, tell in zip(names, several, strict=True) if tell]
        heads.append(" ".join([*told, _SHORT[statistic]]))
    return heads
