"""The benchmarks run, and say what they measured; how fast anything is, no test asserts."""

import importlib
import json
import math
import subprocess
import sys
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
import torch

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


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system keeps no high-water mark")
@pytest.mark.slow
def test_peak_memory_is_what_a_run_held_at_once(load):
    timing = load("timing")

    def pages():
        """Of the system, not of what earlier tests freed."""
        size = 64 * 2**20
        held = np.frombuffer(mmap(-1, size), np.uint8)
        held[:] = 1
        return held

    def one_after_the_other():
        for _ in range(3):
            pages()

    def at_once():
        return [pages() for _ in range(3)]

    assert timing.peak_memory(one_after_the_other, CPU) == pytest.approx(64, abs=4)
    assert timing.peak_memory(at_once, CPU) == pytest.approx(192, abs=4)


def test_presets_are_what_is_measured(load):
    models = load("models")
    names = ("u1", "d1", "queue", "deque", "lstm", "d=0.02")
    configs = {name: models.Size(name, hidden=9, element=4, embedding=6).config() for name in names}
    memories = ["stack", "stack", "queue", "deque", "none", "stack"]
    assert [config.memory for config in configs.values()] == memories
    assert (configs["u1"].pop_control, configs["u1"].push_control) == (1.0, "expected_value")
    assert (configs["d1"].pop_control, configs["d1"].push_control) == ("expected_value", 1.0)
    assert (configs["d=0.02"].push_control, configs["d=0.02"].pop_control) == (0.02, 0.01)
    assert [(c.embedding_size, c.hidden_size) for c in configs.values()] == [(6, 9)] * len(names)
    assert configs["deque"].memory_size == 4


def test_a_function_runs_in_a_fresh_process(load):
    assert load("timing").in_fresh_process(math.hypot, 3, 4) == 5


def test_targets_are_compared_with_what_was_measured(load):
    args = type("Options", (), {"quick": False, "device": CPU})
    cell = {"preset": "u1", "batch": 32, "T": 64, "H": 100, "m": 16, "pass": "forward + backward", "scan/lstm": 1.6}
    tables = [
        {"name": "cell", "rows": [cell, cell | {"pass": "forward"}, cell | {"H": 650, "scan/lstm": 1.2}]},
        {"name": "length", "rows": [{"T": 256, "scan_alone_us/token": 2.0}, {"T": 4096, "scan_alone_us/token": 2.8}]},
        {"name": "memory", "rows": [{"T": 256}, {"T": 4096}]},
    ]
    scan = load("scan")
    rows = scan.summarize(tables, args)["rows"]
    assert [(row["measured"], row["target"], row["met"]) for row in rows] == [
        (1.6, "<= 1.5", "no"),
        (1.2, "<= 1.3", "yes"),
        (1.4, "<= 1.3", "no"),
    ]
    assert scan.summarize(tables[2:], args) is None


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


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot read"), ("{", "is not JSON"), ("[]", "is not a result of a benchmark")],
)
def test_files_that_are_no_results(load, tmp_path, capsys, text, message):
    path = tmp_path / "result.json"
    if text is not None:
        path.write_text(text)
    for arguments in ([str(path), str(tmp_path / "figure.png")],):
        assert load("plot").main(arguments) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "figure.png").exists()


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


@pytest.mark.slow
def test_memories(load, capsys, monkeypatch):
    module = load("memories")
    for name, small in (
        ("SENTENCES", {"length": 2}),
        ("STRINGS", {"length": 2, "cells": 6}),
        ("LAYERS", {"length": 2}),
    ):
        monkeypatch.setattr(module, name, getattr(module, name) | small)
    monkeypatch.setattr(module, "UPDATES", [(name, (2,), 3, sizes) for name, _, _, sizes in module.UPDATES])
    assert module.main(["--rounds", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    kinds = [row["kind"] for row in result["sentences"]["results"]]
    assert {"stack", "queue", "deque", "superposition", "nn.LSTM"} <= set(kinds)
    assert {row["kind"] for row in result["layers"]["results"]} == {"nn.LSTM", "StackRNN, no memory", *module.MEMORIES}
    for part in ("sentences", "strings", "layers", "updates"):
        for row in result[part]["results"]:
            assert row["microseconds"] > 0
            assert "speedup" in row or row["kind"].startswith(("nn.", "StackRNN"))
    assert module.main(["--rounds", "1"]) == 0
    assert "nn.RNN" in capsys.readouterr().out


@pytest.mark.slow
def test_seeds(load, tmp_path, monkeypatch):
    module = load("seeds")
    monkeypatch.setattr(module, "UPDATES", [(name, batches, 3, sizes) for name, batches, _, sizes in module.UPDATES])
    monkeypatch.setattr(module, "SEEDS", (2,))
    monkeypatch.setattr(module, "AIMED_SEEDS", 2)
    path = tmp_path / "seeds.json"
    assert module.main(["--quick", "--threads", "1", "--json", str(path)]) == 0
    (table,) = json.loads(path.read_text())["tables"]
    assert [row["seeds"] for row in table["rows"]] == [1, 2] * len(module.PRESETS)
    for row in table["rows"]:
        assert 0 < row["compiled"] < 1
        known = row["vmap_of_the_reference,_us"] is not None
        assert known == (row["preset"].startswith("hao2018") and row["seeds"] == 2)


@pytest.mark.slow  # whole trials
def test_trials(load, tmp_path, monkeypatch):
    module = load("trials")
    monkeypatch.setitem(module.TASKS, "flare", (["flare/lstm"], "flare/dyck_2_3"))
    monkeypatch.setattr(module, "SEEDS", (1, 2))
    path = tmp_path / "trials.json"
    assert module.main(["--quick", "--threads", "1", "--only", "flare", "--json", str(path)]) == 0
    (table,) = json.loads(path.read_text())["tables"]
    assert [row["seeds"] for row in table["rows"]] == [1, 2]
    for row in table["rows"]:
        assert row["epoch, s a seed"] == pytest.approx(row["update, ms a seed"] * 156 / 1000)  # 10,000 strings


@pytest.mark.slow  # the way of einsum takes seconds
def test_nondeterministic(load, tmp_path, monkeypatch, capsys):
    module = load("nondeterministic")
    monkeypatch.setattr(module, "VOCABULARY", 20)
    monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(module, "TOKENS", 3)
    monkeypatch.setattr(module, "in_fresh_process", lambda function, *arguments: function(*arguments))
    path = tmp_path / "nondeterministic.json"
    chosen = ["cell", *module.GROWTH, "update"]
    assert module.main(["--quick", "--threads", "1", "--only", *chosen, "--json", str(path)]) == 0
    tables = {table["name"]: table["rows"] for table in json.loads(path.read_text())["tables"]}
    assert list(tables) == chosen
    assert all(row["ms"] > 0 for letter in module.GROWTH for row in tables[letter])
    assert [row["D"] for row in tables["D"]] == [5, 10]
    assert [row["memory"] for row in tables["update"]] == ["none", "RNS 2-3", "VRNS 1-1-32"]
    pytest.importorskip("matplotlib")
    assert load("plot").main([str(path), str(tmp_path / "figure.png")]) == 0
    monkeypatch.setitem(sys.modules, "torch_semiring_einsum", None)
    capsys.readouterr()
    assert module.main(["--quick", "--threads", "1", "--only", "einsum"]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "pip install --no-deps torch_semiring_einsum" in error


@pytest.mark.slow
def test_stack_attention(load, tmp_path, monkeypatch):
    module, path = load("stack_attention"), tmp_path / "stack_attention.json"
    monkeypatch.setattr(module, "in_fresh_process", lambda function, *arguments: function(*arguments))
    assert module.main(["--quick", "--threads", "1", "--json", str(path)]) == 0
    (table,) = json.loads(path.read_text())["tables"]
    assert [row["layer"] for row in table["rows"]] == list(module.LAYERS)
    assert table["rows"][0]["to_attention"] == 1
    assert all(row["ms"] > 0 for row in table["rows"])


def test_targets_of_stack_attention(load):
    module = load("stack_attention")
    ratios = zip(module.LAYERS, (1, 9, 1.5, 2.5, 9), strict=True)
    rows = [{"T": 512, "layer": name, "to_attention": ratio} for name, ratio in ratios]
    targets = module.summarize([{"rows": rows}], None)["rows"]
    assert [(row["measured"], row["met"]) for row in targets] == [(1.5, "yes"), (2.5, "no")]


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


def test_targets_of_nondeterministic_stacks(load):
    args = type("Options", (), {"quick": False})
    einsum = [{"stack": "RNS 2-3", "n": n, "einsum/compiled": figure} for n, figure in ((40, 31.0), (80, 29.0))]
    update = [{"memory": "none", "to_none": 1.0}, {"memory": "RNS 2-3", "to_none": 2.0}]
    tables = [{"name": "einsum", "rows": einsum}, {"name": "update", "rows": update}]
    rows = load("nondeterministic").summarize(tables, args)["rows"]
    assert [(row["measured"], row["target"], row["met"]) for row in rows] == [
        (31.0, ">= 30", "yes"),
        (29.0, ">= 30", "no"),
        (2.0, "<= 3", "yes"),
    ]


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


def test_targets_of_training(load):
    args = type("Options", (), {"quick": False})
    busy = [
        {"neighbours": "none", "threads": "auto", "to_quiet,_auto": 1.0, "to_one_thread": 1.3},
        {"neighbours": "1", "threads": "auto", "to_quiet,_auto": 0.3, "to_one_thread": 0.95},
        {"neighbours": "1", "threads": "2", "to_quiet,_auto": 0.1, "to_one_thread": 0.2},
    ]
    tables = [{"name": "loop", "rows": [{"threads": 1, "bare/loop": 0.97}]}, {"name": "busy", "rows": busy}]
    rows = load("training").summarize(tables, args)["rows"]
    assert [(row["measured"], row["target"], row["met"]) for row in rows] == [
        (0.97, ">= 0.9", "yes"),
        (1.3, ">= 0.9", "yes"),
        (0.3, ">= 0.4", "no"),
        (0.95, ">= 0.9", "yes"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["scan.py", "loss.py"])
def test_a_quick_run_of_everything(tmp_path, script):
    result = run(script, "--quick", "--threads", 1, "--json", tmp_path / "result.json")
    assert result.returncode == 0, result.stderr
    figure = run("plot.py", tmp_path / "result.json", tmp_path / "figure.png")
    assert figure.returncode == 0, figure.stderr


@pytest.mark.slow
def test_a_quick_run_beside_a_busy_neighbour():
    result = run("training.py", "--quick", "--threads", 1, "--only", "busy")
    assert result.returncode == 0, result.stderr
    assert "neighbours" in result.stdout
