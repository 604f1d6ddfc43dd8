"""A figure of the surprisal of a sentence's words, with the strengths of memories below. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.errors import InputError
from ..core.markup import drawable
from .figures import draw_bars, draw_strengths, new_figure, with_plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_WORDS = 150
# Distinct in grey and for colour-blind readers (Okabe and Ito), and different from those of strengths.
_MODEL_COLORS = ("#444444", "#56B4E9", "#E69F00", "#CC79A7", "#F0E442", "#999999")
MOST_MODELS = len(_MODEL_COLORS)
_LONGEST_LABEL = 24  # characters


class SurprisalCurve(NamedTuple):
    """One model's surprisals and strengths over a sentence of n words.

    Attributes:
        model: its name.
        surprisal: the surprisal of each word [n]; NaN if there is none.
        unknown: whether a word is outside the model's vocabulary [n].
        strengths: strengths of its memory after each word, by name, each [n], in elements; none without a memory.
    """

    model: str
    surprisal: np.ndarray
    unknown: np.ndarray
    strengths: Mapping[str, np.ndarray]


@with_plain_text
def plot_surprisal(words: Sequence[str], curves: Sequence[SurprisalCurve], unit: str = "bits") -> Figure:
    """Draw bars of surprisal over the words of a sentence, and below them the strengths of each model with a memory.

    The bar of a word outside the vocabulary is hollow: it is the surprisal of any such word.

    Args:
        words: n words.
        curves: the curves of one or more models, at most `MOST_MODELS`.
        unit: the unit of surprisal.

    Raises:
        InputError: without matplotlib, or for too many words.
    """
    if len(words) > MOST_WORDS:
        raise InputError(f"a figure shows at most {MOST_WORDS} words; the sentence has {len(words):,}")
    with_memory = [curve for curve in curves if curve.strengths]
    texts = list(map(drawable, words))
    labels = [text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…" for text in texts]
    steep = max(map(len, labels)) > 9
    width = max(6.0, (0.42 if steep else 0.68) * len(words) + 1.2)
    figure = new_figure(width, 3.2 + 2.0 * len(with_memory), curves[0].model if len(curves) == 1 else "")
    panels = figure.subplots(1 + len(with_memory), 1, sharex=True, squeeze=False)[:, 0]
    _draw_surprisal(panels[0], curves)
    panels[0].set_ylabel(f"surprisal ({unit})")
    for axes, curve in zip(panels[1:], with_memory, strict=True):
        draw_strengths(axes, curve.strengths)
        _add_legend(axes)
        axes.set_ylabel("strength (elements)" if len(curves) == 1 else f"strength (elements)\n{curve.model}")
    for axes in panels:
        axes.set_xlim(-0.6, len(words) - 0.4)
        axes.tick_params(axis="x", length=0)
    # Under the surprisals, where readers look first.
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if steep else {}
    panels[0].set_xticks(range(len(words)), labels, **turned)
    panels[0].tick_params(axis="x", labelbottom=True)
    for axes in panels[1:]:
        axes.tick_params(axis="x", labelbottom=False)
    return figure


def _draw_surprisal(axes: Axes, curves: Sequence[SurprisalCurve]) -> None:
    from matplotlib.patches import Patch

    colors = dict(zip((curve.model for curve in curves), _MODEL_COLORS, strict=False))
    draw_bars(axes, {curve.model: curve.surprisal for curve in curves}, colors)
    for bars, curve in zip(axes.containers, curves, strict=True):
        for bar, unknown in zip(bars, curve.unknown, strict=True):
            if unknown:
                bar.set(facecolor="none", edgecolor=colors[curve.model], linewidth=1.2)
    keys = [Patch(color=color, label=name) for name, color in colors.items()] if len(curves) > 1 else []
    if any(curve.unknown.any() for curve in curves):
        keys.append(Patch(facecolor="none", edgecolor="black", label="unknown word"))
    if keys:
        _add_legend(axes, handles=keys)


def _add_legend(axes: Axes, **settings: Any) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8, borderaxespad=0.2, **settings)
