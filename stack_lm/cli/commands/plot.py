"""`stack-lm plot`: figures of trials of tasks, and of training."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.console import print_note
from ...core.errors import InputError
from ...core.messages import check_name
from ...figures.curves import plot_learning_curves, read_metrics
from ...figures.figures import save_figure
from ...figures.hierarchy import TaskScores, plot_task_scores
from ...figures.trials import Curve, check_curves, plot_curves
from ..files import FIGURES, check_files, short_names
from ..options import option
from ..report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


EXAMPLE = (
    "stack-lm plot convergence runs/grefenstette2015-reduced --score coarse --output convergence.png\n"
    "  stack-lm plot lengths runs/suzgun2019-dyck2 --rows Stack-RNN --output lengths.png\n"
    "  stack-lm plot results runs/deletang2023-hierarchy --output hierarchy.png\n"
    "  stack-lm plot training runs/u1 runs/lstm --output training.png"
)
KINDS = {
    "convergence": "the scores of trials over the strings they were trained on",
    "lengths": "the scores of trials by the length of test strings, or by position for answers at every step",
    "results": "a table's scores by task and network as a heat map, and by length",
    "training": "the perplexities and strengths of language models during training, or the losses and scores of "
    "classifiers and span parsers",
}
_OF_SEVERAL = ("results", "training")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm plot`."""
    option(parser, "KIND", "; ".join(f"{kind}: {text}" for kind, text in KINDS.items()))
    directories = "convergence, lengths: an output_dir of `stack-lm train task`; results: one or more of these, of one "
    directories += "table; training: one or more runs of `stack-lm train lm`, `train classifier` or `train parser`"
    option(parser, "DIR ...", directories, dest="sources")
    option(parser, "-o, --output FILE", "the figure: .png, .pdf or .svg", required=True, endings=FIGURES)
    option(parser, "--rows REGEX", "of trials: only the rows of the table whose names match")
    option(parser, "--score NAME", "of trials: the score to draw (default: the first of the table)")


def run(options: argparse.Namespace) -> Report:
    """Draw the figure."""
    check_name("KIND", options.kind, KINDS)
    check_files(options, *options.sources)
    for name in ("rows", "score"):
        if getattr(options, name) is not None and options.kind == "training":
            raise InputError(f"--{name} is for figures of trials, not for training")
    if options.score and not options.score.isidentifier():
        raise InputError(f"--score is the name of a score, such as accuracy; got {options.score!r}")
    if options.kind not in _OF_SEVERAL and len(options.sources) > 1:
        raise InputError(f"a figure of {options.kind} has one DIR; got {len(options.sources)}")
    draw = {"results": _draw_results, "training": _draw_training}.get(options.kind, _draw_trials)
    figure, about = draw(options)
    save_figure(options.output, figure)
    record = {"kind": options.kind, "sources": options.sources, **about, "written": options.output}
    return Report(record, written=[options.output])


def _draw_trials(options: argparse.Namespace) -> tuple[Figure, dict[str, Any]]:
    from ...training.trials.config import parse_measure
    from ...training.trials.matrix import split_cells
    from ...training.trials.results import read_trials

    results = read_trials(options.sources[0]).of_rows(options.rows)
    table = results.table()
    score = options.score or parse_measure(table.measures[0])[1]
    curve = _over_strings if options.kind == "convergence" else _over_lengths
    curves: dict[str, dict[str, list[Curve]]] = {}
    marks: dict[str, set[float]] = {}
    over, sizes = _sizes_of(results.records, "test", score)
    for row, (panel, name) in zip(table.rows, split_cells(table), strict=True):
        if records := results.of_row(row):
            curves.setdefault(panel, {})[name] = [curve(record, score, table.scale(score), over) for record in records]
            marks.setdefault(panel, set()).update(_trained(records))
    if not curves:
        raise InputError(f"{options.sources[0]} has no finished trials of such rows")
    split = "training" if score == "loss" else "validation" if options.kind == "convergence" else "test"
    y_label = f"{score}{' (%)' if table.scale(score) == 100 else ''}, {split}"
    if options.kind == "convergence":
        sizes, marks = "strings trained on", {}
    return plot_curves(curves, sizes, y_label, table.title, log=score == "loss", marks=marks), {"score": score}


def _draw_results(options: argparse.Namespace) -> tuple[Figure, dict[str, Any]]:
    from ...training.trials.config import parse_measure
    from ...training.trials.matrix import make_matrix
    from ...training.trials.results import measure, read_trials

    results = read_trials(*options.sources).of_rows(options.rows)
    table = results.table()
    matrix = make_matrix(table)
    split, score, statistic = parse_measure(table.measures[0])
    score = options.score or score
    name, scale = f"{split}/{score}.{statistic}", table.scale(score)
    values, texts = {}, {}
    curves: dict[str, dict[str, list[Curve]]] = {}
    marks: dict[str, set[float]] = {}
    drawn, sizes, without = "", {}, {}
    for (task, network), row in matrix.rows.items():
        records = results.of_row(row)
        if not records:
            continue
        values[task, network] = scale * float(measure(records, name) or 0.0)
        wanted = table.number_of_seeds(row)
        missing = f" ({len(records)} of {wanted})" if len(records) < wanted else ""
        texts[task, network] = f"{values[task, network]:.{table.decimals}f}{missing}"
        lengths = records[0]["scores"][split].get("by_length", {})
        if not lengths:
            without[network] = True
            continue
        drawn = score if score in lengths else next(iter(lengths))
        over, sizes[task] = _sizes_of(records, split, drawn)
        curves.setdefault(task, {})[network] = [
            average_lengths(record["scores"][split][over][drawn], table.scale(drawn)) for record in records
        ]
        marks.setdefault(task, set()).update(_trained(records))
    if curves and without:
        print_note(f"without scores by length: {', '.join(without)}")
    try:
        if curves:
            check_curves(curves)
    except InputError as error:
        print_note(f"no scores by length are drawn: {error}")
        curves = {}
    tasks = [task for level in matrix.levels.values() for task in level if task in curves]
    described = f"{score.replace('_', ' ')}{' in %' if scale == 100 else ''}, {split} strings, {statistic} over seeds"
    scores = TaskScores(
        table.title,
        described,
        matrix.networks,
        matrix.levels,
        values,
        texts,
        {task: curves[task] for task in tasks},
        sizes,
        f"{drawn.replace('_', ' ')}{' (%)' if table.scale(drawn) == 100 else ''}",
        scale == 100,
        marks,
    )
    return plot_task_scores(scores), {"measure": name, "networks": matrix.networks, "tasks": tasks}


def _draw_training(options: argparse.Namespace) -> tuple[Figure, dict[str, Any]]:
    names = short_names(options.sources)
    runs = {name: read_metrics(source) for name, source in zip(names, options.sources, strict=True)}
    return plot_learning_curves(runs), {"updates": {name: records[-1]["step"] for name, records in runs.items()}}


def _sizes_of(records: Sequence[dict[str, Any]], split: str, score: str) -> tuple[str, str]:
    """The scores to draw, "by_position" if all trials have an answer at every step; and the label of their axis."""
    if all(score in record["scores"].get(split, {}).get("by_position", {}) for record in records):
        return "by_position", "position in the string (symbols read)"
    return "by_length", "length of the string (symbols read)"


def _trained(records: Sequence[dict[str, Any]]) -> set[float]:
    """The longest strings of training; earlier records do not have them."""
    return {record["longest"] for record in records if "longest" in record}


def _over_strings(record: dict[str, Any], score: str, scale: float, over: str) -> Curve:
    points = [
        (epoch["strings"], epoch["loss"] if score == "loss" else epoch.get("validation", {}).get(score))
        for epoch in record["history"]
    ]
    known = [(x, scale * y) for x, y in points if y is not None]
    if not known:
        raise InputError(
            f"the trials of {record['row']!r} have no {score!r} of validation strings; --score loss has them"
        )
    return Curve(*map(list, zip(*known, strict=True)))


def _over_lengths(record: dict[str, Any], score: str, scale: float, over: str) -> Curve:
    scores = record["scores"]["test"][over]
    if score not in scores:
        found = f"no score {score!r}; they have {', '.join(scores)}" if scores else "no scores by length"
        raise InputError(f"the trials of {record['row']!r} have {found}")
    return average_lengths(scores[score], scale, most=len(scores[score]))


def average_lengths(scores: dict[str, Any], scale: float, most: int = 40) -> Curve:
    """A score by length, averaged over the strings of neighbours if there are too many lengths.

    Args:
        scores: the score and the number of strings of each length.
        scale: the factor of the scores.
        most: the maximum number of lengths.
    """
    points = np.array(sorted((int(length), value, number) for length, (value, number) in scores.items()))
    size = -(-len(points) // most)
    parts = [points[start : start + size].T for start in range(0, len(points), size)]
    x = [float(lengths.mean()) for lengths, _, _ in parts]
    return Curve(x, [scale * float(np.average(values, weights=numbers)) for _, values, numbers in parts])
