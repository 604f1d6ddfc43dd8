"""`stack-lm results` of models: the scores in their cards, side by side."""

from __future__ import annotations

import argparse
from itertools import groupby

from ..console import print_json
from ..errors import InputError
from ..experiments.config import rows_pattern
from ..hub.card_scores import ScoreOfModels, scores_of_cards
from .files import check_different, short_names
from .printing import Heading, PrintedTable


def print_scores(options: argparse.Namespace) -> None:
    """Print a line for each score, with a column for each model.

    Raises:
        InputError: for an option that is about trials, a model without a card or scores, or a pattern that finds none.
    """
    about_trials = {"--compare": options.compare, "--matrix": options.matrix, "--save": options.save}
    given = next((option for option, value in about_trials.items() if value), None)
    if given is not None:
        raise InputError(f"{given} is about trials of `stack-lm train task`; {options.directories[0]} is a model")
    check_different(options.directories)
    names = short_names([path.removesuffix(".md").rstrip("/") for path in options.directories])
    scores = scores_of_cards(options.directories)
    if options.rows is not None:
        scores = _chosen(scores, options.rows)
    if options.json:
        print_json({"models": dict(zip(names, options.directories, strict=True)), "scores": _described(scores, names)})
        return
    body: list[list[str] | Heading] = []
    for heading, of_data in groupby(scores, _heading):
        body.append(Heading(heading))
        for score in of_data:
            values = (score.values.get(model) for model in range(len(names)))
            body.append([score.metric, *("" if value is None else f"{value:.2f}" for value in values)])
    PrintedTable("Scores in the models' cards", ["score", *names], body, 1).print_as(options.format)


def _heading(score: ScoreOfModels) -> str:
    return f"{score.task}: {score.data}"


def _chosen(scores: list[ScoreOfModels], pattern: str) -> list[ScoreOfModels]:
    finder = rows_pattern(pattern)
    chosen = [score for score in scores if finder.search(f"{_heading(score)}, {score.metric}")]
    if not chosen:
        there = "; ".join(dict.fromkeys(score.metric for score in scores))
        raise InputError(f"--rows {pattern!r} finds no score; the scores are {there}")
    return chosen


def _described(scores: list[ScoreOfModels], names: list[str]) -> list[dict[str, object]]:
    return [
        {
            "task": score.task,
            "data": score.data,
            "metric": score.metric,
            "values": {names[model]: value for model, value in score.values.items()},
            "intervals": {names[model]: interval for model, interval in score.intervals.items()},
        }
        for score in scores
    ]
