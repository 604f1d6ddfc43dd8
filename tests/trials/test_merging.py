"""Rows of a table that are run apart, and merged."""

import json
import os
import signal
import subprocess

import pytest
import small_tasks
from conftest import run, run_json
from small_tasks import RECIPE, TRAIN

from stack_lm.training.base_config import differences
from stack_lm.training.trials.results import RESULTS_FILE


def test_differences():
    assert list(differences({"a": {"b": 1}, "c": 2}, {"c": 2, "a": {"b": 1}})) == []
    assert list(differences({"a": {"b": 1}}, {"a": {"b": 2}})) == [("a.b", 1, 2)]
    assert list(differences({"a": {"b": 1}}, {})) == [("a.b", 1, None)]
    assert list(differences({"a": {}}, {})) == []
    assert list(differences({"a": 1}, {"a": {"b": 2}})) == [("a", 1, {"b": 2})]


@pytest.fixture
def files(tmp_path):
    rows = {("echo", "mean"): {"task": "test/per_step"}, ("echo", "sum"): {"task": "test/summed"}}
    measures = ["accuracy.minimum", "accuracy.mean"]
    small_tasks.write_table(tmp_path, "A table", rows, columns=["task", "loss"], measures=measures, seeds=2)
    return tmp_path


def train(capsys, files, *arguments):
    capsys.readouterr()
    status = TRAIN.main([str(files / "table.yaml"), *map(str, arguments)])
    return status, capsys.readouterr().err


def without_times(described):
    for row in described["rows"]:
        del row["seconds"]
    del described["output_dir"], described["command"]
    return described


@pytest.fixture
def parts(capsys, files):
    """A row in each of two directories, as of two machines."""
    for row in ("mean", "sum"):
        status, err = train(capsys, files, "--rows", row, "--output", files / row)
        assert status == 0, err
    return files / "mean", files / "sum"


def test_parts_are_shown_as_one(capsys, files, parts):
    assert train(capsys, files, f"output_dir={files / 'whole'}")[0] == 0
    whole = without_times(run_json(capsys, "results", files / "whole"))
    assert without_times(run_json(capsys, "results", *parts)) == whole
    # What is there twice and the same counts once.
    assert without_times(run_json(capsys, "results", files / "whole", *parts)) == whole


def test_parts_that_do_not_fit(capsys, parts):
    def refused():
        status, out, err = run(capsys, "results", *parts)
        assert (status, out, len(err.splitlines())) == (2, "", 1)
        return err

    results = parts[1] / RESULTS_FILE
    before = results.read_text()
    twice = json.loads((parts[0] / RESULTS_FILE).read_text().splitlines()[0])
    twice["scores"]["test"]["accuracy"] = 0.123
    results.write_text(before + json.dumps(twice) + "\n")
    assert "have different results of seed 0 of 'echo, mean'; remove one of them" in refused()
    twice["seed"], twice["config"]["training"]["epochs"] = 7, 9
    results.write_text(before + json.dumps(twice) + "\n")
    assert "have trials of 'echo, mean' in which training.epochs is 2 and 9" in refused()
    results.write_text(before)
    table = parts[1] / "table.yaml"
    table.write_text(table.read_text().replace("title: A table", "title: Another"))
    assert "are of different tables: title is 'A table' and 'Another'" in refused()


def test_a_trial_that_two_parts_ran_counts_once(capsys, files, parts):
    results = parts[1] / RESULTS_FILE
    twice = json.loads((parts[0] / RESULTS_FILE).read_text().splitlines()[0])
    twice["history"][-1]["loss"] *= 1.1  # trained beside other trials, it has drifted apart
    twice["scores"]["test"]["accuracy"] = 0.123
    results.write_text(results.read_text() + json.dumps(twice) + "\n")
    status, out, err = run(capsys, "results", *parts)
    assert (status, "0 of 2" in out, "12.3" in out) == (0, False, False)
    assert f"both ran seed {twice['seed']} of 'echo, mean', with other rounding; {parts[0]}'s counts" in err
    twice["history"][0]["loss"] *= 2
    results.write_text(results.read_text() + json.dumps(twice | {"seed": 1}) + "\n")
    status, _, err = run(capsys, "results", *parts)
    assert (status, "have different results of seed 1 of 'echo, mean'" in err) == (2, True)


def test_the_slurm_script(tmp_path):
    """A task that is signalled ends its trials, and asks for the queue again."""
    for name, body in {"scontrol": 'echo "scontrol $*"', "python": 'echo "$*"; exec sleep 60'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_JOB_ID": "12"}
    (tmp_path / "rows.txt").write_text("a\nb\nlstm|tape\n")
    slurm |= {"ROWS": str(tmp_path / "rows.txt"), "RUNS": "x", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment = {name: value for name, value in (os.environ | slurm).items() if name != "PYTHON"}
    script = RECIPE.parent / "slurm" / "train_task.sbatch"
    with subprocess.Popen(
        ["bash", str(script), "table"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        assert line == "recipes/train_task.py table --rows lstm|tape --output x/3 --jobs 1 --resume\n"
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=30)
    assert out.splitlines() == ["out of time: back into the queue", "scontrol requeue 12_3"]
