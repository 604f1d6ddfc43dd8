"""`stack-lm plot results`: the scores of a table's networks on its tasks, as a heat map and by length."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..atomic import write_text
from ..interpretation.figures import FORMATS, save_figure
from ..interpretation.hierarchy import TaskScores, plot_task_scores, task_scores_page
from ..interpretation.trials import Curve

PAGE = ".html"
ALLOWED = (*FORMATS, PAGE)
# Maximum number of lengths on an axis; with more, neighbours are averaged.
_LENGTHS = 40


def write_results(options: argparse.Namespace) -> dict[str, Any]:
    """Draw and write the figure or the page; returns its JSON record."""
    from ..experiments.config import parse_measure
    from ..experiments.matrix import make_matrix
    from ..experiments.results import measure
    from ..experiments.shards import read_trials

    results = read_trials(*options.sources).of_rows(options.rows)
    table = results.table()
    matrix = make_matrix(table)
    split, score, statistic = parse_measure(table.measures[0])
    score = options.score or score
    name, scale = f"{split}/{score}.{statistic}", table.scale(score)
    values, counts = {}, {}
    curves: dict[str, dict[str, list[Curve]]] = {}
    drawn = ""
    for task in (task for tasks in matrix.levels.values() for task in tasks):
        for network in matrix.networks:
            row = matrix.rows.get((task, network))
            records = [] if row is None else results.of_row(row)
            if row is None or not records:
                continue
            values[task, network] = scale * float(measure(records, name) or 0.0)
            counts[task, network] = len(records), table.number_of_seeds(row)
            lengths = records[0]["scores"][split].get("by_length", {})
            drawn = score if score in lengths else next(iter(lengths), "")
            if drawn:
                own = [
                    _by_length(record["scores"][split]["by_length"][drawn], table.scale(drawn)) for record in records
                ]
                curves.setdefault(task, {})[network] = own
    percent = scale == 100
    said = f"{score.replace('_', ' ')}{' in %' if percent else ''}, {split} strings, {statistic} over seeds"
    unit = " (%)" if table.scale(drawn) == 100 else ""
    scores = TaskScores(
        table.title,
        said,
        matrix.networks,
        matrix.levels,
        values,
        counts,
        curves,
        "symbols read",
        f"{drawn.replace('_', ' ')}{unit}",
        percent,
        table.decimals,
        table.note,
    )
    if Path(options.output).suffix.lower() == PAGE:
        page = task_scores_page(scores)
        write_text(options.output, page)
    else:
        save_figure(options.output, plot_task_scores(scores))
    return {"measure": name, "networks": matrix.networks, "tasks": list(curves)}


def _by_length(scores: dict[str, Any], scale: int) -> Curve:
    """A score by length, reduced to a maximum number of lengths by averaging over the strings of neighbours."""
    points = sorted((int(length), value, number) for length, (value, number) in scores.items())
    size = -(-len(points) // _LENGTHS)
    x, y = [], []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        strings = sum(number for *_, number in part)
        x.append(sum(length for length, *_ in part) / len(part))
        y.append(scale * sum(value * number for _, value, number in part) / strings)
    return Curve(x, y)
