"""Figures of strengths: over a sentence, their distributions, and by groups of words. Needs matplotlib.

Install it with `pip install 'stack-lm[plots]'`.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ..core.atomic import atomic_file
from ..core.errors import InputError
from ..core.markup import drawable
from ..core.trace import Trace
from ..parsing.drawing import PlacedPhrase, place_phrases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from ..parsing.trees import ConstituencyTree

# Distinct in grey and for colour-blind readers (Okabe and Ito).
COLORS = {"push_strength": "#0072B2", "pop_strength": "#D55E00", "read_strength": "#009E73"}
# For several models, groups or rows, and lines that are distinct in grey as well.
SERIES_COLORS = (*COLORS.values(), "#CC79A7", "#E69F00", "#56B4E9")
# Pale enough for dark text on them (after Okabe and Ito), and never equal to a neighbour.
ELEMENT_COLORS = ("#9ecae8", "#f5c98a", "#9fd8c2", "#eac2d9", "#f2eb9a", "#c9c9c9")
LINES, MARKERS = ("-", "--", ":", "-."), "osD^v*P"
# Texts without formulas, since a word may have dollars; and what all figures share.
_STYLE: Any = {"text.parse_math": False, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False}
_PER_ROW = 7
_LETTER = 0.09  # width in inches, on average, at the usual size


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def check_matplotlib() -> None:
    """Check that matplotlib is installed.

    Raises:
        InputError: if it is not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("figures need matplotlib: pip install 'stack-lm[plots]'")


def with_plain_text(draw: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Function decorator: draw in the common style, and print dollars in words and names literally."""

    @functools.wraps(draw)
    def wrapped(*arguments: Arguments.args, **settings: Arguments.kwargs) -> Result:
        check_matplotlib()
        from matplotlib import rc_context

        with rc_context(_STYLE):
            return draw(*arguments, **settings)

    return wrapped


@with_plain_text
def save_figure(path: str, figure: Figure) -> None:
    """Write a figure, completely or not at all, in the format of its name's ending."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary)


def new_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure, in inches, with its title to the left."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    if title:
        figure.suptitle(drawable(title), fontsize="medium", x=0.01, ha="left")
    return figure


def panel_grid(figure: Figure | SubFigure, count: int, columns: int, **settings: Any) -> list[Axes]:
    """Divide a figure into panels, row by row; without the last ones of a row that is not full."""
    panels: list[Axes] = list(figure.subplots(-(-count // columns), columns, squeeze=False, **settings).flat)
    for empty in panels[count:]:
        empty.set_visible(False)
    return panels[:count]


def legend_below(figure: Figure | SubFigure, columns: int = 3) -> None:
    """Put one legend of all panels below them."""
    pairs = [pair for axes in figure.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in reversed(pairs)}
    order = list(dict.fromkeys(label for _, label in pairs))
    figure.legend([handles[label] for label in order], order, loc="outside lower center", ncols=columns)


def draw_bars(axes: Axes, series: Mapping[str, np.ndarray], colors: Mapping[str, str]) -> None:
    """Draw bars of several series side by side, at 0, 1, 2, ...; colours and series have their labels as keys."""
    width = 0.8 / max(1, len(series))
    for i, (label, values) in enumerate(series.items()):
        places = np.arange(len(values)) + (i - (len(series) - 1) / 2) * width
        axes.bar(places, values, width, color=colors[label], label=label)


def draw_strengths(axes: Axes, strengths: Mapping[str, np.ndarray]) -> None:
    """Draw bars of strengths over words; a strength that is the same at every word is a line."""
    others = cycle(SERIES_COLORS[len(COLORS) :])
    colors = {name.replace("_", " "): COLORS.get(name) or next(others) for name in strengths}
    by_label = {name.replace("_", " "): values for name, values in strengths.items()}
    same = {name for name, values in by_label.items() if len(values) > 1 and np.nanmax(values) == np.nanmin(values)}
    draw_bars(axes, {name: values for name, values in by_label.items() if name not in same}, colors)
    for name in same:
        value = float(np.nanmax(by_label[name]))
        label = f"{name}: {value:.2f} at every word"
        axes.axhline(value, color=colors[name], linestyle="--", linewidth=1.2, label=label)


def draw_skyline(axes: Axes, words: Sequence[str], contents: np.ndarray, reads: np.ndarray) -> None:
    """Draw a stack over a sentence: each word's element from its push on, as thick as the strength that is left of it.

    Args:
        axes: where to draw.
        words: n of them.
        contents: as from `ModelScorer.memory_contents` [n, n + 1], in elements, without negative numbers.
        reads: the read strength at each word [n]: a line down from the top is what is read.
    """
    n = len(words)
    tops = contents.cumsum(axis=1)
    for element in range(contents.shape[1]):
        steps = np.flatnonzero(contents[:, element] > 0)
        left, base = contents[steps, element], tops[steps, element] - contents[steps, element]
        color = ELEMENT_COLORS[element % len(ELEMENT_COLORS)]
        axes.bar(steps, left, 1.0, bottom=base, color=color, edgecolor="white", linewidth=0.3)
        if len(steps) and left[0] > 0.04 * tops[:, -1].max():
            name = drawable(words[element - 1]) if element else "(beginning)"
            axes.text(steps[0], base[0] + left[0] / 2, name, ha="center", va="center", fontsize="x-small")
    totals = tops[:, -1]
    lowest = np.maximum(totals - reads, 0)
    axes.vlines(np.arange(n) + 0.38, lowest, totals, color="black", linewidth=1.6, label="read strength, from the top")
    axes.set_ylabel("height (elements)")


@with_plain_text
def plot_strengths(
    trace: Trace, tree: ConstituencyTree | None = None, title: str = "", contents: np.ndarray | None = None
) -> Figure:
    """Draw push, pop and read strengths over a sentence, or the stack itself, and the tree below the words.

    After Merrill et al. (2019), figures 2 and 5. The number under each word is the total strength in the memory.
    A strength that is the same at every word, such as the pop of a model with u = 1, is a line.

    Args:
        trace: a trace with the signals of a stack.
        tree: over the trace's words, such as the parse from push strengths.
        title: the title of the figure.
        contents: what is on the stack after each word, which is then drawn in place of the strengths; see
            `draw_skyline`.

    Raises:
        InputError: without matplotlib, or without signals.
    """
    names = [name for name in COLORS if name in trace.signals]
    if not names:
        raise InputError("the trace has no push, pop or read strengths to plot")
    n = len(trace.words)
    width = max(6.0, 0.75 * n + 1.5)
    phrases = place_phrases(tree, range(n)) if tree is not None else []
    height = max((phrase.level for phrase in phrases), default=0)
    figure = new_figure(width, 3.6 + 0.3 * height, title)
    if tree is None:
        top, below = figure.subplots(1, 1), None
    else:
        top, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3.2, max(1.0, 0.3 * height)]})
    if contents is None:
        draw_strengths(top, {name: trace.signals[name] for name in names})
        top.set_ylabel("strength (elements)")
    else:
        draw_skyline(top, trace.words, contents, trace.signals.get("read_strength", np.zeros(n)))
    top.set_xlim(-0.6, n - 0.4)
    entries = top.get_legend_handles_labels()[1]
    fits = sum(_LETTER * len(entry) + 0.6 for entry in entries) <= width - 1
    top.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(names) if fits else 1)
    labels = list(map(drawable, trace.words))
    if "total_strength" in trace.signals:
        labels = [f"{w}\n{s:.2f}" for w, s in zip(labels, trace.signals["total_strength"], strict=True)]
    lengths = [_LETTER * len(word) for word in trace.words]
    room = (width - 1) / n  # between the middles of two words
    collide = any((one + other) / 2 > room - _LETTER for one, other in pairwise(lengths))
    top.set_xticks(range(n), labels, rotation=30 if collide else 0)
    top.tick_params(axis="x", length=0, labelbottom=True)
    if below is not None:
        _draw_tree(below, phrases)
    if "total_strength" in trace.signals:
        top.set_xlabel("word, and below it the total strength in the memory after it")
    return figure


def _draw_tree(axes: Axes, phrases: Sequence[PlacedPhrase]) -> None:
    """Draw a tree upside down, under the words: each phrase is a bracket around its children."""
    for phrase in reversed(phrases):
        for x, level in phrase.children:
            axes.plot([x, x], [level, phrase.level], color="black", linewidth=1)
        axes.plot([phrase.children[0][0], phrase.children[-1][0]], [phrase.level] * 2, color="black", linewidth=1)
    top = max((phrase.level for phrase in phrases), default=0)
    if phrases:
        axes.plot([phrases[0].middle] * 2, [top, top + 0.5], color="black", linewidth=1)
    axes.set_ylim(top + 0.8, 0)
    axes.axis("off")


@with_plain_text
def plot_distributions(trace: Trace, title: str = "") -> Figure:
    """Draw the distributions over pushing, popping and reading 0, 1, ... K elements at each step.

    After Merrill et al. (2019), figure 3. The numbers below each word are the expected values: the strengths.

    Args:
        trace: a trace with distributions.
        title: the title of the figure.

    Raises:
        InputError: without matplotlib, or if no strength is an expected value.
    """
    of_names = {name: trace.distributions.get(name.replace("_strength", "_distribution")) for name in COLORS}
    found = {name: values for name, values in of_names.items() if values is not None}
    if not found:
        raise InputError("no strength of the model is an expected value, so there are no distributions to plot")
    n = len(trace.words)
    rows = -(-n // _PER_ROW)
    columns = -(-n // rows)
    figure = new_figure(1.35 * columns + 0.6, 1.75 * rows + 0.5, title)
    panels = panel_grid(figure, n, columns, sharey=True)
    short = {name: name.removesuffix("_strength") for name in found}
    colors = {short[name]: COLORS[name] for name in found}
    most = max(values.shape[1] for values in found.values()) - 1
    for place, axes in enumerate(panels):
        draw_bars(axes, {short[name]: values[place] for name, values in found.items()}, colors)
        axes.set_title(drawable(trace.words[place]), fontsize=10)
        axes.set_xlabel(", ".join(f"{trace.signals[name][place]:.2f}" for name in found), fontsize=8)
        axes.set_xlim(-0.6, most + 0.6)
        axes.set_ylim(0, 1)
        axes.set_xticks(range(most + 1))
        axes.tick_params(labelsize=8)
    for axes in panels[::columns]:
        axes.set_ylabel("probability", fontsize=9)
    shown = ", ".join(short.values())
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(found))
    figure.supxlabel(f"elements; below, the expected values ({shown})", fontsize=9)
    return figure


@with_plain_text
def plot_groups(panels: Sequence[tuple[str, Mapping[str, np.ndarray]]], signal: str, title: str = "") -> Figure:
    """Draw the distributions of a strength in groups of words, panel by panel (Merrill et al. 2019, figure 4).

    All panels have the same axis, which leaves out the outermost 0.1% of all words on each side.

    Args:
        panels: for each its title and its groups: the strengths of their words [N], by name.
        signal: name of the strength, for the axis.
        title: the title of the figure.

    Raises:
        InputError: without matplotlib.
    """
    figure = new_figure(3.6 * len(panels), 3.2, title)
    everything = np.concatenate([values for _, groups in panels for values in groups.values()])
    low, high = np.quantile(everything, (0.001, 0.999))
    if high - low < 1e-6:  # such as a fixed strength
        low, high = low - 0.5, high + 0.5
    bins = np.linspace(low, high, 61)
    lines = max(len(groups) for _, groups in panels)
    for axes, (name, groups) in zip(panel_grid(figure, len(panels), len(panels)), panels, strict=True):
        for i, (group, values) in enumerate(groups.items()):
            share = np.histogram(values, bins)[0] / len(values)
            color = SERIES_COLORS[i % len(SERIES_COLORS)]
            label = f"{group} ({len(values):,}; mean {values.mean():.2f})"
            axes.stairs(100 * share, bins, fill=True, color=color, alpha=0.25)
            axes.stairs(100 * share, bins, color=color, linestyle=LINES[i % len(LINES)], linewidth=1.5, label=label)
        axes.set_title(name, fontsize=10, pad=6 + 13 * lines)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, borderaxespad=0.2)
        axes.set_xlim(low, high)
        axes.set_ylim(0, 1.04 * axes.dataLim.ymax)
        axes.set_xlabel(f"{signal.replace('_', ' ')} (elements)")
    figure.axes[0].set_ylabel("words (%)")
    return figure
