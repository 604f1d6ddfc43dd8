"""Figures of trials over several seeds: their scores during training, and by the length of strings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.errors import InputError
from .figures import LINES, MARKERS, SERIES_COLORS, legend_below, new_figure, panel_grid, with_plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# More curves in a panel could not be distinguished.
MOST = len(SERIES_COLORS)


class Curve(NamedTuple):
    """One trial's numbers: positions on the horizontal axis, and values."""

    x: Sequence[float]
    y: Sequence[float]


Curves = Mapping[str, Mapping[str, Sequence[Curve]]]
Marks = Mapping[str, Collection[float]]
TRAINED = "longest string trained on"


@with_plain_text
def plot_curves(
    curves: Curves, x_label: str, y_label: str, title: str = "", *, log: bool = False, marks: Marks | None = None
) -> Figure:
    """Draw the median over trials as a line, and the range from lowest to highest as a shade.

    Args:
        curves: the curves of the trials of each row, by panel and by the name of the row.
        x_label, y_label: the labels of the axes, with units.
        title: the title of the figure.
        log: whether the vertical axis is logarithmic.
        marks: positions to mark in each panel: the longest strings that trials trained on.

    Raises:
        InputError: without matplotlib, for no curves, or for more rows in a panel than can be distinguished.
    """
    check_curves(curves)
    width, height = panel_size(curves)
    # About 13 characters per inch, in the title's font size; names of files may have hyphens.
    figure = new_figure(width, height, fill(title, int(13 * width), break_on_hyphens=False))
    draw_panels(figure, curves, dict.fromkeys(curves, x_label), y_label, log=log, marks=marks)
    return figure


def check_curves(curves: Curves) -> None:
    """Check that curves can be drawn.

    Raises:
        InputError: if there are none, or more rows in a panel than can be distinguished.
    """
    if not curves or not all(curves.values()):
        raise InputError("there are no trials to draw")
    for panel, rows in curves.items():
        if len(rows) > MOST:
            raise InputError(
                f"a panel shows at most {MOST} rows; {panel or 'this one'} has {len(rows)}: choose with --rows"
            )


def panel_size(curves: Curves) -> tuple[float, float]:
    """The width and the height of panels with their legend, in inches."""
    columns = min(3, len(curves))
    names = {name for rows in curves.values() for name in rows}
    return 3.6 * columns + 0.6, 2.7 * -(-len(curves) // columns) + 0.7 + 0.2 * (len(names) // columns)


def draw_panels(
    figure: Figure | SubFigure,
    curves: Curves,
    x_labels: Mapping[str, str],
    y_label: str,
    *,
    log: bool = False,
    names: Sequence[str] | None = None,
    marks: Marks | None = None,
) -> None:
    """Draw panels, each with an x-label of its own, into a figure; see `plot_curves`.

    The order of the `names` of rows determines their colours.
    """
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    columns = min(3, len(curves))
    order = list(names or dict.fromkeys(name for rows in curves.values() for name in rows))
    panels = panel_grid(figure, len(curves), columns, sharey=True)
    for axes, (panel, rows) in zip(panels, curves.items(), strict=True):
        for name, trials in rows.items():
            _draw(axes, trials, order.index(name), name)
        for place in sorted((marks or {}).get(panel, ())):
            axes.axvline(place, color="0.5", linestyle=":", linewidth=1, label=TRAINED)
        axes.set_title(panel, fontsize="small", loc="left")
        axes.tick_params(labelsize="small")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xlabel(x_labels[panel], fontsize="small")
    for axes in panels[::columns]:
        axes.set_ylabel(y_label, fontsize="small")
    legend_below(figure, min(columns, len(order) + bool(marks)))


def _draw(axes: Axes, trials: Sequence[Curve], place: int, name: str) -> None:
    positions = sorted({x for trial in trials for x in trial.x})
    # Where a trial has no number of its own, such as after its end, its last one is used.
    values = np.array([[_at(trial, x) for x in positions] for trial in trials])
    color, median = SERIES_COLORS[place % MOST], np.nanmedian(values, axis=0)
    style: dict[str, Any] = {
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 2.5,
        "markevery": max(1, len(positions) // 8),
    }
    axes.plot(positions, median, LINES[place % len(LINES)], color=color, linewidth=1.2, label=name, **style)
    if len(trials) > 1:
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        axes.fill_between(positions, low, high, color=color, alpha=0.15, linewidth=0)


def _at(trial: Curve, position: float) -> float:
    before = [y for x, y in zip(trial.x, trial.y, strict=True) if x <= position]
    return before[-1] if before else float("nan")
