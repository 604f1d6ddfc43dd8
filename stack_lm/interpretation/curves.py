"""Figures of several runs: learning curves, and F1 against the strengths' spread and against agreement."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import StatisticsError, correlation
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config_files import METRICS_FILE
from ..errors import InputError
from ..messages import shortened, similar_path
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
_OPEN = {"markerfacecolor": "white"}


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
        if not _is_record(record):
            if number == len(lines):
                break
            raise InputError(f"{file}, line {number}: not a record of a run: {shortened(line, 60)!r}")
        records.append(record)
    if not records:
        raise InputError(f"{file} has no records yet")
    return records


def _is_record(value: Any) -> bool:
    """True if it has a step, and numbers where the figure needs them."""
    if not isinstance(value, dict) or not isinstance(value.get("step"), int):
        return False
    numbers = [value[key] for key in (*_PANELS, *_TRAINING.values()) if key in value]
    return all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)


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
            style = {"color": f"C{i % 10}", "linestyle": LINES[i // 10 % len(LINES)]}
            if key in _TRAINING:
                losses = [(r["step"], r[_TRAINING[key]]) for r in records if _TRAINING[key] in r]
                training = [(x, _perplexity(y)) for x, y in losses] if key == "eval_perplexity" else losses
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


def _perplexity(nats: float) -> float:
    return math.exp(min(nats, 700.0))


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


class ParsedModel(NamedTuple):
    """A model's F1 beside its strengths.

    Attributes:
        run: the training run; the points of one run are joined in order.
        spread: standard deviation over words of the strength that gives the distances, in elements.
        f1: in percent, by convention and decoder.
    """

    run: str
    spread: float
    f1: Mapping[tuple[str, str], float]


@with_plain_text
def plot_f1_by_spread(
    models: Sequence[ParsedModel], baselines: Mapping[str, float], signal: str, title: str = ""
) -> Figure:
    """Draw F1 against the spread of strengths: a panel per convention, a colour per run, a marker per decoder.

    The first point of a run with several points is open.

    Args:
        models: at least one, all with the same conventions and decoders.
        baselines: F1 of right branching by convention, drawn as lines.
        signal: the strength, for the axis.
        title: the title of the figure.

    Raises:
        InputError: without matplotlib.
    """
    conventions = list(dict.fromkeys(convention for convention, _ in models[0].f1))
    decoders = list(dict.fromkeys(decoder for _, decoder in models[0].f1))
    runs = list(dict.fromkeys(model.run for model in models))
    columns = min(3, len(conventions))
    height = 3.4 * -(-len(conventions) // columns) + 0.25 * -(-len(runs) // 3)
    figure = new_figure(4.4 * columns, height, title)
    for convention, axes in zip(conventions, panel_grid(figure, len(conventions), columns), strict=True):
        for i, run in enumerate(runs):
            own = [model for model in models if model.run == run]
            for k, decoder in enumerate(decoders):
                style: dict[str, Any] = {"color": f"C{i % 10}", "marker": MARKERS[k % len(MARKERS)], "markersize": 5}
                points = [(model.spread, model.f1[convention, decoder]) for model in own]
                label = run + (f", {decoder}" if len(decoders) > 1 else "")
                axes.plot(*_columns(points), linestyle=LINES[k % len(LINES)], linewidth=0.8, label=label, **style)
                if len(own) > 1:
                    axes.plot(*points[0], linestyle="", **style | _OPEN)
        if convention in baselines:
            axes.axhline(baselines[convention], color="0.4", linewidth=1, linestyle=":", label="right branching")
        axes.set_title(convention, fontsize=10)
        axes.set_xlabel(f"sd of the {signal.replace('_', ' ')} (elements)")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("F1 (%)")
    if len(runs) < len(models):
        style = {"color": "0.4", "marker": MARKERS[0], "markersize": 5}
        figure.axes[0].plot([], [], linestyle="", label="first model of a run", **style | _OPEN)
    legend_below(figure)
    return figure


class Agreement(NamedTuple):
    """The runs of an ensemble.

    Attributes:
        convention: the convention of F1.
        names: of the runs, R of them.
        agreement: mean F1 of each run's trees with those of the others, in percent [R].
        f1: of each run against the gold trees, in percent [R].
    """

    convention: str
    names: list[str]
    agreement: list[float]
    f1: list[float]

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation of agreement and F1; None if either is the same for all runs."""
        try:
            return correlation(self.agreement, self.f1)
        except StatisticsError:
            return None


@with_plain_text
def plot_agreement(ensembles: Sequence[Agreement], title: str = "") -> Figure:
    """Draw the F1 of runs over their agreement, with a panel for each ensemble.

    Args:
        ensembles: one for each convention, or treebank.
        title: the title of the figure.

    Raises:
        InputError: without matplotlib.
    """
    figure = new_figure(4.2 * len(ensembles), 3.6, title)
    for axes, ensemble in zip(panel_grid(figure, len(ensembles), len(ensembles)), ensembles, strict=True):
        axes.plot(ensemble.agreement, ensemble.f1, "o", markersize=5, **_OPEN)
        axes.set_xlabel("F1 with the other runs (%)")
        axes.set_ylabel(f"F1 with the gold trees, {ensemble.convention} (%)")
        r = ensemble.correlation
        axes.set_title(f"{len(ensemble.names)} runs" + (f", correlation {r:.2f}" if r is not None else ""), fontsize=10)
    return figure
