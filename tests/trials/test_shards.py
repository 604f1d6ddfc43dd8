"""Parts of a table that are run apart, and merged."""

import json
import os
import shutil
import signal
import subprocess

import pytest
import small_tasks
from conftest import run, run_json
from small_tasks import RECIPE, TRAIN

from stack_lm.core.errors import InputError
from stack_lm.training.base_config import first_difference
from stack_lm.training.trials.config import Row, TaskConfig
from stack_lm.training.trials.results import RESULTS_FILE
from stack_lm.training.trials.run import Experiment
from stack_lm.training.trials.schedule import PlannedTrial, deal, describe_group
from stack_lm.training.trials.shards import Shard


def wanted(seeds):
    """Trials of rows, whose presets are "a" and "b" in turn."""
    return [
        PlannedTrial(number, Row([number], "ab"[number % 2], "task"), TaskConfig(seed=seed))
        for number, count in enumerate(seeds)
        for seed in range(count)
    ]


@pytest.mark.parametrize(
    ("seeds", "shards"), [([10] * 18, 4), ([10] * 18, 16), ([3] * 75, 8), ([10], 3), ([1, 9], 2), ([2, 2], 7)]
)
def test_each_trial_is_dealt_once_and_evenly(seeds, shards):
    trials = wanted(seeds)
    dealt = deal(trials, shards)
    assert len(dealt) == shards
    assert sorted(t.key for part in dealt for t in part) == sorted(t.key for t in trials)
    assert max(map(len, dealt)) <= max(-(-len(trials) // shards), 1.25 * len(trials) / shards)
    for part in dealt:
        assert part == sorted(part, key=lambda trial: (trial.number, trial.config.seed))


def test_seeds_of_a_row_stay_together_and_presets_are_spread():
    dealt = deal(wanted([5] * 8), 4)
    for part in dealt:
        rows = {trial.number for trial in part}
        assert len(part) == 5 * len(rows)
        assert sorted(number % 2 for number in rows) == [0, 1]


def test_groups_in_words():
    trials = wanted([5])
    assert describe_group(trials) == "0, seeds 0 to 4"
    assert describe_group(trials[::2]) == "0, seeds 0, 2, 4"
    assert describe_group(trials[1:2]) == "0, seed 1"


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2", ""])
def test_what_is_no_shard(text):
    with pytest.raises(InputError, match=r"a shard is its number, from 1, and how many there are, as 1/4; got"):
        Shard.parse(text)


def test_the_first_difference():
    assert first_difference({"a": {"b": 1}, "c": 2}, {"c": 2, "a": {"b": 1}}) is None
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 2}}) == ("a.b", 1, 2)
    assert first_difference({"a": {"b": 1}}, {}) == ("a.b", 1, None)
    assert first_difference({"a": {}}, {}) is None
    assert first_difference({"a": 1}, {"a": {"b": 2}}) == ("a", 1, {"b": 2})


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
def sharded(capsys, files):
    for number in (1, 2):
        status, err = train(capsys, files, "--shard", f"{number}/2")
        assert status == 0, err
        assert f"shard {number} of 2: 2 of 4 trials" in err
    return files / "runs"


def test_shards_are_shown_as_one(capsys, files, sharded):
    assert train(capsys, files, f"output_dir={files / 'whole'}")[0] == 0
    whole = without_times(run_json(capsys, "results", files / "whole"))
    assert without_times(run_json(capsys, "results", sharded)) == whole
    parts = [sharded / "shards" / f"{number}-of-2" for number in (2, 1)]
    assert without_times(run_json(capsys, "results", *parts)) == whole
    for part in parts:
        assert len((part / RESULTS_FILE).read_text().splitlines()) == 2
    # What is there twice and the same counts once.
    assert without_times(run_json(capsys, "results", files / "whole", sharded)) == whole
    assert run(capsys, "plot", "lengths", sharded, "--output", files / "lengths.png")[0] == 0


def test_a_shard_without_trials(capsys, files):
    status, err = train(capsys, files, "--shard", "5/5")
    assert status == 0
    assert "shard 5 of 5: 0 of 4 trials" in err


def refused(capsys, *arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    return err


def test_shards_that_do_not_fit(capsys, files, sharded):
    status, err = train(capsys, files, "--shard", "1/3")
    assert status == 2
    assert "has shards of 2, not of 3; give --shard I/2, or name another output_dir" in err
    for option in ("--resume", "--overwrite"):
        assert "has the trials of shards; give --shard" in train(capsys, files, option)[1]
    assert "a shard is its number, from 1" in train(capsys, files, "--shard", "3/2")[1]
    assert "continue its trials with --resume" in train(capsys, files, "--shard", "1/2")[1]

    first, second = (sharded / "shards" / f"{number}-of-2" for number in (1, 2))
    third = first.with_name("1-of-3")
    shutil.copytree(first, third)
    assert "has shards of 2 and of 3; move those of one number elsewhere" in refused(capsys, "results", sharded)
    shutil.rmtree(third)

    results = second / RESULTS_FILE
    before = results.read_text()
    records = [json.loads(line) for line in before.splitlines()]
    twice = json.loads((first / RESULTS_FILE).read_text().splitlines()[0])
    twice["scores"]["test"]["accuracy"] = 0.123
    results.write_text(before + json.dumps(twice) + "\n")
    message = "have different results of one trial, seed 0 of 'echo, mean'; remove it from one of them"
    assert message in refused(capsys, "results", sharded)

    twice["seed"], twice["config"]["training"]["epochs"] = 7, 9
    results.write_text(before + json.dumps(twice) + "\n")
    message = "have trials of 'echo, mean' in which training.epochs is 2 and 9"
    assert message in refused(capsys, "results", sharded)

    results.write_text(before)
    assert len(records) == 2
    table = second / "table.yaml"
    table.write_text(table.read_text().replace("title: A table", "title: Another"))
    message = "are of different tables: title is 'A table' and 'Another'"
    assert message in refused(capsys, "results", sharded)


def test_shards_and_a_whole_run_do_not_mix(capsys, files):
    assert train(capsys, files)[0] == 0
    message = "has the trials of a run without shards; name another output_dir"
    assert message in train(capsys, files, "--shard", "1/2", "--resume")[1]


def test_the_slurm_script(tmp_path):
    """A task that is signalled ends its trials, and asks for the queue again."""
    for name, body in {"scontrol": 'echo "scontrol $*"', "python": 'echo "$*"; exec sleep 60'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MAX": "8", "SLURM_ARRAY_JOB_ID": "12"}
    environment = os.environ | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment = {name: value for name, value in environment.items() if name not in ("PYTHON", "SHARDS")}
    script = RECIPE.parent / "slurm" / "train_task.sbatch"
    with subprocess.Popen(
        ["bash", str(script), "table", "output_dir=x"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        assert line == "recipes/train_task.py table output_dir=x --shard 3/8 --jobs 1 --resume\n"
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=30)
    assert out.splitlines() == ["out of time: back into the queue", "scontrol requeue 12_3"]


def test_a_shard_from_python(files):
    from stack_lm.training.trials.run import load_table

    table = load_table(str(files / "table.yaml"))
    parts = [Experiment(table, shard=Shard(number, 2)).planned for number in (1, 2)]
    assert sorted(trial.key for part in parts for trial in part) == [
        (row.name, seed) for row in table.rows for seed in range(2)
    ]
