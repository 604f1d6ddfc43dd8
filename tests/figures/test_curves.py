"""Figures of several runs."""

import json

import pytest

from stack_lm.core.errors import InputError
from stack_lm.figures.curves import plot_learning_curves, read_metrics

pytest.importorskip("matplotlib")


def records(start, *, strengths=False):
    """Of a run that is validated every ten updates."""
    found = []
    for step in range(5, 31, 5):
        found.append({"step": step, "train_nats_per_token": start - step / 20})
        if step % 10 == 0:
            more = {"eval_push_mean": step / 10, "eval_push_sd": 0.1, "eval_read_below_top": 0.2} if strengths else {}
            found.append({"step": step, "eval_perplexity": 400.0 - step, **more})
    return found


def test_learning_curves(tmp_path):
    figure = plot_learning_curves({"u1": records(6, strengths=True), "lstm": records(5)}, title="two runs")
    figure.savefig(tmp_path / "f.png")
    labels = [axes.get_ylabel() for axes in figure.axes if axes.axison]
    assert labels == [
        "validation perplexity (thin: training)", "push strength, mean (elements)", "push strength, sd (elements)",
        "read from below the top (share)",
    ]  # fmt: skip
    assert {axes.get_xlabel() for axes in figure.axes} == {"updates"}
    perplexity, push = figure.axes[:2]
    lines = {line.get_label(): line for line in perplexity.lines}
    assert lines["u1"].get_xydata().tolist() == [[10, 390], [20, 380], [30, 370]]
    assert len(perplexity.lines) == 4  # each run's training, too
    assert [line.get_label() for line in push.lines if len(line.get_xdata())] == ["u1"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["u1", "lstm"]


def test_learning_curves_of_a_classifier_and_a_span_parser():
    runs = {
        name: [{"step": 5, "train_loss": 1.5}, {"step": 5, "eval_loss": 1.0, f"eval_{score}": 60.0}]
        for name, score in (("reviews", "accuracy"), ("parser", "f1"))
    }
    figure = plot_learning_curves(runs)
    labels = [axes.get_ylabel() for axes in figure.axes if axes.axison]
    assert labels == [
        "validation loss (nats; thin: training)", "validation accuracy (%)", "F1 with the votes' trees (%)",
    ]  # fmt: skip
    loss, accuracy, _ = figure.axes
    assert [line.get_xydata().tolist() for line in loss.lines] == [[[5, 1.5]], [[5, 1.0]]] * 2
    assert [line.get_label() for line in accuracy.lines if len(line.get_xdata())] == ["reviews"]


def test_runs_without_a_validation():
    with pytest.raises(InputError, match="no validation has been logged by u1"):
        plot_learning_curves({"u1": [{"step": 5, "train_nats_per_token": 6.0}]})


def test_metrics_are_read(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records(6)) + '{"step": 3')
    assert read_metrics(tmp_path) == records(6)
    for text, message in (
        ("no\n{}\n", "line 1: not a record of a run: 'no'"),
        ("", "has no records yet"),
    ):
        (tmp_path / "metrics.jsonl").write_text(text)
        with pytest.raises(InputError, match=message):
            read_metrics(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"is not a training run: it has no metrics.jsonl"):
        read_metrics(tmp_path / "empty")
    with pytest.raises(InputError, match=r"none does not exist"):
        read_metrics(tmp_path / "none")
