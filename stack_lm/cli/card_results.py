"""`stack-lm results` for models: their scores, from cards, the output of commands, or tables, side by side."""

from __future__ import annotations

import argparse
import re
import statistics
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

_TITLE = "Scores of models"
_BESIDE = 4  # models side by side, even with fewer scores
_SEED = re.compile(r"[-_ ,(]*(?<![A-Za-z0-9])(?:seed|s)[-_ =]?\d+\)?$")  # u1-seed3, u1-s3, "u = 1, seed 3"
_SUMMARY = "minimum, median, maximum"


def scores_of_models(options: argparse.Namespace) -> Report:
    """A line for each score, with a column for each model; or transposed, with `--column` or many models.

    Raises:
        InputError: for an option for trials, a model without a card or scores, or a pattern without a match.
    """
    about_trials = {"--matrix": options.matrix, "--output": options.output}
    given = next((option for option, value in about_trials.items() if value), None)
    if given is not None:
        raise InputError(
            f"{given} is about trials of `stack-lm train task`; {options.directories[0]} has scores of models"
        )
    check_different(options.directories)
    models, scores = read_scores(options.directories)
    names = short_names(models)
    record: dict[str, Any] = {"models": dict(zip(names, models, strict=True))}
    title = options.title or _TITLE
    if options.columns:
        more, heads, body = _by_model(options, names, scores)
        return Report(record | more, [PrintedTable(title, heads, body)], form=options.format)
    if options.summary:
        raise InputError("--summary is about the columns of --column; give one or more")
    if options.rows is not None:
        scores = _chosen(scores, options.rows, "--rows")
    record["scores"] = _described(scores, names)
    rows: list[list[str] | Heading] = []
    if len(names) > max(_BESIDE, len(scores)):
        heads = ["model", *(score.full_name for score in scores)]
        rows += [[name, *(str(score.values.get(i, "")) for score in scores)] for i, name in enumerate(names)]
    else:
        heads = ["score", *names]
        for heading, of_data in groupby(scores, attrgetter("heading")):
            rows.append(Heading(heading))
            rows += [[s.metric, *(str(s.values.get(i, "")) for i in range(len(names)))] for s in of_data]
    return Report(record, [PrintedTable(title, heads, rows)], form=options.format)


def _by_model(
    options: argparse.Namespace, names: list[str], scores: list[ScoreOfModels]
) -> tuple[dict[str, Any], list[str], list[list[str]]]:
    """The record, the heads and the rows of a table of models with a score in one of the columns of `--column`."""
    columns = _columns(options.columns, names, scores)
    shown = [model for model in range(len(names)) if any(model in column for column in columns.values())]
    if left_out := [name for model, name in enumerate(names) if model not in shown]:
        print_note(f"without a score in these columns, and not shown: {shortened(', '.join(left_out), 300)}")
    seeds = _seeds(names, shown) if options.summary else {}
    if options.summary and not seeds:
        print_note("--summary finds no models whose names differ only in the seed at their end, such as u1-seed3")
    ends = {group[-1]: (name, group) for name, group in seeds.items()}
    rows, summary, body = [], [], []
    for model in shown:
        values = {head: column[model].value if model in column else None for head, column in columns.items()}
        rows.append({"model": names[model]} | values)
        body.append([names[model], *(str(column.get(model, "")) for column in columns.values())])
        if model in ends:
            name, group = ends[model]
            body.append([f"{name}: {_SUMMARY}", *(_summary(column, group) for column in columns.values())])
    for name, group in seeds.items():
        ranges = {head: _range(column, group) or None for head, column in columns.items()}
        summary.append({"models": [names[model] for model in group], "name": name} | ranges)
    return {"rows": rows} | ({"summary": summary} if options.summary else {}), ["model", *columns], body


def _seeds(names: list[str], models: list[int]) -> dict[str, list[int]]:
    """The models by their names without a seed at the end, where there are two or more."""
    groups: dict[str, list[int]] = {}
    for model in models:
        groups.setdefault(_SEED.sub("", names[model]), []).append(model)
    return {name: group for name, group in groups.items() if len(group) > 1}


def _range(column: dict[int, Value], models: list[int]) -> list[float]:
    """The minimum, median and maximum of the models' scores; [] for fewer than two scores."""
    values = [column[model].value for model in models if model in column]
    return [min(values), statistics.median(values), max(values)] if len(values) > 1 else []


def _summary(column: dict[int, Value], models: list[int]) -> str:
    """The range for a table, one number if all are equal."""
    decimals = max((column[model].decimals for model in models if model in column), default=0)
    printed = [str(Value(value, decimals)) for value in _range(column, models)]
    return "; ".join(printed if len(set(printed)) > 1 else printed[:1])


def _columns(given: list[str], names: list[str], scores: list[ScoreOfModels]) -> dict[str, dict[int, Value]]:
    """The one score that each column matches, for each model that has it: by the head, then by model index."""
    columns: dict[str, dict[int, Value]] = {}
    for column in given:
        head, equals, pattern = column.partition("=")
        if not (head and equals and pattern):
            raise InputError(f"--column must be HEAD=REGEX, such as 'F1=prpn.*algorithm1'; got {column!r}")
        if head in columns:
            raise InputError(f"--column has two columns named {head!r}")
        columns[head] = {}
        matches: dict[int, ScoreOfModels] = {}
        for score in _chosen(scores, pattern, "--column"):
            for model, value in score.values.items():
                if model in matches:
                    both = " and ".join(repr(each.full_name) for each in (matches[model], score))
                    raise InputError(f"--column {column!r} finds more than one score of {names[model]}: {both}")
                matches[model], columns[head][model] = score, value
    return columns


def _chosen(scores: list[ScoreOfModels], pattern: str, option: str) -> list[ScoreOfModels]:
    finder = compile_pattern(pattern, option)
    chosen = [score for score in scores if finder.search(score.full_name)]
    if not chosen:
        names = "; ".join(dict.fromkeys(score.full_name for score in scores))
        raise InputError(f"{option} {pattern!r} finds no score; the scores are {names}")
    return chosen


def _described(scores: list[ScoreOfModels], names: list[str]) -> list[dict[str, object]]:
    return [
        {
            "task": score.task,
            "data": score.data,
            "metric": score.metric,
            "values": {names[model]: value.value for model, value in score.values.items()},
            "intervals": {names[model]: value.interval for model, value in score.values.items() if value.interval},
        }
        for score in scores
    ]
