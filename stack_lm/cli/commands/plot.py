"""`stack-lm plot`: figures of models trained on tasks, of their trials, and of training."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import StatisticsError, correlation
from typing import TYPE_CHECKING, Any

from ...core.checks import compile_pattern
from ...core.console import non_negative_int, positive_int, print_json, print_written
from ...core.errors import InputError
from ...figures.computation import plot_computation
from ...figures.curves import F1Panel, plot_f1, plot_learning_curves, read_metrics
from ...figures.figures import check_figure_names, save_figure
from ...figures.hierarchy import TaskScores, plot_task_scores
from ...figures.trials import Curve, plot_curves
from ..files import check_outputs, short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure


EXAMPLE = (
    'stack-lm plot computation runs/hao2018-table1/models/1/0 --input "1 0 0 1 1 1" --output reversal.png\n'
    "  stack-lm plot memory runs/suzgun2019-dyck2/models/10/0 --length 20 --output memory.svg\n"
    "  stack-lm plot convergence runs/grefenstette2015-reduced --score coarse --output convergence.png\n"
    "  stack-lm plot lengths runs/suzgun2019-dyck2 --rows Stack-RNN --output lengths.png\n"
    "  stack-lm plot results runs/deletang2023-hierarchy --output hierarchy.png\n"
    "  stack-lm plot training runs/u1 runs/lstm --output training.png\n"
    "  stack-lm plot agreement f1.json --output agreement.png"
)
# The panels of a "computation" that a figure of the memory lacks.
_NOT_OF_MEMORY = (
    *("input", "output", "value", "reading", "read_strength"),
    *("input_pop_strength", "output_push_strength", "input_strength"),
)
KINDS = {
    "computation": "a model's input, output and actions at each step of a string",
    "memory": "the actions on the memory and its contents over a string",
    "convergence": "the scores of trials over the strings they were trained on",
    "lengths": "the scores of trials by the length of test strings",
    "results": "a table's scores by task and network as a heat map, and by length",
    "training": "the perplexities and strengths of language models during training, or the losses and scores of "
    "classifiers and span parsers",
    "agreement": "the F1 of runs over the F1 of their trees with those of the other runs",
}

_OF_SEVERAL = ("results", "training", "agreement")

# The kinds of figures that accept each option.
_ONE_STRING, _TRIALS = ("computation", "memory"), ("convergence", "lengths", "results")
_OPTIONS = dict.fromkeys(("input", "length", "seed"), _ONE_STRING) | {
    "rows": (*_TRIALS, "agreement"),
    "score": _TRIALS,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm plot`."""
    kinds = "; ".join(f"{kind}: {text}" for kind, text in KINDS.items())
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=kinds)
    parser.add_argument(
        "sources",
        metavar="DIR",
        nargs="+",
        help="computation, memory: a model that `stack-lm train task` saved; convergence, lengths: its output_dir; "
        "results: one or more of these, of one table; "
        "training: one or more runs of `stack-lm train lm`, `train classifier` or `train parser`; "
        "agreement: outputs of `stack-lm parse-f1 --ensemble --json`",
    )
    parser.add_argument("-o", "--output", metavar="F", required=True, help="the figure: .png, .pdf or .svg")
    parser.add_argument("--input", metavar="STRING", help="symbols separated by spaces (default: a random string)")
    parser.add_argument(
        "--length", type=positive_int, metavar="N", help="length of the random string, in the task's unit"
    )
    parser.add_argument("--seed", type=non_negative_int, metavar="N", help="seed of the random string (default: 0)")
    parser.add_argument(
        "--rows", metavar="REGEX", help="only the rows of the table, or the runs of the ensemble, whose names match"
    )
    parser.add_argument(
        "--score", metavar="NAME", help="for trials: the score to draw (default: the first of the table)"
    )


def run(options: argparse.Namespace) -> None:
    """Draw the figure."""
    check_figure_names(options.output)
    check_outputs({"--output": options.output}, options.sources)
    for name, kinds in _OPTIONS.items():
        if getattr(options, name) is not None and options.kind not in kinds:
            raise InputError(f"--{name} goes with {', '.join(kinds[:-1])} or {kinds[-1]}, not with {options.kind}")
    for name in ("length", "seed"):
        if options.input is not None and getattr(options, name) is not None:
            raise InputError(f"--{name} is for a random string, and --input names one; give one of them")
    if options.score and not options.score.isidentifier():
        raise InputError(f"--score is the name of a score, such as accuracy; got {options.score!r}")
    if options.kind not in _OF_SEVERAL and len(options.sources) > 1:
        raise InputError(f"a figure of {options.kind} has one DIR; got {len(options.sources)}")
    draw: dict[str, Callable[[argparse.Namespace], tuple[Figure, dict[str, Any]]]] = {
        "computation": _draw_computation,
        "memory": _draw_computation,
        "convergence": _draw_trials,
        "lengths": _draw_trials,
        "results": _draw_results,
        "training": _draw_training,
        "agreement": _draw_agreement,
    }
    figure, about = draw[options.kind](options)
    save_figure(options.output, figure)
    if options.json:
        print_json({"kind": options.kind, "sources": options.sources, **about, "written": options.output})
    else:
        print_written(options.output)


def _draw_computation(options: argparse.Namespace) -> tuple[Figure, dict[str, Any]]:
    from ...training.trials.config import check_task_models

    check_task_models(options.sources[0])
    from ...training.trials.computation import choose_example, compute, describe_network, load_task_model

    source = load_task_model(options.sources[0])
    example = choose_example(source.task, options.input, options.length, options.seed or 0)
    computation = compute(source, example)
    network = describe_network(source.model)
    controller = f", {network['controller']} controller" if "controller" in network else ""
    title = f"{source.task}{controller}, memory: {network['memory']}"
    panels = list(computation.panels)
    if options.kind == "memory":
        panels = [name for name in panels if name not in _NOT_OF_MEMORY]
    figure = plot_computation(computation, panels, title.replace("_", " "))
    return figure, {
        "input": " ".join(computation.inputs),
        "outputs": computation.outputs,
        "errors": len(computation.errors),
    }


def _draw_trials(options: argparse.Namespace) -> tuple[Figure, dict[str, Any]]:
    from ...training.trials.config import parse_measure
    from ...training.trials.matrix import split_cells
    from ...training.trials.merging import read_trials

    results = read_trials(options.sources[0]).of_rows(options.rows)
    table = results.table()
    score = options.score or parse_measure(table.measures[0])[1]
    curve = _over_strings if options.kind == "convergence" else _over_lengths
    curves: dict[str, dict[str, list[Curve]]] = {}
    for row, (panel, name) in zip(table.rows, split_cells(table), strict=True):
        if records := results.of_row(row):
            curves.setdefault(panel, {})[name] = [curve(record, score, table.scale(score)) for record in records]
    if not curves:
        raise InputError(f"{options.sources[0]} has no finished trials of such rows")
    split = "training" if score == "loss" else "validation" if options.kind == "convergence" else "test"
    y_label = f"{score}{' (%)' if table.scale(score) == 100 else ''}, {split}"
    x_label = "strings trained on" if options.kind == "convergence" else "symbols read"
    return plot_curves(curves, x_label, y_label, table.title, log=score == "loss"), {"score": score}


def _draw_results(options: argparse.Namespace) -> tuple[Figure, dict[str, Any]]:
    from ...training.trials.config import parse_measure
    from ...training.trials.matrix import make_matrix
    from ...training.trials.merging import read_trials
    from ...training.trials.results import measure

    results = read_trials(*options.sources).of_rows(options.rows)
    table = results.table()
    matrix = make_matrix(table)
    split, score, statistic = parse_measure(table.measures[0])
    score = options.score or score
    name, scale = f"{split}/{score}.{statistic}", table.scale(score)
    values, counts = {}, {}
    curves: dict[str, dict[str, list[Curve]]] = {}
    drawn = ""
    for (task, network), row in matrix.rows.items():
        records = results.of_row(row)
        if not records:
            continue
        values[task, network] = scale * float(measure(records, name) or 0.0)
        counts[task, network] = len(records), table.number_of_seeds(row)
        lengths = records[0]["scores"][split].get("by_length", {})
        drawn = score if score in lengths else next(iter(lengths), "")
        if drawn:
            curves.setdefault(task, {})[network] = [
                average_lengths(record["scores"][split]["by_length"][drawn], table.scale(drawn)) for record in records
            ]
    tasks = [task for level in matrix.levels.values() for task in level if task in curves]
    described = f"{score.replace('_', ' ')}{' in %' if scale == 100 else ''}, {split} strings, {statistic} over seeds"
    scores = TaskScores(
        table.title,
        described,
        matrix.networks,
        matrix.levels,
        values,
        counts,
        {task: curves[task] for task in tasks},
        "symbols read",
        f"{drawn.replace('_', ' ')}{' (%)' if table.scale(drawn) == 100 else ''}",
        scale == 100,
        table.decimals,
    )
    return plot_task_scores(scores), {"measure": name, "networks": matrix.networks, "tasks": tasks}


def _draw_training(options: argparse.Namespace) -> tuple[Figure, dict[str, Any]]:

    names = short_names(options.sources)
    runs = {name: read_metrics(source) for name, source in zip(names, options.sources, strict=True)}
    return plot_learning_curves(runs), {"updates": {name: records[-1]["step"] for name, records in runs.items()}}


def _draw_agreement(options: argparse.Namespace) -> tuple[Figure, dict[str, Any]]:

    panels, conventions, counts, correlations = [], [], [], []
    for source in options.sources:
        convention, agreement, f1 = _read_agreement(source, options.rows)
        try:
            r = correlation(agreement, f1)
        except StatisticsError:  # either is the same for all runs
            r = None
        title = f"{len(f1)} runs" + (f", correlation {r:.2f}" if r is not None else "")
        y_label = f"F1 with the gold trees, {convention} (%)"
        panels.append(F1Panel(title, "F1 with the other runs (%)", y_label, {"": (agreement, f1)}))
        conventions.append(convention)
        counts.append(len(f1))
        correlations.append(r)
    return plot_f1(panels), {"conventions": conventions, "runs": counts, "correlations": correlations}


def _read_agreement(path: str, rows: str | None) -> tuple[str, list[float], list[float]]:
    """The convention of an ensemble, and of the runs whose names match the mean F1 with each other, and with gold."""
    import numpy as np

    from ...parsing.ensemble import mean_agreement
    from ...text.plain import json_record, read_text

    record, finder = json_record(read_text(path), path), compile_pattern(rows or "")
    try:
        ensemble, scores = record["ensemble"], {score["system"]: float(score["f1"]) for score in record["systems"]}
        names, convention = ensemble["runs"], str(record["convention"])
        f1 = [scores[name] for name in names]
        mutual = np.array(ensemble["mutual_f1"], float).reshape(len(names), len(names))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not an output of `stack-lm parse-f1 --ensemble --json`") from error
    chosen = [i for i, name in enumerate(names) if finder.search(name)]
    if len(chosen) < 2:
        raise InputError(f"{path}: fewer than two runs are chosen; the runs are {', '.join(names)}")
    agreement: list[float] = mean_agreement(mutual[np.ix_(chosen, chosen)]).tolist()
    return convention, agreement, [f1[i] for i in chosen]


def _over_strings(record: dict[str, Any], score: str, scale: float) -> Curve:

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


def _over_lengths(record: dict[str, Any], score: str, scale: float) -> Curve:
    by_length = record["scores"]["test"]["by_length"]
    if score not in by_length:
        raise InputError(f"the trials of {record['row']!r} have no score {score!r}; they have {', '.join(by_length)}")
    return average_lengths(by_length[score], scale, most=len(by_length[score]))


def average_lengths(scores: dict[str, Any], scale: float, most: int = 40) -> Curve:
    """A score by length, averaged over the strings of neighbours if there are too many lengths.

    Args:
        scores: the score and the number of strings of each length.
        scale: the factor of the scores.
        most: the maximum number of lengths.
    """

    points = sorted((int(length), value, number) for length, (value, number) in scores.items())
    size = -(-len(points) // most)
    x, y = [], []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        strings = sum(number for *_, number in part)
        x.append(sum(length for length, *_ in part) / len(part))
        y.append(scale * sum(value * number for _, value, number in part) / strings)
    return Curve(x, y)
