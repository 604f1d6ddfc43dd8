"""The benchmarks run, and print what they say they do; how fast anything is no test says."""

import importlib.util
import json
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_agreement(capsys, tmp_path):
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
