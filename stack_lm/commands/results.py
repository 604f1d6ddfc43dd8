"""`stack-lm results`: a paper's table beside ours, or the scores of models side by side."""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING, Any

from ..console import print_json
from ..errors import InputError
from ..experiments.config import parse_measure
from .files import short_names
from .printing import FORMS, Heading, PrintedTable

if TYPE_CHECKING:
    from ..experiments.config import Table
    from ..experiments.results import Trials

EXAMPLE = (
    "stack-lm results runs/hao2018-table1\n"
    "  stack-lm results runs/hao2018-table1 --format markdown\n"
    "  stack-lm results runs/hao2018-table1 --format latex > table1.tex\n"
    "  stack-lm results runs/hao2018-table1 --compare runs/hao2018-no-stopping\n"
    "  stack-lm results runs/deletang2023-hierarchy --matrix\n"
    "  stack-lm results runs/hao2018-table1 --save results/hao2018-table1\n"
    "  stack-lm results models/wikipedia-u1 models/wikipedia-lstm --rows 'prpn|accuracy'\n"
    "  stack-lm results u1.json lstm.json --rows 'perplexity|accuracy' --format latex\n"
    "  stack-lm results runs/u1-s? --column 'perplexity=wiki.*inner' --column 'F1=prpn.*algorithm1'\n"
    "  stack-lm results runs/u1-s? published.csv --column 'F1=prpn(, push_strength, algorithm1)?$' --summary "
    "--title 'F1 over seeds'"
)
FORMATS = (*FORMS, "json")
_SHORT = {"minimum": "min", "median": "med", "maximum": "max", "mean": "mean", "best": "best"}
_SHORT |= {"mean_of_best_loss": "mean of best loss"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm results`."""
    parser.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        help="an output_dir of `stack-lm train task`; its shards, and several directories of one table, are merged. Or "
        "models, their cards, files of --json output of perplexity, parse-f1, agreement, minimal-pairs or "
        "strengths, or CSV and TSV tables with a column 'model', such as published scores; shown side by side",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--compare", metavar="DIR", help="another run of the table: show both, and the difference")
    forms.add_argument(
        "--matrix",
        action="store_true",
        help="a matrix: tasks down, by their level of the Chomsky hierarchy, and networks across",
    )
    choices = parser.add_mutually_exclusive_group()
    choices.add_argument("--rows", metavar="REGEX", help="print only the rows (of models: scores) whose names match")
    choices.add_argument(
        "--column",
        metavar="HEAD=REGEX",
        action="append",
        default=[],
        dest="columns",
        help="of models: print a row for each model, with a column for the score whose name matches; repeatable",
    )
    parser.add_argument(
        "--summary",
        action="store_true",
        help="with --column: also print the minimum, median and maximum over models whose names differ in the seed at "
        "their end, such as u1-seed3",
    )
    parser.add_argument("--title", help="title of a table of models, the caption in LaTeX (default: Scores of models)")
    parser.add_argument(
        "--save",
        metavar="DIR",
        help="also write the whole table and its trials, without models and scores by length, to a directory small "
        "enough to publish, which this command can read",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="format of the table (default: text)")


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    from ..experiments.results import save_trials
    from ..experiments.shards import has_trials, read_trials

    options.json = options.json or options.format == "json"
    if not any(map(has_trials, options.directories)):
        from ..hub.card_scores import has_scores
        from .card_results import print_scores

        if any(map(has_scores, options.directories)):
            print_scores(options)
            return
    about_models = {"--column": options.columns, "--summary": options.summary, "--title": options.title}
    given = next((option for option, value in about_models.items() if value), None)
    if given is not None:
        raise InputError(f"{given} is about the scores of models; {options.directories[0]} has trials, or none")
    trials = read_trials(*options.directories)
    if options.save is not None:
        save_trials(trials, options.save)
    results = trials.of_rows(options.rows)
    if options.compare is not None:
        _compare(options, results)
    elif options.matrix:
        _print_matrix(options, results)
    elif options.json:
        print_json({"output_dir": _said(options.directories)} | describe(results))
    else:
        print_results(results, options.format)


def _said(directories: list[str]) -> str | list[str]:
    return directories[0] if len(directories) == 1 else directories


def describe(results: Trials) -> dict[str, Any]:
    """Describe the table for JSON: each row's numbers by measure, fractions as in the results."""
    from ..experiments.results import measure

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


def print_results(results: Trials, form: str = "text") -> None:
    """Print the table for people."""
    from ..experiments.results import measure

    table = results.table()
    compares = any(value is not None for row in table.rows for value in row.paper or ())
    heads = _heads(table.measures)
    columns = [str(column) for column in table.columns]
    columns += [f"paper {head}" for head in heads] * compares + [f"ours {head}" for head in heads] + ["seeds"]
    body = []
    for row in table.rows:
        records = results.of_row(row)
        paper = (row.paper or [None] * len(heads)) if compares else []
        numbers = ["" if value is None else f"{value:.{table.decimals}f}" for value in paper]
        numbers += [_number(table, name, measure(records, name)) for name in table.measures]
        finished, wanted = len(records), table.number_of_seeds(row)
        seeds = str(finished) if finished >= wanted else f"{finished} of {wanted}"
        body.append([*map(str, row.cells), *numbers, seeds])
    PrintedTable(table.title, columns, body, len(table.columns), table.note).print_as(form)


def _number(table: Table, name: str, value: float | None, form: str = "") -> str:
    """Format a measure's value for the table; "" for None."""
    return "" if value is None else f"{table.scale(parse_measure(name)[1]) * value:{form}.{table.decimals}f}"


def _compare(options: argparse.Namespace, results: Trials) -> None:
    from ..experiments.comparison import compare
    from ..experiments.shards import read_trials

    sources = [_said(options.directories), options.compare]
    comparison = compare(results, read_trials(options.compare).of_rows(options.rows))
    table = results.table()
    if options.json:
        rows = [
            {
                "row": compared.row.name,
                **dict(zip(table.columns, compared.row.cells, strict=True)),
                "first": {name: values[0] for name, values in compared.values.items()},
                "second": {name: values[1] for name, values in compared.values.items()},
                "difference": {name: compared.difference(name) for name in table.measures},
                "seeds": {"first": compared.seeds[0], "second": compared.seeds[1]},
            }
            for compared in comparison.rows
        ]
        only = dict(zip(("only_first", "only_second"), comparison.only, strict=True))
        about = {"first": sources[0], "second": sources[1], "title": table.title, "measures": table.measures}
        print_json(about | {"rows": rows} | only)
        return
    names = short_names([options.directories[0], options.compare])
    columns = [str(column) for column in table.columns]
    for head in _heads(table.measures):
        columns += [f"{name} {head}" for name in names] + [f"difference {head}"]
    body = []
    for compared in comparison.rows:
        numbers = []
        for name, values in compared.values.items():
            numbers += [_number(table, name, value) for value in values]
            numbers.append(_number(table, name, compared.difference(name), "+"))
        seeds = [str(len(own)) for own in compared.seeds]
        body.append(
            [*map(str, compared.row.cells), *numbers, seeds[0] if len(set(seeds)) == 1 else " and ".join(seeds)]
        )
    notes = [f"The difference is {names[1]} minus {names[0]}."]
    notes += [f"Only in {name}: {'; '.join(only)}." for name, only in zip(names, comparison.only, strict=True) if only]
    PrintedTable(table.title, [*columns, "seeds"], body, len(table.columns), " ".join(notes)).print_as(options.format)


def _print_matrix(options: argparse.Namespace, results: Trials) -> None:
    from ..experiments.matrix import make_matrix, task_column
    from ..experiments.results import measure

    table = results.table()
    if options.format == "csv" and len(table.measures) > 1:
        raise InputError(f"--matrix prints {len(table.measures)} tables, one for each measure; --format csv prints one")
    matrix = make_matrix(table)
    records = {place: results.of_row(row) for place, row in matrix.rows.items()}
    if options.json:
        cells = [
            {
                "level": level,
                "task": task,
                "network": network,
                **{name: measure(records[task, network], name) for name in table.measures},
                "seeds": [record["seed"] for record in records[task, network]],
            }
            for level, tasks in matrix.levels.items()
            for task in tasks
            for network in matrix.networks
            if (task, network) in records
        ]
        about = {"output_dir": _said(options.directories), "title": table.title, "measures": table.measures}
        print_json(about | {"networks": matrix.networks, "levels": matrix.levels, "cells": cells})
        return
    finished, wanted = len(results.records), sum(table.number_of_seeds(row) for row in table.rows)
    notes = [table.note] * bool(table.note)
    notes += [f"{finished} of {wanted} trials are finished."] * (finished < wanted)
    for i, (name, head) in enumerate(zip(table.measures, _heads(table.measures), strict=True)):
        body: list[list[str] | Heading] = []
        for level, tasks in matrix.levels.items():
            body += [Heading(level)] * bool(level)
            for task in tasks:
                found = [measure(records.get((task, network), []), name) for network in matrix.networks]
                body.append([task, *(_number(table, name, value) for value in found)])
        columns = [str(table.columns[task_column(table)]), *matrix.networks]
        title = f"{table.title} ({head})" if len(table.measures) > 1 else table.title
        if i:
            print()
        PrintedTable(title, columns, body, 1, " ".join(notes)).print_as(options.format)


def _heads(measures: list[str]) -> list[str]:
    """Column names: the statistic, with the split and the score if there are several."""
    parsed = [parse_measure(measure) for measure in measures]
    several = [len({measure[part] for measure in parsed}) > 1 for part in range(2)]
    heads = []
    for *names, statistic in parsed:
        told = [name for name, tell in zip(names, several, strict=True) if tell]
        heads.append(" ".join([*told, _SHORT[statistic]]))
    return heads
