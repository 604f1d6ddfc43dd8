"""Two runs side by side, and a table as a matrix."""

import json

import pytest
from conftest import run, run_json

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task, task_names
from stack_lm.tasks.hierarchy import LEVELS, level_of
from stack_lm.training.trials.config import Table, single_row
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


@pytest.fixture
def second(tmp_path):
    cells = {names: task for names, task in CELLS.items() if names != ("own", "RNN")} | {("more", "RNN"): "x"}
    return write(tmp_path / "b", cells, {"parity, RNN": [0.25], "parity, LSTM": [1.0, 1.0]})


COMPARED = """A table, in %

| task | model | a mean | b mean | difference mean | a max | b max | difference max | seeds |
|---|---|--:|--:|--:|--:|--:|--:|--:|
| copy | RNN | 62.5 | 62.5 | +0.0 | 75.0 | 75.0 | +0.0 | 2 |
| copy | LSTM |  | 62.5 |  |  | 75.0 |  | 0 and 2 |
| parity | RNN | 62.5 | 25.0 | -37.5 | 75.0 | 25.0 | -50.0 | 2 and 1 |
| parity | LSTM | 95.0 | 100.0 | +5.0 | 100.0 | 100.0 | +0.0 | 2 |

The difference is b minus a. Only in a: own, RNN. Only in b: more, RNN.
"""


def test_two_runs_side_by_side(capsys, first, second):
    assert run(capsys, "results", first, "--against", second, "--format", "markdown")[1] == COMPARED
    latex = run(capsys, "results", first, "--against", second, "--format", "latex")[1]
    assert r"parity & RNN & 62.5 & 25.0 & -37.5 & 75.0 & 25.0 & -50.0 & 2 and 1 \\" in latex
    text = run(capsys, "results", first, "--against", second)[1]
    assert "-37.5" in text
    found = run_json(capsys, "results", first, "--against", second)
    assert [row["row"] for row in found["rows"]] == ["copy, RNN", "copy, LSTM", "parity, RNN", "parity, LSTM"]
    row = found["rows"][2]
    assert row["first"] == {"accuracy.mean": 0.625, "accuracy.maximum": 0.75}
    assert row["difference"] == {"accuracy.mean": -0.375, "accuracy.maximum": -0.5}
    assert row["seeds"] == {"first": [0, 1], "second": [0]}
    assert found["rows"][1]["difference"]["accuracy.mean"] is None
    assert (found["only_first"], found["only_second"]) == (["own, RNN"], ["more, RNN"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"measures": ["accuracy.median"]}, "different tables: their measures are accuracy.mean, accuracy.maximum and"),
        ({"columns": ["language", "model"]}, "different tables: their columns are task, model and language, model"),
        ({"cells": {("other", "RNN"): "x"}}, "different tables: no row is in both"),
    ],
)
def test_runs_of_different_tables(capsys, tmp_path, first, changes, message):
    other = write(tmp_path / "other", **changes)
    status, out, err = run(capsys, "results", first, "--against", other)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_a_run_to_compare_with_that_is_none(capsys, first, tmp_path):
    status, _, err = run(capsys, "results", first, "--against", tmp_path / "none")
    assert status == 2
    assert "none has no results" in err
    with pytest.raises(SystemExit):
        run(capsys, "results", first, "--against", first, "--matrix")
    assert "argument --matrix: not allowed with argument --against" in capsys.readouterr().err


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


def test_a_matrix_of_unknown_tasks_has_no_levels(capsys, tmp_path):
    path = write(tmp_path / "own", {("own", "RNN"): "own/task"})
    assert (
        "| task | RNN |\n|---|--:|\n| own | 62.5 |"
        in run(capsys, "results", path, "--matrix", "--format", "markdown")[1]
    )


def test_a_table_that_is_no_matrix(tmp_path):
    table = {"title": "T", "columns": ["model"], "measures": ["accuracy.mean"]}
    rows = [{"cells": ["RNN"], "preset": "p", "task": "t"}]
    with pytest.raises(InputError, match="a matrix has a column of tasks and one of networks"):
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


def test_a_preset_and_a_task_are_a_matrix_too():
    table = single_row("dusell2020/lstm", "dusell2020/dyck", ["nats.mean"])
    matrix = make_matrix(table)
    assert matrix.levels == {"deterministic context-free": ["dusell2020/dyck"]}
    assert matrix.networks == ["dusell2020/lstm"]


def test_levels_are_of_tasks_that_there_are():
    from stack_lm.tasks import hierarchy

    assert set(hierarchy._LEVEL_OF) <= set(task_names())
    for name in task_names():
        if name.startswith(("deletang2023/", "flare/", "dusell2020/", "dusell2023/")):
            assert level_of(name) in LEVELS, name
    assert level_of("own/task") == ""
    assert make_task("flare/first").paper == "Butoi et al. 2025"


def test_json_is_one_object(capsys, first):
    assert json.loads(run(capsys, "results", first, "--matrix", "--json")[1])["title"] == "A table, in %"


def test_saved_results_print_the_same_table_and_merge_with_more(capsys, first, second, tmp_path):
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


def test_chosen_rows_alone(capsys, first, second):
    printed = run(capsys, "results", first, "--rows", "^parity", "--format", "markdown")[1]
    assert [line.split(" | ")[:2] for line in printed.splitlines() if line.startswith("| parity")] == [
        ["| parity", "RNN"],
        ["| parity", "LSTM"],
    ]
    assert "copy" not in printed
    compared = run_json(capsys, "results", first, "--against", second, "--rows", "^parity")
    assert [row["row"] for row in compared["rows"]] == ["parity, RNN", "parity, LSTM"]
    assert (compared["only_first"], compared["only_second"]) == ([], [])
    matrix = run_json(capsys, "results", first, "--matrix", "--rows", "^parity")
    assert {cell["task"] for cell in matrix["cells"]} == {"parity"}
    status, _, err = run(capsys, "results", first, "--rows", "^nothing")
    assert (status, "no row matches '^nothing'" in err) == (2, True)
