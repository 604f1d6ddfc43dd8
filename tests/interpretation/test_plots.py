"""Figures."""

import sys
from itertools import pairwise

import numpy as np
import pytest

from stack_lm.errors import InputError
from stack_lm.interpretation.plots import plot_strengths
from stack_lm.parsing import tree_from_distances
from stack_lm.trace import Trace

FigureCanvasAgg = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg


def trace(words, names=("push_strength", "pop_strength", "read_strength", "total_strength")):
    n = len(words)
    rng = np.random.default_rng(0)
    signals = {name: rng.uniform(0, 3, n) for name in names}
    return Trace(tuple(words), np.zeros(n), np.ones(n), np.zeros(n, dtype=bool), signals=signals)


@pytest.mark.parametrize(
    "words", [["one"], "the dog sleeps".split(), "a disproportionately counterintuitive sentence".split() * 6]
)
def test_labels_do_not_overlap(words, tmp_path):
    sentence = trace(words)
    figure = plot_strengths(sentence, tree_from_distances(words, sentence.signals["push_strength"]), title="a title")
    figure.savefig(tmp_path / "f.png")
    top = figure.axes[0]
    assert top.get_ylabel() == "strength (elements)"
    assert [text.get_text() for text in top.get_legend().get_texts()] == [
        "push strength", "pop strength", "read strength",
    ]  # fmt: skip
    labels = top.get_xticklabels()
    assert [label.get_text().split("\n")[0] for label in labels] == list(words)
    if labels[0].get_rotation() == 0:
        renderer = FigureCanvasAgg(figure).get_renderer()
        boxes = [label.get_window_extent(renderer) for label in labels]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_without_tree_and_totals():
    assert len(plot_strengths(trace(["a", "b"], ("push_strength",))).axes) == 1


def test_bad_input(monkeypatch):
    with pytest.raises(InputError, match="no push, pop or read strengths"):
        plot_strengths(trace(["a"], ()))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'stack-lm\[plots\]'"):
        plot_strengths(trace(["a"]))
