"""`stack-lm results`: a paper's table beside ours."""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING, Any

from ..console import print_json, print_table
from ..experiments.config import parse_measure
from ..parsing.export import escape_latex

if TYPE_CHECKING:
    from ..experiments.results import Trials

EXAMPLE = (
    "stack-lm results runs/hao2018-table1\n"
    "  stack-lm results runs/hao2018-table1 --format markdown\n"
    "  stack-lm results runs/hao2018-table1 --format latex > table1.tex"
)
FORMATS = ("text", "markdown", "latex", "json")
_SHORT = {"minimum": "min", "median": "med", "maximum": "max", "mean": "mean", "best": "best"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm results`."""
    parser.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        help="the output_dir of `stack-lm train task`; its shards, and several of one table, are merged",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the table (default: text)")


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    from ..experiments.shards import read_trials

    results = read_trials(*options.directories)
    if options.json or options.format == "json":
        print_json({"output_dir": _said(options.directories)} | describe(results))
    else:
        print_results(results, options.format)


def _said(directories: list[str]) -> str | list[str]:
    return directories[0] if len(directories) == 1 else directories


def describe(results: Trials) -> dict[str, Any]:
    """The table for JSON: each row's numbers by measure, fractions as in the results."""
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
        values = (row.paper or [None] * len(heads)) if compares else []
        for name in table.measures:
            ours, scale = measure(records, name), table.scale(parse_measure(name)[1])
            values = [*values, None if ours is None else scale * ours]
        finished, wanted = len(records), table.number_of_seeds(row)
        seeds = str(finished) if finished >= wanted else f"{finished} of {wanted}"
        numbers = ["" if value is None else f"{value:.{table.decimals}f}" for value in values]
        body.append([*map(str, row.cells), *numbers, seeds])
    {"text": _print_text, "markdown": _print_markdown, "latex": _print_latex}[form](
        table.title, columns, body, len(table.columns), table.note
    )


def _heads(measures: list[str]) -> list[str]:
    """Names of columns: the statistic, with the split and the score where there are several."""
    parsed = [parse_measure(measure) for measure in measures]
    several = [len({measure[part] for measure in parsed}) > 1 for part in range(2)]
    heads = []
    for *names, statistic in parsed:
        told = [name for name, tell in zip(names, several, strict=True) if tell]
        heads.append(" ".join([*told, _SHORT[statistic]]))
    return heads


def _print_text(title: str, columns: list[str], body: list[list[str]], text_columns: int, note: str) -> None:
    print_table(title, columns, body, note, text_columns=text_columns)


def _print_markdown(title: str, columns: list[str], body: list[list[str]], text_columns: int, note: str) -> None:
    print(f"{title}\n")
    print("| " + " | ".join(columns) + " |")
    print("|" + "|".join("---" if i < text_columns else "--:" for i in range(len(columns))) + "|")
    for row in body:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    if note:
        print(f"\n{note}")


def _print_latex(title: str, columns: list[str], body: list[list[str]], text_columns: int, note: str) -> None:
    print("\\begin{table}\n\\centering")
    print(f"\\caption{{{escape_latex(title)}{' ' * bool(note)}{escape_latex(note)}}}")
    print("\\begin{tabular}{" + "l" * text_columns + "r" * (len(columns) - text_columns) + "}\n\\hline")
    print(" & ".join(map(escape_latex, columns)) + " \\\\\n\\hline")
    for row in body:
        print(" & ".join(map(escape_latex, row)) + " \\\\")
    print("\\hline\n\\end{tabular}\n\\end{table}")
