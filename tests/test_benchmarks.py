"""The benchmarks run, and say what they measured; how fast is not tested."""

import importlib.util
import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_memories(capsys, monkeypatch):
    module = load("memories")
    for name, small in (("SENTENCES", {"length": 2}), ("STRINGS", {"length": 2, "cells": 6})):
        monkeypatch.setattr(module, name, getattr(module, name) | small)
    assert module.main(["--rounds", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    kinds = [row["kind"] for row in result["sentences"]["results"]]
    assert {"stack", "queue", "deque", "superposition", "plain LSTM, torch's kernel"} <= set(kinds)
    assert all(row["microseconds"] > 0 for part in ("sentences", "strings") for row in result[part]["results"])
    assert module.main(["--rounds", "1"]) == 0
    assert "RNNCell" in capsys.readouterr().out
