"""Figures of what a model did with a sentence. Needs matplotlib (`pip install 'stack-lm[plots]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InputError
from .trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from nltk.tree import Tree

# Distinct in grey and for colour-blind readers (Okabe and Ito).
COLORS = {"push_strength": "#0072B2", "pop_strength": "#D55E00", "read_strength": "#009E73"}


def plot_strengths(trace: Trace, tree: Tree | None = None, title: str = "") -> Figure:
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
    height = _depth(tree) if tree is not None else 0
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


def _depth(tree: Any) -> int:
    return 0 if isinstance(tree, str) else 1 + max(_depth(child) for child in tree)


def _draw_tree(axes: Axes, tree: Tree) -> None:
    """A tree upside down, under the words: each phrase is a bracket around what it holds."""
    next_word = iter(range(len(tree.leaves())))

    def draw(node: Any) -> tuple[float, float]:
        """Draw a node; returns where its line starts: the middle of its words, and its depth."""
        if isinstance(node, str):
            return float(next(next_word)), 0.0
        children = [draw(child) for child in node]
        level = max(depth for _, depth in children) + 1
        for x, depth in children:
            axes.plot([x, x], [depth, level], color="black", linewidth=1)
        axes.plot([children[0][0], children[-1][0]], [level, level], color="black", linewidth=1)
        return (children[0][0] + children[-1][0]) / 2, level

    middle, level = draw(tree)
    axes.plot([middle, middle], [level, level + 0.5], color="black", linewidth=1)
    axes.set_ylim(level + 0.8, 0)
    axes.axis("off")
