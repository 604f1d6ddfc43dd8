"""`stack-lm results` for models: their scores, from cards, the output of commands, or tables, side by side."""

from __future__ import annotations

import argparse
import re
import statistics
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from ..core.checks import compile_pattern
from ..core.console import print_note
from ..core.errors import InputError
from ..core.messages import shortened
from ..hub.card_scores import ScoreOfModels, Value, read_scores
from .files import check_different, short_names
from .printing import Heading, PrintedTable
from .report import Report

_BESIDE = 4  # models side by side, even with fewer scores
_SEED = re.compile(r"[-_ ,(]*(?<![A-Za-z0-9])(?:seed|s)[-_ =]?\d+\)?$")  # u1-seed3, u1-s3, "u = 1, seed 3"
_SUMMARY = "minimum, median, maximum"

Column = dict[str, Value]
"""The scores of models in a column, by their short names."""


def scores_of_models(options: argparse.Namespace) -> Report:
    """A line for each score, with a column for each model; or transposed, with `--column` or many models.

    Raises:
        InputError: for an option for trials, a model without a card or scores, or a pattern without a match.
    """
    for option, value in (("--matrix", options.matrix), ("--output", options.output)):
        if value:
            raise InputError(
                f"{option} is about trials of `stack-lm train task`; {options.directories[0]} has scores of models"
            )
    if options.summary and not options.columns:
        raise InputError("--summary is about the columns of --column; give one or more")
    check_different(options.directories)
    models, scores = read_scores(options.directories)
    names = dict(zip(models, short_names(models), strict=True))
    scores = [replace(score, values={names[model]: v for model, v in score.values.items()}) for score in scores]
    heads, rows, record = (_by_model if options.columns else _by_score)(options, list(names.values()), scores)
    record = {"models": {name: model for model, name in names.items()}} | record
    return Report(record, [PrintedTable(options.title or "Scores of models", heads, rows)], form=options.format)


def _by_score(
    options: argparse.Namespace, names: list[str], scores: list[ScoreOfModels]
) -> tuple[list[str], list[list[str] | Heading], dict[str, Any]]:
    """The heads and the rows of a table of scores, transposed for many models, and the record."""
    if options.rows is not None:
        scores = _chosen(scores, options.rows, "--rows")
    record = [
        {"task": score.task, "data": score.data, "metric": score.metric}
        | {"values": {name: value.value for name, value in score.values.items()}}
        | {"intervals": {name: value.interval for name, value in score.values.items() if value.interval}}
        for score in scores
    ]
    rows: list[list[str] | Heading] = []
    if len(names) > max(_BESIDE, len(scores)):
        rows += [[name, *(str(score.values.get(name, "")) for score in scores)] for name in names]
        return ["model", *(score.full_name for score in scores)], rows, {"scores": record}
    for heading, of_data in groupby(scores, attrgetter("heading")):
        rows.append(Heading(heading))
        rows += [[score.metric, *(str(score.values.get(name, "")) for name in names)] for score in of_data]
    return ["score", *names], rows, {"scores": record}


def _by_model(
    options: argparse.Namespace, names: list[str], scores: list[ScoreOfModels]
) -> tuple[list[str], list[list[str] | Heading], dict[str, Any]]:
    """The heads and the rows of a table of models with a score in one of the columns of `--column`, and the record."""
    columns = _columns(options.columns, scores)
    shown = [name for name in names if any(name in column for column in columns.values())]
    if left_out := [name for name in names if name not in shown]:
        print_note(f"without a score in these columns, and not shown: {shortened(', '.join(left_out), 300)}")
    seeds: dict[str, list[str]] = {}  # by the name without the seed at its end
    for name in shown if options.summary else ():
        seeds.setdefault(_SEED.sub("", name), []).append(name)
    seeds = {name: group for name, group in seeds.items() if len(group) > 1}
    if options.summary and not seeds:
        print_note("--summary finds no models whose names differ only in the seed at their end, such as u1-seed3")
    rows: list[list[str] | Heading] = []
    for name in shown:
        rows.append([name, *(str(column.get(name, "")) for column in columns.values())])
        for common, group in seeds.items():
            if group[-1] == name:
                ranges = [dict.fromkeys(map(str, _range(column, group))) for column in columns.values()]
                rows.append([f"{common}: {_SUMMARY}", *map("; ".join, ranges)])
    record: dict[str, Any] = {
        "rows": [
            {"model": name} | {head: column[name].value if name in column else None for head, column in columns.items()}
            for name in shown
        ]
    }
    if options.summary:
        record["summary"] = [
            {"models": group, "name": name}
            | {head: [value.value for value in _range(column, group)] or None for head, column in columns.items()}
            for name, group in seeds.items()
        ]
    return ["model", *columns], rows, record


def _range(column: Column, names: list[str]) -> list[Value]:
    """The minimum, median and maximum of the models' scores; [] for fewer than two scores."""
    found = [column[name] for name in names if name in column]
    if len(found) < 2:
        return []
    values, decimals = [value.value for value in found], max(value.decimals for value in found)
    return [Value(statistic(values), decimals) for statistic in (min, statistics.median, max)]


def _columns(given: list[str], scores: list[ScoreOfModels]) -> dict[str, Column]:
    """The one score that each column matches, for each model that has it, by the head."""
    columns: dict[str, Column] = {}
    for text in given:
        head, _, pattern = text.partition("=")
        if not (head and pattern):
            raise InputError(f"--column must be HEAD=REGEX, such as 'F1=prpn.*algorithm1'; got {text!r}")
        if head in columns:
            raise InputError(f"--column has two columns named {head!r}")
        matches: dict[str, ScoreOfModels] = {}
        for score in _chosen(scores, pattern, "--column"):
            for name in score.values:
                if (other := matches.setdefault(name, score)) is not score:
                    both = f"{other.full_name!r} and {score.full_name!r}"
                    raise InputError(f"--column {text!r} finds more than one score of {name}: {both}")
        columns[head] = {name: score.values[name] for name, score in matches.items()}
    return columns


def _chosen(scores: list[ScoreOfModels], pattern: str, option: str) -> list[ScoreOfModels]:
    finder = compile_pattern(pattern, option)
    chosen = [score for score in scores if finder.search(score.full_name)]
    if not chosen:
        names = "; ".join(dict.fromkeys(score.full_name for score in scores))
        raise InputError(f"{option} {pattern!r} finds no score; the scores are {names}")
    return chosen
