"""Figures of several runs: learning curves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.config_files import METRICS_FILE
from ..core.errors import InputError
from ..core.messages import shortened, similar_path
from .figures import LINES, MARKERS, legend_below, new_figure, panel_grid, with_plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Records = Sequence[Mapping[str, Any]]
# Panels of learning curves: the records' key, the axis' label. A panel that no run has is left out.
_PANELS = {
    "eval_perplexity": "validation perplexity (thin: training)",
    "eval_loss": "validation loss (nats; thin: training)",
    "eval_accuracy": "validation accuracy (%)",
    "eval_f1": "F1 with the votes' trees (%)",
    "eval_push_mean": "push strength, mean (elements)",
    "eval_push_sd": "push strength, sd (elements)",
    "eval_pop_mean": "pop strength, mean (elements)",
    "eval_pop_sd": "pop strength, sd (elements)",
    "eval_read_below_top": "read from below the top (share)",
}
# Training's losses, in nats, for the panels that show them too.
_TRAINING = {"eval_perplexity": "train_nats_per_token", "eval_loss": "train_loss"}


def read_metrics(run: str | Path) -> list[dict[str, Any]]:
    """The records of a run's metrics.jsonl; a truncated last line is left out.

    Args:
        run: its directory.

    Raises:
        InputError: if there is no such file, or it has no records.
    """
    file = Path(run) / METRICS_FILE
    if not file.is_file():
        if not Path(run).exists():
            raise InputError(f"{run} does not exist{similar_path(run)}")
        raise InputError(f"{run} is not a training run: it has no {METRICS_FILE}")
    records = []
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not (isinstance(record, dict) and isinstance(record.get("step"), int)):
            if number == len(lines):
                break
            raise InputError(f"{file}, line {number}: not a record of a run: {shortened(line, 60)!r}")
        records.append(record)
    if not records:
        raise InputError(f"{file} has no records yet")
    return records


@with_plain_text
def plot_learning_curves(runs: Mapping[str, Records], title: str = "") -> Figure:
    """Draw what validations of several runs logged, over their updates.

    Of language models, the first panel shows the perplexity, on a logarithmic axis, and that of training as a thin
    line. The others show the strengths (`stack_lm.training.strength_statistics`). Of classifiers and span parsers, the
    panels show the loss, likewise with that of training, and the accuracy or F1.

    Args:
        runs: records of metrics.jsonl, by the name of the run.
        title: the title of the figure.

    Raises:
        InputError: without matplotlib, or if no run was validated.
    """
    from matplotlib.ticker import StrMethodFormatter

    shown = [key for key in _PANELS if any(key in record for records in runs.values() for record in records)]
    if not shown:
        raise InputError(f"no validation has been logged by {', '.join(runs)}")
    columns = 2 if len(shown) in (2, 4) else min(3, len(shown))
    height = 3.2 * -(-len(shown) // columns) + 0.25 * -(-len(runs) // 3)
    figure = new_figure(4.2 * columns, height, title)
    for key, axes in zip(shown, panel_grid(figure, len(shown), columns, sharex=True), strict=True):
        for i, (name, records) in enumerate(runs.items()):
            style: dict[str, Any] = {"color": f"C{i % 10}", "linestyle": LINES[i // 10 % len(LINES)]}
            if key in _TRAINING:
                losses = [(r["step"], r[_TRAINING[key]]) for r in records if _TRAINING[key] in r]
                training = [(x, math.exp(min(y, 700.0))) for x, y in losses] if key == "eval_perplexity" else losses
                axes.plot(*_columns(training), linewidth=0.6, alpha=0.6, **style)
            points = [(record["step"], record[key]) for record in records if key in record]
            axes.plot(*_columns(points), marker=MARKERS[i % len(MARKERS)], markersize=4, label=name, **style)
        if key == "eval_perplexity":
            _logarithmic(axes, [r[key] for records in runs.values() for r in records if key in r])
        axes.set_xlabel("updates")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.tick_params(labelbottom=True)
        axes.set_ylabel(_PANELS[key])
        axes.grid(alpha=0.3)
    legend_below(figure)
    return figure


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _logarithmic(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis from below the lowest value to well above the last ones, labelled with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_yscale("log")
    axes.set_ylim(0.9 * min(values), 1.3 * max(values))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 4, 5, 6, 7, 8)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(LogLocator(subs=()))
