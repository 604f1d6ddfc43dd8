"""Figures."""

import dataclasses
import sys
from itertools import pairwise

import numpy as np
import pytest

from stack_lm.core.errors import InputError
from stack_lm.core.trace import Trace
from stack_lm.figures.figures import check_matplotlib, plot_distributions, plot_groups, plot_strengths
from stack_lm.parsing import tree_from_distances

FigureCanvasAgg = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg


def trace(words, names=("push_strength", "pop_strength", "read_strength", "total_strength")):
    n = len(words)
    rng = np.random.default_rng(0)
    signals = {name: rng.uniform(0, 3, n) for name in names}
    return Trace(tuple(words), np.zeros(n), np.ones(n), np.zeros(n, dtype=bool), actions=(signals,))


@pytest.mark.parametrize(
    "words", [["one"], "the dog sleeps".split(), "a disproportionately counterintuitive sentence".split() * 6]
)
def test_labels_do_not_overlap(words, tmp_path):
    sentence = trace(words)
    figure = plot_strengths(sentence, tree_from_distances(words, sentence.signals["push_strength"]), title="a title")
    figure.savefig(tmp_path / "f.png")
    top = figure.axes[0]
    assert top.get_ylabel() == "strength (elements)"
    assert top.get_xlabel() == "word, and below it the total strength in the memory after it"  # a stack or a queue
    assert [text.get_text() for text in top.get_legend().get_texts()] == [
        "push strength", "pop strength", "read strength",
    ]  # fmt: skip
    labels = top.get_xticklabels()
    assert [label.get_text().split("\n")[0] for label in labels] == list(words)
    if labels[0].get_rotation() == 0:
        renderer = FigureCanvasAgg(figure).get_renderer()
        boxes = [label.get_window_extent(renderer) for label in labels]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_a_fixed_strength_is_a_line():
    sentence = trace(["a", "b", "c"])
    signals = {**sentence.signals, "pop_strength": np.ones(3)}
    (axes,) = plot_strengths(dataclasses.replace(sentence, actions=(signals,))).axes
    assert len(axes.patches) == 6
    assert [line.get_ydata()[0] for line in axes.lines] == [1.0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "pop strength: 1.00 at every word", "push strength", "read strength",
    ]  # fmt: skip
    fixed = {name: np.ones(3) for name in ("push_strength", "pop_strength")}
    assert len(plot_strengths(dataclasses.replace(sentence, actions=(fixed,))).axes[0].lines) == 2


def test_a_stack_is_drawn_as_it_stands():
    contents = np.array([[0.5, 1.0, 0.0, 0.0], [0.5, 0.2, 2.0, 0.0], [0.5, 0.0, 0.0, 0.7]])
    reads = np.array([2.0, 1.0, 0.3])
    sentence = trace(["a", "b", "c"])
    sentence = dataclasses.replace(sentence, actions=({**sentence.signals, "read_strength": reads},))
    (axes,) = plot_strengths(sentence, contents=contents).axes
    found = {(bar.get_x() + 0.5, round(bar.get_y(), 6), round(bar.get_height(), 6)) for bar in axes.patches}
    first = {(0, 0, 0.5), (0, 0.5, 1.0), (1, 0, 0.5), (1, 0.5, 0.2), (1, 0.7, 2.0)}
    assert found == first | {(2, 0, 0.5), (2, 0.5, 0.7)}
    assert [text.get_text() for text in axes.texts] == ["(beginning)", "a", "b", "c"]
    windows = [sorted(y for _, y in line) for line in axes.collections[0].get_segments()]
    np.testing.assert_allclose(windows, [[0, 1.5], [1.7, 2.7], [0.9, 1.2]])  # not below the bottom


def test_without_tree_and_totals():
    assert len(plot_strengths(trace(["a", "b"], ("push_strength",))).axes) == 1


def distributions():
    """Of two words, over pushing 0, 1, 2 elements and popping as many."""
    rows = {"push_distribution": [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], "pop_distribution": [[1.0, 0.0, 0.0]] * 2}
    values = {name: np.array(row) for name, row in rows.items()}
    signals = {name.replace("distribution", "strength"): v @ np.arange(3) for name, v in values.items()}
    return Trace(("a", "b"), np.zeros(2), np.ones(2), np.zeros(2, dtype=bool), actions=(signals | values,))


def test_distributions():
    first, second = plot_distributions(distributions()).axes
    assert [axes.get_title() for axes in (first, second)] == ["a", "b"]
    assert [bar.get_height() for bar in first.patches] == [0.5, 0.5, 0, 1, 0, 0]
    assert [bar.get_height() for bar in second.patches] == [0, 0, 1, 1, 0, 0]
    assert second.get_xlabel() == "2.00, 0.00"
    assert first.get_legend_handles_labels()[1] == ["push", "pop"]


def test_groups():
    groups = {"nouns": np.array([1.0, 1.0, 2.0]), "verbs": np.array([3.0])}
    (axes,) = plot_groups([("all", groups)], "push_strength", title="a title").axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "nouns (3; mean 1.33)",
        "verbs (1; mean 3.00)",
    ]
    assert axes.get_xlabel() == "push strength (elements)"
    (fixed,) = plot_groups([("all", {"words": np.ones(5)})], "push_strength").axes
    assert fixed.get_xlim() == (0.5, 1.5)


def test_bad_input(monkeypatch):
    with pytest.raises(InputError, match="no push, pop or read strengths"):
        plot_strengths(trace(["a"], ()))
    with pytest.raises(InputError, match="no strength of the model is an expected value"):
        plot_distributions(trace(["a"]))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (
        lambda: plot_strengths(trace(["a"])),
        lambda: plot_distributions(distributions()),
        lambda: plot_groups([("all", {"words": np.ones(5)})], "push_strength"),
        check_matplotlib,
    ):
        with pytest.raises(InputError, match=r"pip install 'stack-lm\[plots\]'"):
            draw()
