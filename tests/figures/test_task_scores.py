"""Heat maps by task and network, with scores by length."""

import json

import pytest
from conftest import run, run_json

from stack_lm.cli.commands.plot import average_lengths
from stack_lm.core.errors import InputError
from stack_lm.figures.hierarchy import TaskScores, plot_task_scores
from stack_lm.figures.trials import Curve
from stack_lm.training.trials.config import Table
from stack_lm.training.trials.results import ResultsDirectory

pytest.importorskip("matplotlib")


def scores(**changes):
    values = {("copy", "RNN"): 50.0, ("parity", "RNN"): 100.0, ("parity", "<b>"): 75.0}
    return TaskScores(
        **{
            "title": "A table",
            "score": "accuracy in %",
            "networks": ["RNN", "<b>"],
            "levels": {"regular": ["parity"], "context-sensitive": ["copy"]},
            "values": values,
            "texts": {("copy", "RNN"): "50.0 (1 of 3)", ("parity", "RNN"): "100.0", ("parity", "<b>"): "75.0"},
            "curves": {"parity": {"RNN": [Curve([1, 2], [90, 80])], "<b>": [Curve([1, 2], [70, 60])]}},
            "x_labels": {"parity": "length"},
            "y_label": "accuracy (%)",
            **changes,
        }
    )


def test_shades():
    percent = scores()
    assert [percent.shade(value) for value in (50.0, 75.0, 100.0)] == [0.0, 0.5, 1.0]
    assert scores(values={("copy", "RNN"): 23.0}).shade(20.0) == 0.0  # tens below, where a task is below 50
    nats = scores(percent=False, values={("copy", "RNN"): 1.0, ("parity", "RNN"): 3.0})
    assert [nats.shade(value) for value in (1.0, 3.0)] == [1.0, 0.0]
    assert scores(percent=False, values={("copy", "RNN"): 1.0}).shade(1.0) == 0.0


def test_the_heat_map_has_all_numbers():
    figure = plot_task_scores(scores())
    texts = [text.get_text() for part in figure.subfigs for axes in part.axes for text in axes.texts]
    assert texts == ["100.0", "75.0", "50.0 (1 of 3)", "-"]
    heat, panel = (part.axes[0] for part in figure.subfigs)
    assert [label.get_text() for label in heat.get_yticklabels()] == ["regular", "parity", "context-sensitive", "copy"]
    assert [text.get_weight() for text in heat.texts[:2]] == ["bold", "normal"]
    assert panel.get_title(loc="left") == "parity"
    assert len(plot_task_scores(scores(curves={})).axes) == 1


def test_too_many_networks_and_none():
    networks = [f"network {i}" for i in range(7)]
    curves = {"parity": {network: [Curve([1], [1.0])] for network in networks}}
    with pytest.raises(InputError, match="a panel shows at most 6 rows; parity has 7"):
        plot_task_scores(scores(networks=networks, curves=curves))
    with pytest.raises(InputError, match="there are no trials to draw"):
        plot_task_scores(scores(values={}))


@pytest.fixture
def networks():
    """Those with scores by length."""
    return ["RNN", "LSTM"]


@pytest.fixture
def results(tmp_path, networks):
    rows = [
        {"cells": [task, model], "preset": "p", "task": f"flare/{task}"}
        for task in ("marked_copy", "first")
        for model in (*networks, "old")
    ]
    table = {"title": "A table", "columns": ["task", "model"], "measures": ["accuracy.mean"], "seeds": 2, "rows": rows}
    built = ResultsDirectory(tmp_path / "runs")
    with built.open():
        built.begin(Table.build(table | {"output_dir": str(tmp_path)}))
        for row in rows:
            for seed in range(2):
                by_length = {str(length): [length / 200, 1 + length % 2] for length in range(100)}
                test = {"accuracy": 0.5 + 0.1 * seed, "by_length": {"accuracy": by_length}}
                history = [{"epoch": 1, "strings": 1, "loss": 1.0}]
                if row["cells"][1] == "old":
                    test["by_length"] = {}
                name = ", ".join(row["cells"])
                record = {"row": name, "seed": seed, "config": {}, "scores": {"test": test}, "history": history}
                built.add([record | {"seconds": 1.0}])
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("networks", "tasks", "note"),
    [
        (["RNN", "LSTM"], ["first", "marked_copy"], "without scores by length: old"),
        (list("abcdefg"), [], "no scores by length are drawn: a panel shows at most 6 rows; marked_copy has 7"),
    ],
)
def test_networks_without_curves_are_named(capsys, tmp_path, results, tasks, note):
    status, out, err = run(capsys, "plot", "results", results, "-o", tmp_path / "f.png", "--json")
    assert (status, json.loads(out)["tasks"]) == (0, tasks)
    assert note in err


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_command(capsys, tmp_path, results, ending):
    path = tmp_path / f"figure.{ending}"
    about = run_json(capsys, "plot", "results", results, "-o", path)
    assert about["measure"] == "test/accuracy.mean"
    assert about["tasks"] == ["first", "marked_copy"]
    assert path.stat().st_size > 5000


def test_what_the_command_refuses(capsys, tmp_path, results):
    for arguments, message in (
        (("plot", "results", results, "-o", tmp_path / "f.html"), "must end in one of .png, .pdf, .svg;"),
        (("plot", "results", results, "--score", "nats", "-o", tmp_path / "f.png"), "have no test score 'nats'"),
        (("plot", "lengths", results, "--rows", "old", "-o", tmp_path / "f.png"), "have no scores by length\n"),
        (("plot", "results", tmp_path / "none", "-o", tmp_path / "f.png"), "none has no results"),
    ):
        status, out, err = run(capsys, *arguments)
        assert (status, out, len(err.splitlines())) == (2, "", 1)
        assert message in err
    assert not list(tmp_path.glob("f.*"))


def test_lengths_are_averaged_by_their_strings():
    assert average_lengths({"3": [0.5, 1], "1": [1.0, 3]}, 100) == Curve([1.0, 3.0], [100.0, 50.0])
    many = {str(length): [float(length % 2), 1 + 2 * (length % 2)] for length in range(80)}
    curve = average_lengths(many, 1)
    assert len(curve.x) == 40
    assert curve.x[0] == 0.5
    assert curve.y[0] == 0.75
