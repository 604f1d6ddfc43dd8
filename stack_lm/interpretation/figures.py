"""Figures of strength distributions. Needs matplotlib (`pip install 'stack-lm[plots]'`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..atomic import atomic_file
from ..errors import InputError
from ..trace import Trace
from .plots import COLORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".pdf", ".svg")
_NO_MATPLOTLIB = "figures need matplotlib: pip install 'stack-lm[plots]'"
_PER_ROW = 7
_PANEL_COLORS = ("#0072B2", "#D55E00", "#009E73")
_LINES = ("-", "--", ":")  # told apart in grey as well


def check_figure_names(*paths: str | None) -> None:
    """Find mistakes before any work is done.

    Args:
        paths: where figures are to be written; None is no figure.

    Raises:
        InputError: for an ending that is no format of figures, or without matplotlib.
    """
    for path in filter(None, paths):
        if Path(path).suffix.lower() not in FORMATS:
            raise InputError(f"a figure's name must end in one of {', '.join(FORMATS)}; got {path!r}")
        if importlib.util.find_spec("matplotlib") is None:
            raise InputError(_NO_MATPLOTLIB)


def save_figure(path: str, figure: Figure) -> None:
    """Write a figure, whole or not at all, in the format that its name ends in."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary)


def _new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(_NO_MATPLOTLIB) from error
    return Figure(figsize=(width, height), layout="constrained", dpi=150)


def plot_distributions(trace: Trace, title: str = "") -> Figure:
    """The distributions over pushing, popping and reading 0, 1, ... K elements at each step.

    After Merrill et al. (2019), figure 3. Below each word stand the expected values, which are the strengths.

    Args:
        trace: with distributions.
        title: of the figure.

    Raises:
        InputError: without matplotlib, or if no strength is an expected value.
    """
    names = [name for name in COLORS if _distribution(name) in trace.distributions]
    if not names:
        raise InputError("no strength of the model is an expected value, so there are no distributions to plot")
    n = len(trace.words)
    rows = -(-n // _PER_ROW)
    columns = -(-n // rows)
    figure = _new_figure(1.35 * columns + 0.6, 1.75 * rows + 0.5)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    most = max(trace.distributions[_distribution(name)].shape[1] for name in names) - 1
    for place, axes in enumerate(grid.flat):
        if place >= n:
            axes.axis("off")
            continue
        for i, name in enumerate(names):
            values = trace.distributions[_distribution(name)][place]
            offset = (i - (len(names) - 1) / 2) * 0.8 / len(names)
            label = name.replace("_strength", "")
            axes.bar(np.arange(len(values)) + offset, values, 0.8 / len(names), color=COLORS[name], label=label)
        axes.set_title(trace.words[place], fontsize=10)
        axes.set_xlabel(", ".join(f"{trace.signals[name][place]:.2f}" for name in names), fontsize=8)
        axes.set_xlim(-0.6, most + 0.6)
        axes.set_ylim(0, 1)
        axes.set_xticks(range(most + 1))
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    for row in grid:
        row[0].set_ylabel("probability", fontsize=9)
    shown = ", ".join(name.replace("_strength", "") for name in names)
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(names), frameon=False)
    figure.supxlabel(f"elements; below, the expected values ({shown})", fontsize=9)
    if title:
        figure.suptitle(title, fontsize="medium", x=0.01, ha="left")
    return figure


def _distribution(strength: str) -> str:
    return strength.replace("_strength", "_distribution")


def plot_groups(panels: Sequence[tuple[str, Mapping[str, np.ndarray]]], signal: str, title: str = "") -> Figure:
    """How a strength is distributed in groups of words, panel by panel (Merrill et al. 2019, figure 4).

    All panels have the same axis, which leaves out the outermost 0.1% of all words on either side.

    Args:
        panels: of each its title and its groups: the strengths of their words [N], by name.
        signal: name of the strength, for the axis.
        title: of the figure.

    Raises:
        InputError: without matplotlib.
    """
    figure = _new_figure(3.6 * len(panels), 3.2)
    everything = np.concatenate([values for _, groups in panels for values in groups.values()])
    low, high = np.quantile(everything, (0.001, 0.999))
    if high - low < 1e-6:  # such as a fixed strength
        low, high = low - 0.5, high + 0.5
    bins = np.linspace(low, high, 61)
    lines = max(len(groups) for _, groups in panels)
    for axes, (name, groups) in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        for i, (group, values) in enumerate(groups.items()):
            share = np.histogram(values, bins)[0] / len(values)
            color = _PANEL_COLORS[i % len(_PANEL_COLORS)]
            label = f"{group} ({len(values):,}; mean {values.mean():.2f})"
            axes.stairs(100 * share, bins, fill=True, color=color, alpha=0.25)
            axes.stairs(100 * share, bins, color=color, linestyle=_LINES[i % len(_LINES)], linewidth=1.5, label=label)
        axes.set_title(name, fontsize=10, pad=6 + 13 * lines)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=8, borderaxespad=0.2)
        axes.set_xlim(low, high)
        axes.set_ylim(0, 1.04 * axes.dataLim.ymax)
        axes.set_xlabel(f"{signal.replace('_', ' ')} (elements)")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("words (%)")
    if title:
        figure.suptitle(title, fontsize="medium", x=0.01, ha="left")
    return figure
