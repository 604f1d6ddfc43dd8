"""Figures of trials over several seeds: their scores during training, and by the length of strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import InputError
from .figures import new_figure, with_plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^v*"
_LINES = ("-", "--", ":", "-.")
# More curves in a panel could not be distinguished.
MOST = 6


class Curve(NamedTuple):
    """One trial's numbers: positions on the horizontal axis, and values."""

    x: Sequence[float]
    y: Sequence[float]


Curves = Mapping[str, Mapping[str, Sequence[Curve]]]


@with_plain_text
def plot_curves(
    curves: Curves,
    x_label: str,
    y_label: str,
    title: str = "",
    *,
    log: bool = False,
    names: Sequence[str] | None = None,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw the median over trials as a line, and the range from lowest to highest as a shade.

    Args:
        curves: the curves of the trials of each row, by panel and by the name of the row.
        x_label, y_label: the labels of the axes, with units.
        title: the title of the figure.
        log: whether the vertical axis is logarithmic.
        names: the names of all possible rows, which determine the colours, for a figure with a separate legend.
        limits: the limits of the vertical axis.

    Raises:
        InputError: without matplotlib, for no curves, or for more rows in a panel than can be distinguished.
    """
    check_curves(curves)
    width, height = panel_size(curves, legend=names is None)
    # About 13 characters per inch, in the title's font size.
    figure = new_figure(width, height, fill(title, int(13 * width)))
    draw_panels(figure, curves, x_label, y_label, log=log, names=names, legend=names is None)
    if limits is not None:
        figure.axes[0].set_ylim(limits)  # shared by all panels
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


def panel_size(curves: Curves, *, legend: bool = True) -> tuple[float, float]:
    """The width and the height of panels, with or without their legend, in inches."""
    columns = min(3, len(curves))
    names = {name for rows in curves.values() for name in rows}
    below = 0.7 + 0.2 * (len(names) // columns) if legend else 0.2
    return 3.6 * columns + 0.6, 2.7 * -(-len(curves) // columns) + below


def draw_panels(
    figure: Figure | SubFigure,
    curves: Curves,
    x_label: str,
    y_label: str,
    *,
    log: bool = False,
    names: Sequence[str] | None = None,
    legend: bool = True,
) -> None:
    """Draw panels into a figure; see `plot_curves`. The order of `names` is that of the legend too."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    columns = min(3, len(curves))
    lines = -(-len(curves) // columns)
    known = list(names or dict.fromkeys(name for rows in curves.values() for name in rows))
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for place, (panel, rows) in enumerate(curves.items()):
        own = axes[place // columns, place % columns]
        for name, trials in rows.items():
            _draw(own, trials, known.index(name), name)
        own.set_title(panel, fontsize="small", loc="left")
        own.spines[["top", "right"]].set_visible(False)
        own.tick_params(labelsize="small")
        own.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        own.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        if log:
            own.set_yscale("log")
            own.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        if place // columns == lines - 1 or place + columns >= len(curves):
            own.set_xlabel(x_label, fontsize="small")
        if place % columns == 0:
            own.set_ylabel(y_label, fontsize="small")
    for empty in axes.ravel()[len(curves) :]:
        empty.set_visible(False)
    if not legend:
        return
    handles: dict[str, Any] = {}
    for own in axes.ravel()[: len(curves)]:
        handles |= {label: handle for handle, label in zip(*own.get_legend_handles_labels(), strict=True)}
    shown = [name for name in known if name in handles]
    figure.legend(
        [handles[name] for name in shown],
        shown,
        loc="outside lower center",
        ncols=min(columns, len(shown)),
        fontsize="small",
        frameon=False,
    )


def _draw(axes: Axes, trials: Sequence[Curve], place: int, name: str) -> None:
    positions = sorted({x for trial in trials for x in trial.x})
    # Where a trial has no number of its own, such as after its end, its last one is used.
    values = np.array([[_at(trial, x) for x in positions] for trial in trials])
    color = COLORS[place % len(COLORS)]
    axes.plot(
        positions,
        np.nanmedian(values, axis=0),
        _LINES[place % len(_LINES)],
        color=color,
        marker=_MARKERS[place % len(_MARKERS)],
        markersize=2.5,
        markevery=max(1, len(positions) // 8),
        linewidth=1.2,
        label=name,
    )
    if len(trials) > 1:
        axes.fill_between(
            positions, np.nanmin(values, axis=0), np.nanmax(values, axis=0), color=color, alpha=0.15, linewidth=0
        )


def _at(trial: Curve, position: float) -> float:
    before = [y for x, y in zip(trial.x, trial.y, strict=True) if x <= position]
    return before[-1] if before else float("nan")
