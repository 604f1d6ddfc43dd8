"""Figures of trials over several seeds: how their scores develop in training, and by the length of strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import InputError
from .figures import new_figure, with_plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^v*"
_LINES = ("-", "--", ":", "-.")
# More curves than that in a panel could not be told apart.
MOST = 6


class Curve(NamedTuple):
    """One trial's numbers: positions on the horizontal axis, and values."""

    x: Sequence[float]
    y: Sequence[float]


@with_plain_text
def plot_curves(
    curves: Mapping[str, Mapping[str, Sequence[Curve]]],
    x_label: str,
    y_label: str,
    title: str = "",
    *,
    log: bool = False,
) -> Figure:
    """The median over trials as a line, from the lowest to the highest as a shade.

    Args:
        curves: of the trials of each row, by panel and by the name of the row.
        x_label, y_label: of the axes, with units.
        title: of the figure.
        log: whether the vertical axis is logarithmic.

    Raises:
        InputError: without matplotlib, for no curves, or for more rows in a panel than can be told apart.
    """
    if not curves or not all(curves.values()):
        raise InputError("there are no trials to draw")
    for panel, rows in curves.items():
        if len(rows) > MOST:
            raise InputError(
                f"a panel shows at most {MOST} rows; {panel or 'this one'} has {len(rows)}: choose with --rows"
            )
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    columns = min(3, len(curves))
    lines = -(-len(curves) // columns)
    names = list(dict.fromkeys(name for rows in curves.values() for name in rows))
    width = 3.6 * columns + 0.6
    # Some 13 characters to the inch, in the title's size of letters.
    figure = new_figure(width, 2.7 * lines + 0.7 + 0.2 * (len(names) // columns), fill(title, int(13 * width)))
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for place, (panel, rows) in enumerate(curves.items()):
        own = axes[place // columns, place % columns]
        for name, trials in rows.items():
            _draw(own, trials, names.index(name), name)
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
    handles: dict[str, Any] = {}
    for own in axes.ravel()[: len(curves)]:
        handles |= {label: handle for handle, label in zip(*own.get_legend_handles_labels(), strict=True)}
    shown = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in shown],
        shown,
        loc="outside lower center",
        ncols=min(columns, len(shown)),
        fontsize="small",
        frameon=False,
    )
    return figure


def _draw(axes: Axes, trials: Sequence[Curve], place: int, name: str) -> None:
    positions = sorted({x for trial in trials for x in trial.x})
    # Where a trial has no number of its own, as after it was over, its last one goes on.
    values = np.array([[_at(trial, x) for x in positions] for trial in trials])
    color = _COLORS[place % len(_COLORS)]
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
