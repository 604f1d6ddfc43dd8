"""Scores of networks on tasks, as in the figures of Delétang et al. (2023): a heat map, and scores by length."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..markup import escape, html_page
from .figures import NO_MATPLOTLIB, can_draw, new_figure, with_plain_text
from .trials import COLORS, Curve, check_curves, draw_panels, panel_size, plot_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In percent; from this value Delétang et al. (2023) call a task solved.
SOLVED = 90.0
_SHADES = "YlGnBu"
_ROW, _COLUMN, _HEADING = 0.3, 0.95, 0.8  # inches; the last in rows
_CHARACTER = 0.08  # inches
_SIGNS = "●■◆▲▼★"  # the markers of curves


@dataclass(frozen=True)
class TaskScores:
    """The scores of networks on tasks.

    Attributes:
        title: the title of the table.
        score: the name of the numbers, with their unit.
        networks: their names.
        levels: names of tasks by the name of their level in the hierarchy; "" is no level.
        values: the values by task and network, percentages or, if not `percent`, losses; no entry if there are none.
        counts: the numbers of finished and requested trials, by task and network.
        curves: the score by length of each trial, by task and by network.
        x_label, y_label: the labels of the curves.
        percent: whether the numbers are percentages, for which higher is better; for others lower is.
        decimals: the decimals of the numbers.
        note: below.
    """

    title: str
    score: str
    networks: Sequence[str]
    levels: Mapping[str, Sequence[str]]
    values: Mapping[tuple[str, str], float]
    counts: Mapping[tuple[str, str], tuple[int, int]]
    curves: Mapping[str, Mapping[str, Sequence[Curve]]]
    x_label: str
    y_label: str
    percent: bool = True
    decimals: int = 1
    note: str = ""

    def check(self) -> None:
        """Check that there is anything to draw.

        Raises:
            InputError: without values, or for more networks than can be distinguished.
        """
        if not self.values:
            raise InputError("there are no trials to draw")
        if self.curves:
            check_curves(self.curves)

    def shade(self, value: float) -> float:
        """The shade of a value, from 0, the worst, to 1, the best."""
        low, high = min(self.values.values()), max(self.values.values())
        if self.percent:
            low, high = min(50.0, 10 * math.floor(low / 10)), 100.0
        share = (value - low) / (high - low) if high > low else 1.0
        return share if self.percent else 1 - share

    def said(self, place: tuple[str, str]) -> str:
        """A value as text; "" if there is none."""
        return f"{self.values[place]:.{self.decimals}f}" if place in self.values else ""

    def missing(self, place: tuple[str, str]) -> str:
        """Describe the number of finished trials, if some are missing."""
        finished, wanted = self.counts.get(place, (0, 0))
        return f"{finished} of {wanted}" if finished < wanted else ""

    def is_solved(self, place: tuple[str, str]) -> bool:
        """True if a task counts as solved."""
        return self.percent and self.values.get(place, 0.0) >= SOLVED

    @property
    def legend(self) -> str:
        """Explain shades and letters."""
        solved = f"; bold: {SOLVED:.0f}% or more" if self.percent else ""
        return f"{self.score}; darker is better{solved}"


def _colors(share: float) -> tuple[str, str]:
    """The colour of a cell, and of the letters in it."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    color = colormaps[_SHADES](0.05 + 0.85 * min(1.0, max(0.0, share)))
    # Their luminance as in WCAG 2, where black and white have the same contrast with 0.179.
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color[:3]]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return to_hex(color), "white" if luminance < 0.179 else "black"


@with_plain_text
def plot_task_scores(scores: TaskScores) -> Figure:
    """Draw the heat map, and below it a panel by length for each task: the median over trials, and a shaded range.

    Raises:
        InputError: without matplotlib, or if there is nothing to draw; see `TaskScores.check`.
    """
    scores.check()
    rows = sum(map(len, scores.levels.values())) + _HEADING * sum(map(bool, scores.levels))
    longest = max(len(task) for tasks in scores.levels.values() for task in tasks)
    top = (longest * _CHARACTER + _COLUMN * len(scores.networks) + 0.4, _ROW * rows + 1.1)
    if not scores.curves:
        figure = new_figure(*top, scores.title)
        _draw_heat_map(figure.subplots(), scores, _COLUMN)
        return figure
    below = panel_size(scores.curves)
    figure = new_figure(max(top[0], below[0]), top[1] + below[1] + 0.4, scores.title)
    parts: Any = figure.subfigures(2, 1, height_ratios=[top[1], below[1]])
    upper, lower = parts
    _draw_heat_map(upper.subplots(), scores, (figure.get_figwidth() - longest * _CHARACTER) / len(scores.networks))
    draw_panels(lower, scores.curves, scores.x_label, scores.y_label, names=scores.networks)
    return figure


def _draw_heat_map(axes: Axes, scores: TaskScores, width: float) -> None:
    """Draw cells of a width in inches."""
    from matplotlib.patches import Rectangle

    y, places = 0.0, {}
    for level, tasks in scores.levels.items():
        if level:
            axes.text(0.02, y + _HEADING - 0.15, level, style="italic", fontsize="small", va="bottom")
            y += _HEADING
        for task in tasks:
            places[task] = y
            y += 1
    for task, top in places.items():
        for column, network in enumerate(scores.networks):
            place = task, network
            if place not in scores.values:
                axes.text(column + 0.5, top + 0.5, "-", ha="center", va="center", color="0.6")
                continue
            color, ink = _colors(scores.shade(scores.values[place]))
            axes.add_patch(Rectangle((column, top), 1, 1, facecolor=color, edgecolor="white", linewidth=1.5))
            weight = "bold" if scores.is_solved(place) else "normal"
            missing = f" ({scores.missing(place)})" if scores.missing(place) else ""
            axes.text(column + 0.5, top + 0.5, scores.said(place) + missing, ha="center", va="center", fontsize=8.5,
                      color=ink, weight=weight)  # fmt: skip
    axes.set_xlim(0, len(scores.networks))
    axes.set_ylim(y, 0)
    axes.set_xticks([i + 0.5 for i in range(len(scores.networks))], scores.networks, fontsize="small")
    crowded = max(map(len, scores.networks)) * _CHARACTER > width
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    if crowded:
        for label in axes.get_xticklabels():
            label.set(rotation=25, ha="left", rotation_mode="anchor")
    axes.set_yticks([top + 0.5 for top in places.values()], list(places), fontsize="small")
    axes.spines[:].set_visible(False)
    axes.set_xlabel(scores.legend, fontsize="small")


def task_scores_page(scores: TaskScores) -> str:
    """The same as one HTML page without other files, also for phones: the heat map is a table.

    Raises:
        InputError: as `plot_task_scores` does.
    """
    if not can_draw():
        raise InputError(NO_MATPLOTLIB)
    scores.check()
    head = "".join(f"<th scope=col>{escape(network)}</th>" for network in scores.networks)
    rows = []
    for level, tasks in scores.levels.items():
        if level:
            rows.append(
                f'<tr><th class="level" scope=rowgroup colspan="{len(scores.networks) + 1}">{escape(level)}</th></tr>'
            )
        for task in tasks:
            cells = "".join(_cell(scores, (task, network)) for network in scores.networks)
            rows.append(f"<tr><th scope=row>{escape(task)}</th>{cells}</tr>")
    parts = [
        f"<h1>{escape(scores.title)}</h1>",
        f"<p>{escape(scores.legend)}.</p>",
        f'<div class="wide"><table><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>',
    ]
    if scores.note:
        parts.append(f'<p class="soft">{escape(scores.note)}</p>')
    if scores.curves:
        keys = "".join(
            f'<span><i style="color:{COLORS[i]}">{_SIGNS[i]}</i>{escape(network)}</span>'
            for i, network in enumerate(scores.networks)
        )
        parts += [
            "<h2>By length</h2>",
            "<p>Lines are medians over trials, shades go from the lowest to the highest.</p>",
            f'<p class="legend">{keys}</p>',
            f'<div class="charts">{"".join(_chart(scores, task) for task in scores.curves)}</div>',
        ]
    body = "<main>\n" + "\n".join(parts) + "\n</main>"
    return html_page(scores.title, _STYLE, body)


def _cell(scores: TaskScores, place: tuple[str, str]) -> str:
    if place not in scores.values:
        return '<td class="none">-</td>'
    color, ink = _colors(scores.shade(scores.values[place]))
    said = f"<b>{scores.said(place)}</b>" if scores.is_solved(place) else scores.said(place)
    missing = f"<small>{scores.missing(place)}</small>" if scores.missing(place) else ""
    return f'<td style="background:{color};color:{ink}">{said}{missing}</td>'


def _chart(scores: TaskScores, task: str) -> str:
    ends = [y for rows in scores.curves.values() for trials in rows.values() for trial in trials for y in trial.y]
    margin = 0.03 * (max(ends) - min(ends)) or 1.0
    figure = plot_curves(
        {task: scores.curves[task]},
        scores.x_label,
        scores.y_label,
        names=scores.networks,
        limits=(min(ends) - margin, max(ends) + margin),
    )
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    picture = base64.b64encode(file.getvalue()).decode()
    said = f"{scores.y_label} of {task} by {scores.x_label}"
    return f'<img alt="{escape(said)}" src="data:image/svg+xml;base64,{picture}">'


_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:0;color:#1a1a1a;background:#fff}"
    "main{max-width:70rem;margin:0 auto;padding:1rem}h1{font-size:1.25rem;line-height:1.3}h2{font-size:1.1rem}"
    ".wide{overflow-x:auto}table{border-collapse:separate;border-spacing:2px}"
    "td{padding:.35em .5em;text-align:center;min-width:3.6em;font-variant-numeric:tabular-nums}"
    "td small{display:block;font-size:.72em}td.none{color:#767676}"
    "thead th{font-weight:600;padding:.3em;vertical-align:bottom;font-size:.88em}"
    "tbody th{font-weight:400;text-align:left;padding-right:.6em;position:sticky;left:0;background:#fff}"
    "tbody th.level{font-style:italic;color:#555;padding-top:.7em;position:static}"
    ".soft{color:#555;font-size:.9em}.legend span{display:inline-block;margin-right:1.2em}"
    ".legend i{font-style:normal;margin-right:.4em}"
    ".charts{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr))}"
    ".charts img{width:100%;height:auto}"
    "@media(max-width:30rem){td{padding:.35em .15em;min-width:2.8em}table{font-size:.84em;border-spacing:1px}}"
)
