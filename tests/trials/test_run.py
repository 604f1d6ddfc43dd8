"""Tables of trials: run, continued after a kill, printed beside the paper's numbers."""

import copy
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_tasks
from conftest import run, run_json
from small_tasks import RECIPE, TRAIN

from stack_lm.core.config_files import read_config, read_yaml, table_names
from stack_lm.core.console import run_command
from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task
from stack_lm.training.trials import config as config_module
from stack_lm.training.trials import run as run_module
from stack_lm.training.trials.config import Table, single_row
from stack_lm.training.trials.results import RESULTS_FILE, ResultsDirectory, measure
from stack_lm.training.trials.run import Experiment, load_table


@pytest.fixture
def files(tmp_path):
    """A table of two rows, and the preset of both."""
    rows = {
        ("echo", "mean"): {"task": "test/per_step", "paper": [40.0, 50.5, None]},
        ("echo", "sum"): {"task": "test/summed", "training": {"loss_reduction": "steps"}},
    }
    measures = ["accuracy.minimum", "accuracy.median", "accuracy.maximum"]
    small_tasks.write_table(tmp_path, "A paper, table 1", rows, columns=["task", "loss"], measures=measures, seeds=3)
    return tmp_path


def lines(files):
    return [json.loads(line) for line in (files / "runs" / RESULTS_FILE).read_text().splitlines()]


def train(capsys, *arguments):
    capsys.readouterr()
    status = TRAIN.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_table_is_one_command(capsys, files):
    status, out, err = train(capsys, files / "table.yaml")
    assert status == 0, err
    records = lines(files)
    assert [(record["row"], record["seed"]) for record in records] == [
        (row, seed) for row in ("echo, mean", "echo, sum") for seed in range(3)
    ]
    record = records[3]
    assert record["config"]["training"]["loss_reduction"] == "steps"
    assert {"torch", "python", "stack-lm"} <= set(record["versions"])
    assert record["seconds"] > 0
    assert 0 <= record["scores"]["test"]["accuracy"] <= 1
    assert set(record["scores"]["test"]["by_length"]["accuracy"]) <= {"3", "4", "5", "6"}
    assert (files / "runs" / record["model"] / "model.safetensors").is_file()
    about = json.loads((files / "runs" / record["model"] / "task.json").read_text())
    assert about == {"task": "test/summed", "options": {}, "seed": 0}
    assert "A paper, table 1" in out
    assert "echo, sum, seed 2: accuracy " in err
    assert record["validation_score"] == "accuracy"

    described = run_json(capsys, "results", files / "runs")
    assert [row["seeds"] for row in described["rows"]] == [[0, 1, 2]] * 2
    first = described["rows"][0]
    assert first["paper"] == {"accuracy.minimum": 0.4, "accuracy.median": 0.505, "accuracy.maximum": None}
    scores = sorted(record["scores"]["test"]["accuracy"] for record in records[:3])
    assert list(first["ours"].values()) == pytest.approx(scores)


def test_chosen_rows_are_printed_alone(capsys, files):
    status, out, _ = train(capsys, files / "table.yaml", "--rows", "sum", "--seeds", 1, "--json")
    assert (status, [row["row"] for row in json.loads(out)["rows"]]) == (0, ["echo, sum"])


def test_a_preset_and_a_task_are_a_table_of_one_row(capsys, files):
    arguments = (files / "preset.yaml", "test/per_step", "--seeds", 1, f"output_dir={files / 'runs'}", "--json")
    status, out, err = train(capsys, *arguments, "training.epochs=1", "options.splits.test.number=3")
    assert status == 0, err
    (record,) = lines(files)
    assert record["epochs"] == 1
    assert record["config"]["model"]["hidden_size"] == 4
    assert sum(number for _, number in record["scores"]["test"]["by_length"]["accuracy"].values()) == 3
    (row,) = json.loads(out)["rows"]
    assert row["task"] == "test/per_step"


def test_what_is_finished_is_not_run_again(capsys, files, monkeypatch):
    """A run that is cut off goes on where it was, and gives the same results as one that was not."""
    jobs = run_module.run_jobs

    def cut_off(*arguments):
        for finished, found in enumerate(jobs(*arguments)):
            if finished == 1:
                raise KeyboardInterrupt
            yield found

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "run_jobs", cut_off)
        assert train(capsys, files / "table.yaml", "--together", 2)[0] == 130
    before = lines(files)
    assert len(before) == 2
    ran = []
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "run_jobs", lambda given, *rest: (ran.extend(given), jobs(given, *rest))[1])
        status, _, err = train(capsys, files / "table.yaml", "--resume")
    assert status == 0
    assert "2 of 6 trials are finished" in err
    assert sum(len(job.configs) for job in ran) == 4
    records = lines(files)
    assert records[:2] == before
    assert len(records) == 6
    assert train(capsys, files / "table.yaml", f"output_dir={files / 'whole'}")[0] == 0
    whole = [json.loads(line) for line in (files / "whole" / RESULTS_FILE).read_text().splitlines()]
    for one, other in zip(whole, records, strict=True):
        assert one["scores"]["test"]["accuracy"] == pytest.approx(other["scores"]["test"]["accuracy"])
    assert train(capsys, files / "table.yaml", "--resume")[0] == 0
    assert lines(files) == records


def test_rows_can_be_run_again(capsys, files):
    assert train(capsys, files / "table.yaml", "--seeds", 1)[0] == 0
    first, second = lines(files)
    assert (
        train(capsys, files / "table.yaml", "--seeds", 1, "--overwrite", "--rows", "sum$", "training.epochs=1")[0] == 0
    )
    kept, changed = lines(files)
    assert kept == first
    assert (second["epochs"], changed["epochs"]) == (2, 1)


def test_results_of_another_configuration_are_not_mixed(capsys, files):
    assert train(capsys, files / "table.yaml", "--seeds", 1)[0] == 0
    before = lines(files)
    for arguments, message in (
        ((), "is not empty: --resume its trials, --overwrite them"),
        (("--resume", "training.epochs=3"), "in which training.epochs was 2; it is 3 now"),
    ):
        status, _, err = train(capsys, files / "table.yaml", "--seeds", 1, *arguments)
        assert status == 2
        assert message in err
        assert err.count("\n") == 1
        assert lines(files) == before


def test_a_broken_line_is_named_and_nothing_is_lost(capsys, files):
    assert train(capsys, files / "table.yaml", "--seeds", 1)[0] == 0
    path = files / "runs" / RESULTS_FILE
    whole = path.read_bytes()
    for broken in ('{"row": "echo, mean", "seed"', '{"row": 3}', "[]", "null", "\udcff"):
        content = whole + broken.encode("utf-8", "surrogateescape") + b"\n"
        path.write_bytes(content)
        for status, out, err in (
            train(capsys, files / "table.yaml", "--seeds", 2, "--resume"),
            run(capsys, "results", files / "runs"),
        ):
            assert (status, out, err.count("\n")) == (2, "", 1)
            assert f"{path}, line 3 is not the result of a trial" in err
            assert path.read_bytes() == content


def test_a_trial_that_diverged_is_a_result(capsys, files):
    assert train(capsys, files / "table.yaml", "--seeds", 1)[0] == 0
    path = files / "runs" / RESULTS_FILE
    first, second = map(json.loads, path.read_text().splitlines())
    first["history"][-1]["loss"] = None  # as training leaves it
    path.write_text("".join(json.dumps(record) + "\n" for record in (first, second)))
    assert ResultsDirectory(files / "runs").records == [first, second]
    assert run(capsys, "results", files / "runs")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hao2018/linear_stack", "reversl"], "task must be one of .*; got 'reversl'; did you mean '.*/reversal'"),
        (
            ["hao2018/linear_stack"],
            "linear_stack is not a table of trials; a preset for tasks needs a task",
        ),
        (
            ["hao2018/linear_stack", "suzgun2019/dyck2"],
            "a StackRNNForTokenClassification does not fit the task 'suzgun2019/dyck2'",
        ),
    ],
)
def test_bad_input(capsys, tmp_path, arguments, message):
    status, out, err = train(capsys, *arguments, f"output_dir={tmp_path / 'runs'}")
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert re.search(message, err), err
    assert not (tmp_path / "runs").exists()


ROW = {"cells": ["one"], "preset": "p", "task": "t"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [ROW] * 2, "columns": ["t"]}, "two rows have the cells 'one'"),
        ({"measures": ["accuracy.mode"]}, "a measure is a score and one of minimum, median"),
        ({"columns": ["task"]}, r"rows\[0\].cells must have 1 entries"),
        ({"columns": ["t"], "rows": [ROW | {"paper": ["x", 1, 2]}]}, r"rows\[0\].paper\[0\] must be a finite"),
    ],
)
def test_a_table_that_is_none(files, change, message):
    values = read_yaml(files / "table.yaml") | change
    with pytest.raises(InputError, match=message):
        Table.build(values)


def test_a_rows_overrides_are_its_own(files):
    values = read_yaml(files / "table.yaml") | {"options": {"splits": {"test": {"number": 3}}}}
    values["rows"][0]["options"] = {"splits": {"test": {"shortest": 4}}}
    values["rows"][0]["training"] = {"epochs": 7}
    table = Table.build(values)
    first, second = (table.config(row) for row in table.rows)
    assert (first.options, first.training.epochs) == ({"splits": {"test": {"number": 3, "shortest": 4}}}, 7)
    assert (second.options, second.training.epochs) == ({"splits": {"test": {"number": 3}}}, 2)


@pytest.mark.parametrize("task", ["strings.csv", "tags.csv", "flare/first"])
def test_what_a_preset_has_for_its_papers_tasks_is_left_out_for_others(capsys, tmp_path, monkeypatch, task):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strings.csv").write_text("string,label\n" + "a b,yes\nb,no\n" * 9)
    (tmp_path / "tags.csv").write_text("input,output\n" + "a b,A B\nb,B\n" * 9)
    table = single_row("flare/lstm", task, ["accuracy"])
    experiment = Experiment(table, output_dir="runs", seeds=1)
    training = experiment.planned[0].config.training
    assert (training.auxiliary is None, training.validation_score is None) == (task != "flare/first", task[0] == "t")
    assert any("flare/lstm's training.auxiliary" in note for note in experiment.notes) == (task != "flare/first")
    if task != "flare/first":  # what is named is not left out
        given = {"training": {"auxiliary": [{"next_symbol": 1.0}]}}
        with pytest.raises(InputError, match="auxiliary needs a language to recognise"):
            Experiment(table, overrides=given, output_dir="runs", seeds=1)


def test_a_slow_memory_is_named(registers):
    table = single_row("suzgun2019/lstm", "suzgun2019/dyck2", ["accuracy"])
    model = {"memory": "registers", "memory_size": 2, "memory_depth": 3}
    notes = Experiment(table, overrides={"model": model}, output_dir="runs", seeds=1).notes
    (note,) = (note for note in notes if "step by step" in note)
    assert "memory='registers' has no compiled block, so it runs step by step in torch" in note
    assert Experiment(table, output_dir="runs", seeds=1).notes == []


def test_another_controller_than_a_presets():
    table = single_row("deletang2023/lstm", "deletang2023/parity_check", ["accuracy"])
    planned = Experiment(table, overrides={"model": {"controller": "gru"}}, output_dir="runs", seeds=1).planned
    assert "forget_bias" not in planned[0].config.model
    assert Experiment(table, output_dir="runs", seeds=1).planned[0].config.model["forget_bias"] == 1.0
    with pytest.raises(InputError, match="forget_bias needs controller='lstm'"):
        changes = {"model": {"controller": "gru", "forget_bias": 1.0}}
        Experiment(table, overrides=changes, output_dir="runs", seeds=1)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("acuracy.median", "acuracy.median: test/per_step has no score 'acuracy'; it has accuracy"),
        ("dev/accuracy.best", "has no split 'dev' to score; it has validation, test"),
    ],
)
def test_a_measure_that_there_is_none_of_is_found_before_training(capsys, files, measure, message):
    values = read_yaml(files / "table.yaml") | {"measures": [measure]}
    (row,) = values["rows"] = values["rows"][:1]
    row["task"], row["paper"] = "test/per_step", []
    (files / "table.yaml").write_text(json.dumps(values))
    status, _, err = train(capsys, files / "table.yaml")
    assert status == 2
    assert message in err
    assert not (files / "runs").exists()


def test_a_table_whose_rows_have_other_numbers(capsys, files):
    """Models are under the numbers of rows."""
    assert train(capsys, files / "table.yaml")[0] == 0
    before = lines(files)
    values = read_yaml(files / "table.yaml")
    first, second = values["rows"]
    for rows, message in (
        ([second, first], "its row 1, 'echo, mean', which is row 2 of this table"),
        ([second], "its row 1, 'echo, mean', which is not in this table"),
    ):
        (files / "other.yaml").write_text(json.dumps(values | {"rows": rows}))
        for way in ("--resume", "--overwrite"):
            status, _, err = train(capsys, files / "other.yaml", way)
            assert status == 2
            assert message in err
    assert lines(files) == before


def test_a_table_of_each_network_on_each_task():
    table = {
        "title": "both",
        "columns": ["class", "task", "network"],
        "measures": ["accuracy.mean"],
        "tasks": [
            {
                "cells": ["R", "one"],
                "task": "t1",
                "paper": {"b": [50.0]},
                "options": {"splits": {"test": {"number": 3}}},
            },
            {"cells": ["CF", "two"], "task": "t2", "training": {"epochs": 3}},
        ],
        "networks": [
            {"cells": ["a"], "preset": "p1", "options": {"splits": {"test": {"longest": 9}}}, "seeds": 2},
            {"cells": ["b"], "preset": "p2", "training": {"epochs": 4}},
        ],
    }
    rows = Table.build(table).rows
    assert [(row.name, row.preset, row.task, row.paper, row.seeds) for row in rows] == [
        ("R, one, a", "p1", "t1", [], 2),
        ("R, one, b", "p2", "t1", [50.0], None),
        ("CF, two, a", "p1", "t2", [], 2),
        ("CF, two, b", "p2", "t2", [], None),
    ]
    assert rows[0].options == {"splits": {"test": {"number": 3, "longest": 9}}}
    assert [row.training for row in rows] == [{}, {"epochs": 4}, {"epochs": 3}, {"epochs": 4}]
    for change, message in [
        (
            {"tasks": [table["tasks"][0] | {"paper": {"c": [1.0]}}]},
            r"tasks\[0\].paper has no network 'c'; they are a; b",
        ),
        ({"tasks": [{"cells": ["R", "one"]}]}, r"the key 'tasks\[0\].task' is missing"),
        ({"networks": [{"cells": ["a"], "presets": "p"}]}, r"unknown key 'networks\[0\].presets'"),
        ({"networks": []}, "networks must be a list of mappings, beside tasks"),
        ({"tasks": 3}, "tasks must be a list of mappings, beside networks"),
    ]:
        with pytest.raises(InputError, match=message):
            Table.build(table | change)


@pytest.mark.gpu
def test_trials_on_a_gpu(capsys, files):
    """As on the CPU, up to rounding; cut off and resumed, too."""
    scores = {}
    for device in ("cpu", "cuda"):
        output = files / device
        arguments = (files / "preset.yaml", "test/per_step", "--seeds", 2, f"output_dir={output}")
        assert train(capsys, *arguments, "--device", device)[0] == 0
        scores[device] = [record["history"][-1]["loss"] for record in ResultsDirectory(output).records]
    assert scores["cuda"] == pytest.approx(scores["cpu"], rel=1e-3)


def test_a_directory_without_results(capsys, tmp_path):
    status, out, err = run(capsys, "results", tmp_path)
    assert (status, out) == (2, "")
    assert "has no results: there is no table.yaml in it" in err
    assert "nowhere has no results: there is no table.yaml in it" in run(capsys, "results", tmp_path / "nowhere")[2]
    (tmp_path / "thesis.tex").write_text("")
    status, _, err = train(capsys, "hao2018/linear_stack", "hao2018/reversal", f"output_dir={tmp_path}", "--overwrite")
    assert status == 2
    assert "is not empty, and has no results of trials" in err


def record(seed, accuracy, nats=None, loss=0.0):
    validation = {} if nats is None else {"validation": {"nats": nats}}
    scores = {"test": {"accuracy": accuracy, "by_length": {}}, **validation}
    return {
        "row": "r",
        "seed": seed,
        "config": {},
        "scores": scores,
        "history": [{"loss": loss, "strings": 1}],
        "seconds": 1.0,
    }


def test_statistics():
    records = [record(0, 0.5, nats=2.0), record(1, 1.0, nats=3.0), record(2, 0.75, nats=1.0), record(3, 0.9, nats=9.0)]
    found = {name: measure(records, f"accuracy.{name}") for name in ("minimum", "median", "maximum", "mean", "best")}
    assert found == pytest.approx({"minimum": 0.5, "median": 0.825, "maximum": 1.0, "mean": 0.7875, "best": 0.75})
    assert (
        measure([record(0, 0.5, loss=2.0), record(1, 0.1, loss=1.0), record(2, 1.0, loss=None)], "accuracy.best") == 0.1
    )
    assert measure([], "accuracy.median") is None
    with pytest.raises(InputError, match="have no test score 'coarse'; they have accuracy"):
        measure(records, "coarse.median")


def test_a_trial_that_is_there_twice(capsys, fixed):
    file = fixed / RESULTS_FILE
    file.write_text(file.read_text() + file.read_text().splitlines()[1] + "\n")
    status, out, err = run(capsys, "results", fixed)
    assert (status, out) == (2, "")
    assert "lines 2 and 4 are of one trial; remove one of them" in err


@pytest.fixture
def fixed(tmp_path):
    """Results as trials would leave them."""
    rows = [
        {"cells": ["odd & even", "yes"], "preset": "p", "task": "t", "paper": [49.3, 100.0]},
        {"cells": ["none", "no"], "preset": "p", "task": "t"},
    ]
    table = Table.build(
        {
            "title": "A paper's table, in %",
            "columns": ["task", "stack"],
            "measures": ["accuracy.minimum", "accuracy.median"],
            "seeds": 3,
            "output_dir": str(tmp_path),
            "rows": rows,
            "note": "A note.",
        }
    )
    results = ResultsDirectory(tmp_path)
    with results.open():
        results.begin(table)
        for seed, accuracy in enumerate((0.5, 0.999, 1.0)):
            results.add([record(seed, accuracy) | {"row": "odd & even, yes"}])
    return tmp_path


AS_MARKDOWN = """A paper's table, in %

| task | stack | paper min | paper med | ours min | ours med | seeds |
|---|---|--:|--:|--:|--:|--:|
| odd & even | yes | 49.3 | 100.0 | 50.0 | 99.9 | 3 |
| none | no |  |  |  |  | 0 of 3 |

A note.
"""
AS_LATEX = r"""\begin{table}
\centering
\caption{A paper's table, in \% A note.}
\begin{tabular}{llrrrrr}
\hline
task & stack & paper min & paper med & ours min & ours med & seeds \\
\hline
odd \& even & yes & 49.3 & 100.0 & 50.0 & 99.9 & 3 \\
none & no &  &  &  &  & 0 of 3 \\
\hline
\end{tabular}
\end{table}
"""


AS_CSV = """task,stack,paper min,paper med,ours min,ours med,seeds
odd & even,yes,49.3,100.0,50.0,99.9,3
none,no,,,,,0 of 3
"""


@pytest.mark.parametrize(("form", "expected"), [("markdown", AS_MARKDOWN), ("latex", AS_LATEX), ("csv", AS_CSV)])
def test_a_table_in_other_forms(capsys, fixed, form, expected):
    assert run(capsys, "results", fixed, "--format", form)[1] == expected


def test_nats_are_no_percentages(capsys, tmp_path):
    row = {"cells": ["one"], "preset": "p", "task": "t", "paper": [1.25, 50.0]}
    measures = ["validation/nats.median", "accuracy.median"]
    table = {"title": "T", "columns": ["row"], "measures": measures, "rows": [row], "seeds": 1, "decimals": 2}
    results = ResultsDirectory(tmp_path)
    with results.open():
        results.begin(Table.build(table | {"output_dir": str(tmp_path)}))
        results.add([record(0, 0.5, nats=1.5) | {"row": "one"}])
    assert "| one | 1.25 | 50.00 | 1.50 | 50.00 | 1 |" in run(capsys, "results", tmp_path, "--format", "markdown")[1]
    (line,) = json.loads(run(capsys, "results", tmp_path, "--json")[1])["rows"]
    assert line["paper"] == dict(zip(measures, (1.25, 0.5), strict=True))
    assert single_row("dusell2020/lstm", "dusell2020/dyck", ["nats"]).decimals == 3


LARGE = ("flare/languages", "deletang2023/hierarchy")
cached_config = functools.cache(read_config)  # the rows of a table have few presets


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in table_names()]
)
def test_every_table_is_of_presets_and_tasks_that_fit(name, monkeypatch):
    """Each row's model is made; the paper's numbers are fractions or percentages."""
    monkeypatch.setattr(config_module, "read_config", lambda preset: copy.deepcopy(cached_config(preset)))
    table = load_table(name)
    assert table.output_dir
    experiment = Experiment(table, output_dir="nowhere")
    assert len(experiment.planned) == sum(table.number_of_seeds(row) for row in table.rows)
    for row in table.rows:
        assert make_task(row.task).name == row.task
        for value in row.paper:
            assert value is None or 0 <= value <= (100 if table.percent else 10)


@pytest.mark.slow
def test_workers_give_the_same_results_and_outlive_no_kill(files):
    """Two workers; the parent is killed, which ends them; the rest is run with --resume."""
    command = [sys.executable, str(RECIPE), "hao2018/linear_stack", "hao2018/reversal", "--jobs", "2", "--seeds", "6"]
    command.append(f"output_dir={files / 'runs'}")
    path = files / "runs" / RESULTS_FILE
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        children = set()
        while not path.is_file():
            time.sleep(0.02)
            listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            children |= set(listed.read_text().split()) if listed.is_file() else set()
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "workers are still there"
        time.sleep(0.1)
    before = path.read_text()
    assert subprocess.run([*command, "--resume"], capture_output=True, check=False).returncode == 0
    assert path.read_text().startswith(before)
    records = {record["seed"]: record["scores"] for record in lines(files)}
    assert sorted(records) == list(range(6))

    def alone():
        Experiment(
            load_table("hao2018/linear_stack", "hao2018/reversal"), output_dir=str(files / "alone"), seeds=6
        ).run()

    assert run_command("test", alone) == 0
    for record in ResultsDirectory(files / "alone").records:
        assert records[record["seed"]] == record["scores"]
