"""A figure of a model's scores under interventions on its memory. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figures import COLORS, new_figure, with_plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From light to dark, for 0, 1, ... attractors.
_SHADES = ("#C6DBEF", "#9ECAE1", "#6BAED6", "#3182BD", "#08519C", "#08306B")


@with_plain_text
def plot_interventions(
    ratios: Mapping[str, Sequence[float]],
    changes: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    n_models: int = 1,
    title: str = "",
) -> Figure:
    """Bars of perplexity, relative to the untouched model, and of the change of agreement by attractors.

    A bar is a mean over models; with several, dots are the models.

    Args:
        ratios: by intervention, the perplexity of each model over its untouched one.
        changes: by intervention and group of items, such as "attractors 2", the change of each model's accuracy in
            percentage points; without groups there is one panel.
        n_models: number of all models; an intervention may apply to fewer.
        title: the title of the figure.

    Raises:
        InputError: without matplotlib.
    """
    from matplotlib.ticker import SymmetricalLogLocator

    names = list(ratios)
    groups = [group for group in next(iter(changes.values()), {}) if group.startswith("attractors")][: len(_SHADES)]
    groups = groups or list(next(iter(changes.values()), {}))
    columns = 2 if groups else 1
    figure = new_figure(4.2 * columns + 1.4, max(2.4, 0.46 * len(names) + 1.3), title)
    panels = figure.subplots(1, columns, sharey=True, squeeze=False)[0]
    increases = {"": [100 * (np.array(ratios[name]) - 1) for name in names]}
    _draw_bars(panels[0], increases, [COLORS["pop_strength"]])
    # Some interventions cost a hundred times as much as others.
    panels[0].set_xscale("symlog", linthresh=1)
    if max(abs(mean) for mean in map(np.mean, increases[""])) < 10:  # the powers of ten are too few for labels
        panels[0].xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1, subs=(1, 2, 5)))
    panels[0].xaxis.set_major_formatter("{x:g}")
    models = f" ({n_models} models)" if n_models > 1 else ""
    panels[0].set_xlabel(f"increase of inner perplexity, %{models}; logarithmic from 1")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    if groups:
        by_group = {group: [np.array(changes[name][group]) for name in names] for group in groups}
        # The legend is one row: "attractors 0", then only the other numbers.
        labels = [group if i == 0 else group.removeprefix("attractors ") for i, group in enumerate(groups)]
        _draw_bars(panels[1], dict(zip(labels, by_group.values(), strict=True)), _SHADES)
        panels[1].set_xlabel("change of agreement accuracy, percentage points")
        panels[1].legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(groups))
        panels[1].tick_params(axis="y", length=0)
        panels[1].spines["left"].set_visible(False)
    for axes in panels:
        axes.axvline(0, color="black", linewidth=0.8)
    return figure


def _draw_bars(axes: Axes, series: Mapping[str, Sequence[np.ndarray]], colors: Sequence[str]) -> None:
    """Draw horizontal bars of several series side by side, with the values behind each mean as dots."""
    height = 0.8 / len(series)
    for i, (label, values) in enumerate(series.items()):
        places = np.arange(len(values)) + (i - (len(series) - 1) / 2) * height
        axes.barh(places, [of.mean() for of in values], height, color=colors[i % len(colors)], label=label)
        for place, of in zip(places, values, strict=True):
            if len(of) > 1:
                axes.scatter(
                    of, np.full(len(of), place), s=8, color="black", edgecolors="white", linewidths=0.3, zorder=3
                )
