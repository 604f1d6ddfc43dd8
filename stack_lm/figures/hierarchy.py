"""Scores of networks on tasks, as in the figures of Delétang et al. (2023): a heat map, and scores by length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import InputError
from .figures import new_figure, with_plain_text
from .trials import Curve, Marks, check_curves, draw_panels, panel_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In percent; from this value Delétang et al. (2023) call a task solved.
SOLVED = 90.0
# The paler half of a colour map, on which black text has a contrast of 4.5 or more.
_SHADES, _DARKEST = "YlGnBu", 0.55
_ROW, _COLUMN = 0.3, 0.95  # inches
_CHARACTER = 0.08  # inches


@dataclass(frozen=True)
class TaskScores:
    """The scores of networks on tasks.

    Attributes:
        title: the title of the table.
        score: the name of the numbers, with their unit.
        networks: their names.
        levels: names of tasks by the name of their level in the hierarchy; "" is no level.
        values: the values by task and network, percentages or, if not `percent`, losses; no entry if there are none.
        texts: the values as they are printed, by task and network.
        curves: the score by length of each trial, by task and by network.
        x_labels, y_label: the labels of the curves, that of their size by task.
        percent: whether the numbers are percentages, for which higher is better; for others lower is.
        marks: see `plot_curves`.
    """

    title: str
    score: str
    networks: Sequence[str]
    levels: Mapping[str, Sequence[str]]
    values: Mapping[tuple[str, str], float]
    texts: Mapping[tuple[str, str], str]
    curves: Mapping[str, Mapping[str, Sequence[Curve]]]
    x_labels: Mapping[str, str]
    y_label: str
    percent: bool = True
    marks: Marks | None = None

    def shade(self, value: float) -> float:
        """The shade of a value, from 0, the worst, to 1, the best."""
        low, high = min(self.values.values()), max(self.values.values())
        if self.percent:
            low, high = min(50.0, 10 * math.floor(low / 10)), 100.0
        share = (value - low) / (high - low) if high > low else 1.0
        return share if self.percent else 1 - share


@with_plain_text
def plot_task_scores(scores: TaskScores) -> Figure:
    """Draw the heat map, and below it a panel by length for each task: the median over trials, and a shaded range.

    Raises:
        InputError: without matplotlib, without values, or for more networks than can be distinguished.
    """
    if not scores.values:
        raise InputError("there are no trials to draw")
    rows = sum(map(len, scores.levels.values())) + sum(map(bool, scores.levels))
    longest = max(len(task) for tasks in scores.levels.values() for task in tasks)
    top = (longest * _CHARACTER + _COLUMN * len(scores.networks) + 0.4, _ROW * rows + 1.1)
    if not scores.curves:
        figure = new_figure(*top, scores.title)
        _draw_heat_map(figure.subplots(), scores, _COLUMN)
        return figure
    check_curves(scores.curves)
    below = panel_size(scores.curves)
    figure = new_figure(max(top[0], below[0]), top[1] + below[1] + 0.4, scores.title)
    parts: Any = figure.subfigures(2, 1, height_ratios=[top[1], below[1]])
    upper, lower = parts
    _draw_heat_map(upper.subplots(), scores, (figure.get_figwidth() - longest * _CHARACTER) / len(scores.networks))
    draw_panels(lower, scores.curves, scores.x_labels, scores.y_label, names=scores.networks, marks=scores.marks)
    return figure


def _draw_heat_map(axes: Axes, scores: TaskScores, width: float) -> None:
    """Draw cells of a width in inches; a level is an empty row."""
    rows = []  # the task, "" for a level, and the label
    for level, tasks in scores.levels.items():
        rows += [("", level)] * bool(level) + [(task, task) for task in tasks]
    shades = np.full((len(rows), len(scores.networks)), np.nan)
    for row, (task, _) in enumerate(rows):
        for column, network in enumerate(scores.networks if task else ()):
            value = scores.values.get((task, network))
            if value is not None:
                shades[row, column] = scores.shade(value)
            weight = "bold" if scores.percent and (value or 0.0) >= SOLVED else "normal"
            text = scores.texts.get((task, network), "-")
            axes.text(column + 0.5, row + 0.5, text, weight=weight, fontsize=8.5, ha="center", va="center")
    axes.pcolormesh(shades, cmap=_SHADES, vmin=0, vmax=1 / _DARKEST, edgecolors="white", linewidth=1.5)
    axes.invert_yaxis()
    axes.set_xticks([i + 0.5 for i in range(len(scores.networks))], scores.networks, fontsize="small")
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    if max(map(len, scores.networks)) * _CHARACTER > width:
        for label in axes.get_xticklabels():
            label.set(rotation=25, ha="left", rotation_mode="anchor")
    axes.set_yticks([row + 0.5 for row in range(len(rows))], [name for _, name in rows], fontsize="small")
    for label, (task, _) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontstyle("normal" if task else "italic")
    axes.spines[:].set_visible(False)
    solved = f"; bold: {SOLVED:.0f}% or more" if scores.percent else ""
    axes.set_xlabel(f"{scores.score}; darker is better{solved}", fontsize="small")
