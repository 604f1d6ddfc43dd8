"""The benchmarks run, and say what they measured; how fast anything is, no test asserts."""

import importlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import REAL_DATA, needs_real_data

FOLDER = Path(__file__).parents[2] / "benchmarks"
CPU = torch.device("cpu")


@pytest.fixture
def load(monkeypatch):
    """Modules of the benchmarks, which import each other as scripts in one folder do."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = {path.stem for path in FOLDER.glob("*.py")}
    yield importlib.import_module
    for name in names:
        sys.modules.pop(name, None)


def run(script, *arguments):
    command = [sys.executable, str(FOLDER / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_runs_alternate_and_the_first_round_does_not_count(load):
    timing = load("timing")
    order = []
    runs = {name: lambda name=name: order.append(name) for name in "abc"}
    times = timing.alternate(runs, seconds=0, device=CPU, min_rounds=3, max_rounds=9)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    for time in times.values():
        assert time.rounds == 3
        assert 0 < time.minimum <= time.median
    times = timing.alternate({"a": lambda: None}, seconds=60, device=CPU, max_rounds=5)
    assert times["a"].rounds == 5


def test_a_function_runs_in_a_fresh_process(load):
    assert load("timing").in_fresh_process(math.hypot, 3, 4) == 5


def test_results_are_read_printed_and_drawn(load, tmp_path, capsys):
    rows = [{"T": t, "lstm_us/token": 1.0, "scan_us/token": 1.25, "scan/lstm": 1.25} for t in (64, 128)]
    rows[0]["reference_us/token"] = 1234.5
    where = {"device": "a processor", "threads": 2, "torch": "2", "python": "3", "quick": False}
    table = {"name": "length", "title": "Per token", "caption": "Below.", "rows": rows}
    other = {"name": "batch", "title": "Batch", "caption": "", "rows": [{"batch": 1, "scan/lstm": 2.0}]}
    path = tmp_path / "scan.json"
    path.write_text(json.dumps({"benchmark": "scan", "environment": where, "tables": [table, other]}))
    scan, plot = load("scan"), load("plot")
    assert scan.main(["--from", str(path), "--markdown", "--only", "length"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        "**Per token**",
        "",
        "| T | lstm us/token | scan us/token | scan/lstm | reference us/token |",
        "|---|---|---|---|---|",
        "| 64 | 1.00 | 1.25 | 1.25 | 1234.50 |",
        "| 128 | 1.00 | 1.25 | 1.25 |  |",
        "",
        "Below.",
        "",
        "Measured on a processor, 2 thread(s), torch 2, Python 3.",
    ]
    pytest.importorskip("matplotlib")
    assert plot.main([str(path), str(tmp_path / "figure.png")]) == 0
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert load("loss").main(["--from", str(path)]) == 2
    assert "is a result of benchmarks/scan.py, not of loss.py" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["loss", "nondeterministic", "scan", "seeds", "stack_attention", "training", "trials"])
def test_a_device_that_is_not_there(load, capsys, name):
    assert [load(name).main(["--device", device]) for device in ("cuda:99", "meta", "nonesuch")] == [2, 2, 2]
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert all(line.startswith(f"benchmarks/{name}.py: error: --device") for line in errors)


@pytest.mark.slow
def test_a_quick_run_of_the_cell(load, tmp_path, capsys):
    path = tmp_path / "scan.json"
    assert load("scan").main(["--quick", "--only", "cell", "strength", "--json", str(path)]) == 0
    assert "The cell, against nn.LSTM of the same size" in capsys.readouterr().out
    written = json.loads(path.read_text())
    assert written["environment"]["quick"]
    assert [table["name"] for table in written["tables"]] == ["cell", "strength"]
    assert {row["pass"] for row in written["tables"][0]["rows"]} == {"forward", "forward + backward"}


# Sizes and options with which a benchmark runs in seconds.
QUICK = {
    "memories": (
        ["--rounds", "1"],
        {"SENTENCES": {"length": 2}, "STRINGS": {"length": 2, "cells": 6}, "LAYERS": {"length": 2}},
    ),
    "seeds": (["--quick", "--threads", "1"], {"SEEDS": (2,), "AIMED_SEEDS": 2}),
    "trials": (["--quick", "--threads", "1", "--only", "flare"], {"SEEDS": (1, 2)}),
    "nondeterministic": (
        ["--quick", "--threads", "1", "--only", "cell", "update"],
        {"VOCABULARY": 20, "BATCH": 2, "TOKENS": 3},
    ),
    "stack_attention": (["--quick", "--threads", "1"], {}),
    "own_memory": (["--memory", "deltanet", "--batch", "1", "--length", "2", "--seconds", "1"], {}),
    "learning": (["--task", "dyck", "--seeds", "1", "--updates", "4"], {}),
    "library_models": (["--types", "gpt2", "bert-like", "--batch", "1", "--length", "4", "--seconds", "1"], {}),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch.compile's, of its own look at inputs
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_run(load, capsys, monkeypatch, name):
    module, (options, settings) = load(name), QUICK[name]
    for key, value in settings.items():
        monkeypatch.setattr(module, key, getattr(module, key) | value if isinstance(value, dict) else value)
    if hasattr(module, "UPDATES"):
        fewer = [(kind, batches, 3, sizes) for kind, batches, _, sizes in module.UPDATES]
        monkeypatch.setattr(module, "UPDATES", fewer)
    if name == "trials":
        monkeypatch.setitem(module.TASKS, "flare", (["flare/lstm"], "flare/dyck_2_3"))
    monkeypatch.setattr(module, "in_fresh_process", lambda function, *values: function(*values), raising=False)
    assert module.main(options) == 0
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_einsum_computes_the_same_stack(load):
    pytest.importorskip("torch_semiring_einsum")
    module, einsum = load("nondeterministic"), load("einsum_stack")
    cell, inputs = module.cell_and_inputs(module.Size(batch=2, length=6), CPU)
    found = []
    for each in (cell, einsum.einsum_cell(cell)):
        scan = each.scan(inputs, output_readings=True)
        (gradient,) = torch.autograd.grad(scan.outputs.square().sum(), inputs)
        found.append((scan.readings, gradient))
    torch.testing.assert_close(*found, atol=1e-4, rtol=0)


def test_agreement(load, capsys, tmp_path):
    (tmp_path / "a.text").write_text("the dogs near the cat sleep . <eos>\na cat is . <eos>\n")
    (tmp_path / "a.gold").write_text("5\tsleep\tsleeps\t1\n2\tis\tare\t0\n")
    command = ["--data", str(tmp_path), "--format", "linzen-gulordava"]
    assert load("agreement").main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["in batches"]["items_per_second"] > 0
    assert result["one at a time"]["items_per_cpu_second"] > 0
    assert load("agreement").main([*command, "--memory", "none"]) == 0
    assert "times as many a second in batches" in capsys.readouterr().out
    assert load("agreement").main(["--data", str(tmp_path / "none"), "--format", "linzen-gulordava"]) == 2


def test_training(load, tmp_path):
    module = load("training")
    module.write_corpus(tmp_path / "corpus.txt", 2000)
    lengths = [len(line.split()) for line in (tmp_path / "corpus.txt").read_text().splitlines()]
    assert sum(lengths) / len(lengths) == pytest.approx(20, rel=0.1)
    path = tmp_path / "training.json"
    assert module.main(["--quick", "--only", "loop", "optimizers", "--threads", "1", "--json", str(path)]) == 0
    (row,), optimizers = (table["rows"] for table in json.loads(path.read_text())["tables"])
    assert all(optimizer["ms"] > 0 for optimizer in optimizers)
    assert row["threads"] == 1
    assert row["bare_us/token"] > 0
    assert row["loop_us/token"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("script", ["scan.py", "loss.py"])
def test_a_quick_run_of_everything(tmp_path, script):
    result = run(script, "--quick", "--threads", 1, "--json", tmp_path / "result.json")
    assert result.returncode == 0, result.stderr
    figure = run("plot.py", tmp_path / "result.json", tmp_path / "figure.png")
    assert figure.returncode == 0, figure.stderr


@needs_real_data
@pytest.mark.slow
def test_reading_times_are_those_of_the_page():
    """On a part of the page's table: the words depend on what all its models know."""
    pytest.importorskip("statsmodels")
    root = FOLDER.parent
    page = (root / "docs" / "reading_times.md").read_text()
    models = [str(root / "models" / f"wikipedia-{name}") for name in ("base", "free", "u1", "lstm")]
    counts = root / "models" / "wikipedia-base" / "word_counts.tsv"
    result = run("reading_times.py", REAL_DATA / "reading", *models, "--counts", counts)
    assert result.returncode == 0, result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("| wikipedia")]
    assert len(rows) == 11
    assert [row for row in rows if row not in page] == []
    assert f"The {result.stdout.split()[0]} words" in page


def test_the_checks_on_a_gpu_take_eight_minutes_at_most():
    """Even if every part hangs until it is killed."""
    script = FOLDER / "gpu_check.sh"
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    text = script.read_text()
    begin, kill = max((int(limit), int(kill)) for kill, limit in re.findall(r"timeout -k (\d+) (\d+)", text))
    parts = [line.split() for line in text.splitlines() if line.strip().startswith("part ")]
    sizes = 3  # of the loop over hidden sizes
    limits = [(int(words[1]) + kill) * (sizes if '"scan' in words else 1) for words in parts]
    assert sum(limits) - 2 * (60 + kill) + begin + kill < 8 * 60  # without the two parts of the quick run


@pytest.mark.parametrize(
    ("python", "message"), [("/none/python", "/none/python: "), (sys.executable, "torch sees no GPU")]
)
def test_the_checks_on_a_gpu_say_what_is_missing(python, message, tmp_path):
    environment = {**os.environ, "PYTHON": python, "CUDA_VISIBLE_DEVICES": ""}
    command = ["sh", (FOLDER / "gpu_check.sh").resolve(), "out.txt"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert (tmp_path / "out.txt").is_file()


def test_answers_of_reversal_and_dyck(load):
    learning = load("learning")
    ids, labels = learning.reversal(4)
    assert torch.equal(labels[:, 4:], ids[:, :4].flip(1))
    assert (ids[:, 4] == 6).all()
    assert (labels[:, :4] == -100).all()
    ids, labels = learning.dyck(9)
    for row, answers in zip(ids[:3].tolist(), labels[:3].tolist(), strict=True):
        text = "".join("([{)]}"[symbol] for symbol in row)
        for step, answer in enumerate(answers):
            rest = text[: step + 1]
            for _ in range(4):
                rest = rest.replace("()", "").replace("[]", "").replace("{}", "")
            assert answer == ("([{".index(rest[-1]) if rest else -100)
        assert rest == ""
