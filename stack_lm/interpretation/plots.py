"""Figures of what a model did with a sentence. Needs matplotlib (`pip install 'stack-lm[plots]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from ..trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..parsing.trees import ConstituencyTree

# Distinct in grey and for colour-blind readers (Okabe and Ito).
COLORS = {"push_strength": "#0072B2", "pop_strength": "#D55E00", "read_strength": "#009E73"}


def plot_strengths(trace: Trace, tree: ConstituencyTree | None = None, title: str = "") -> Figure:
    """Push, pop and read strengths over a sentence, and below the words its tree.

    After Merrill et al. (2019), figures 2 and 5. Under each word stands the total strength left on the stack.

    Args:
        trace: with the signals of a stack.
        tree: over the trace's words, such as the parse that the push strengths make.
        title: of the figure.

    Raises:
        InputError: without matplotlib, or without signals.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("figures need matplotlib: pip install 'stack-lm[plots]'") from error
    names = [name for name in COLORS if name in trace.signals]
    if not names:
        raise InputError("the trace has no push, pop or read strengths to plot")
    n = len(trace.words)
    width = max(6.0, 0.75 * n + 1.5)
    longest = max(map(len, trace.words))
    height = max(_levels(tree), default=0) if tree is not None else 0
    figure = Figure(figsize=(width, 3.6 + 0.3 * height), layout="constrained", dpi=150)
    if tree is None:
        top, below = figure.subplots(1, 1), None
    else:
        top, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3.2, max(1.0, 0.3 * height)]})
    places = np.arange(n)
    for i, name in enumerate(names):
        offset = (i - (len(names) - 1) / 2) * 0.8 / len(names)
        label = name.replace("_", " ")
        top.bar(places + offset, trace.signals[name], 0.8 / len(names), color=COLORS[name], label=label)
    top.set_ylabel("strength (elements)")
    top.set_xlim(-0.6, n - 0.4)
    top.spines[["top", "right"]].set_visible(False)
    top.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(names), frameon=False)
    if title:
        figure.suptitle(title, fontsize="medium", x=0.01, ha="left")
    labels = list(trace.words)
    if "total_strength" in trace.signals:
        labels = [f"{w}\n{s:.2f}" for w, s in zip(labels, trace.signals["total_strength"], strict=True)]
    top.set_xticks(places, labels, rotation=0 if longest <= 11 else 30)
    top.tick_params(axis="x", length=0, labelbottom=True)
    if below is not None and tree is not None:
        _draw_tree(below, tree)
    if "total_strength" in trace.signals:
        top.set_xlabel("word, and below it the total strength on the stack after it")
    return figure


def _levels(tree: ConstituencyTree) -> list[int]:
    """The height of each phrase above the words."""
    levels = [0] * len(tree.spans)
    for number, children in reversed(list(enumerate(tree.children()))):
        levels[number] = 1 + max(0 if child.phrase is None else levels[child.phrase] for child in children)
    return levels


def _draw_tree(axes: Axes, tree: ConstituencyTree) -> None:
    """A tree upside down, under the words: each phrase is a bracket around what it holds."""
    levels = _levels(tree)
    middles = [0.0] * len(tree.spans)  # where the line of each phrase starts
    for number, children in reversed(list(enumerate(tree.children()))):
        level = levels[number]
        places = [
            (float(child.start), 0) if child.phrase is None else (middles[child.phrase], levels[child.phrase])
            for child in children
        ]
        for x, depth in places:
            axes.plot([x, x], [depth, level], color="black", linewidth=1)
        axes.plot([places[0][0], places[-1][0]], [level, level], color="black", linewidth=1)
        middles[number] = (places[0][0] + places[-1][0]) / 2
    top = max(levels, default=0)
    if levels:
        axes.plot([middles[0], middles[0]], [top, top + 0.5], color="black", linewidth=1)
    axes.set_ylim(top + 0.8, 0)
    axes.axis("off")
