"""Saved results, chosen rows, and a table as a matrix."""

import json

import pytest
from conftest import run, run_json

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task, task_names
from stack_lm.tasks.hierarchy import LEVELS, level_of
from stack_lm.training.trials.config import Table
from stack_lm.training.trials.matrix import make_matrix, split_cells
from stack_lm.training.trials.results import ResultsDirectory

CELLS = {
    ("copy", "RNN"): "deletang2023/duplicate_string",
    ("copy", "LSTM"): "deletang2023/duplicate_string",
    ("parity", "RNN"): "deletang2023/parity_check",
    ("parity", "LSTM"): "deletang2023/parity_check",
    ("own", "RNN"): "own/task",
}


def record(row, seed, accuracy):
    return {
        "row": row,
        "seed": seed,
        "config": {"task": "t"},
        "scores": {"test": {"accuracy": accuracy, "by_length": {"accuracy": {"3": [accuracy, 2], "5": [accuracy, 2]}}}},
        "history": [{"epoch": 1, "strings": 10, "loss": 0.5}],
        "seconds": 1.0,
    }


def write(path, cells=CELLS, scores=None, **changes):
    """A run with two seeds of each row; `scores` by the name of the row."""
    table = Table.build(
        {
            "title": "A table, in %",
            "columns": ["task", "model"],
            "measures": ["accuracy.mean", "accuracy.maximum"],
            "seeds": 2,
            "output_dir": str(path),
            "rows": [{"cells": list(names), "preset": "p", "task": task} for names, task in cells.items()],
            **changes,
        }
    )
    results = ResultsDirectory(path)
    with results.open():
        results.begin(table)
        for row in table.rows:
            for seed, accuracy in enumerate((scores or {}).get(row.name, [0.5, 0.75])):
                results.add([record(row.name, seed, accuracy)])
    return path


@pytest.fixture
def first(tmp_path):
    return write(tmp_path / "a", scores={"copy, LSTM": [], "parity, LSTM": [1.0, 0.9]})


MATRIX = """A table, in % (mean)

| task | RNN | LSTM |
|---|--:|--:|
| **regular** |  |  |
| parity | 62.5 | 95.0 |
| **context-sensitive** |  |  |
| copy | 62.5 |  |
| **other tasks** |  |  |
| own | 62.5 |  |

8 of 10 trials are finished.
"""


def test_a_matrix(capsys, first):
    out = run(capsys, "results", first, "--matrix", "--format", "markdown")[1]
    assert out.startswith(MATRIX)
    assert "A table, in % (max)" in out
    latex = run(capsys, "results", first, "--matrix", "--format", "latex")[1]
    assert "\\multicolumn{3}{l}{\\textit{context-sensitive}} \\\\\ncopy & 62.5 &  \\\\" in latex
    assert "context-sensitive" in run(capsys, "results", first, "--matrix")[1]
    assert run(capsys, "results", first, "--matrix", "--format", "csv")[::2] == (
        2,
        "stack-lm: error: --matrix prints 2 tables, one for each measure; --format csv prints one\n",
    )
    found = run_json(capsys, "results", first, "--matrix")
    assert found["networks"] == ["RNN", "LSTM"]
    assert found["levels"] == {"regular": ["parity"], "context-sensitive": ["copy"], "other tasks": ["own"]}
    assert found["cells"][1] == {
        "level": "regular",
        "task": "parity",
        "network": "LSTM",
        "accuracy.mean": 0.95,
        "accuracy.maximum": 1.0,
        "seeds": [0, 1],
    }
    assert len(found["cells"]) == 5


def test_a_table_that_is_no_matrix(tmp_path):
    table = {"title": "T", "columns": ["model"], "measures": ["accuracy.mean"]}
    rows = [{"cells": ["RNN"], "preset": "p", "task": "t"}]
    with pytest.raises(InputError, match="a matrix has columns of tasks and of networks"):
        make_matrix(Table.build(table | {"rows": rows}))


def test_cells_that_say_yes_or_no_have_the_name_of_their_column():
    table = {"title": "T", "columns": ["task", "controller", "stack"], "measures": ["accuracy.mean"]}
    rows = [{"cells": ["xor", "LSTM", "no"], "preset": "p", "task": "t"}]
    assert split_cells(Table.build(table | {"rows": rows})) == [("xor", "LSTM, stack: no")]


def test_a_column_about_tasks_names_no_network():
    rows = [("R", "parity", "RNN"), ("R", "parity", "LSTM"), ("CS", "copy", "RNN"), ("CS", "copy", "LSTM")]
    values = {"title": "t", "measures": ["accuracy.mean"]}
    values["rows"] = [{"cells": list(cells), "preset": "p", "task": "t"} for cells in rows]
    table = Table.build({**values, "columns": ["class", "language", "model"]})
    assert make_matrix(table).networks == ["RNN", "LSTM"]
    # The same cells, whose first column is not before that of tasks.
    table = Table.build({**values, "columns": ["language", "class", "model"]})
    assert make_matrix(table).networks == ["parity, RNN", "parity, LSTM", "copy, RNN", "copy, LSTM"]
    # Networks before tasks, and one network alone.
    values["rows"] = [{"cells": [net, task], "preset": "p", "task": "t"} for net in ("RNN", "LSTM") for task in "ab"]
    assert make_matrix(Table.build({**values, "columns": ["model", "task"]})).networks == ["RNN", "LSTM"]
    values["rows"] = values["rows"][:2]
    assert make_matrix(Table.build({**values, "columns": ["model", "task"]})).networks == ["RNN"]


def test_levels_are_of_tasks_that_there_are():
    from stack_lm.tasks import hierarchy

    assert set(hierarchy._LEVEL_OF) <= set(task_names())
    for name in task_names():
        if name.startswith(("deletang2023/", "flare/", "dusell2020/", "dusell2023/")):
            assert level_of(name) in LEVELS, name
    assert level_of("own/task") == ""
    assert make_task("flare/first").paper == "Butoi et al. 2025"


def test_saved_results_print_the_same_table_and_merge_with_more(capsys, first, tmp_path):
    printed = run(capsys, "results", first, "--format", "markdown")[1]
    saved = tmp_path / "saved"
    assert run(capsys, "results", first, "--output", saved, "--format", "markdown")[:2] == (0, printed)
    assert run(capsys, "results", saved, "--format", "markdown")[:2] == (0, printed)
    assert sorted(path.name for path in saved.iterdir() if not path.name.startswith(".")) == [
        "results.jsonl",
        "table.yaml",
    ]
    assert json.loads((saved / "results.jsonl").read_text().splitlines()[0])["scores"]["test"]["by_length"] == {}
    assert str(tmp_path) not in (saved / "table.yaml").read_text()
    # Trials of both are the same; then the run goes on, and what was saved takes up the new ones.
    assert run(capsys, "results", saved, first, "--format", "markdown")[:2] == (0, printed)
    results = ResultsDirectory(first)
    with results.open():
        results.add([record("copy, LSTM", 0, 0.875)])
    assert run(capsys, "results", saved, first, "--output", saved)[0] == 0
    assert len(ResultsDirectory(saved).records) == len(results.records)


def test_saved_results_are_not_lost(capsys, first, tmp_path):
    saved = tmp_path / "saved"
    run(capsys, "results", first, "--output", saved)
    other = write(tmp_path / "other", scores={"copy, RNN": []})
    status, _, err = run(capsys, "results", other, "--output", saved)
    assert status == 2
    assert "saved has seed 0 of 'copy, RNN', which the given directories lack" in err
    assert len(ResultsDirectory(saved).records) == len(ResultsDirectory(first).records)


def test_chosen_rows_alone(capsys, first):
    printed = run(capsys, "results", first, "--rows", "^parity", "--format", "markdown")[1]
    assert [line.split(" | ")[:2] for line in printed.splitlines() if line.startswith("| parity")] == [
        ["| parity", "RNN"],
        ["| parity", "LSTM"],
    ]
    assert "copy" not in printed
    matrix = run_json(capsys, "results", first, "--matrix", "--rows", "^parity")
    assert {cell["task"] for cell in matrix["cells"]} == {"parity"}
    status, _, err = run(capsys, "results", first, "--rows", "^nothing")
    assert (status, "no row matches '^nothing'" in err) == (2, True)
