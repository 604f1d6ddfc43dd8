"""`stack-lm tasks`: the list, examples, and checks of files."""

import json
import re

import pytest

from stack_lm.cli.main import main
from stack_lm.tasks import Example, Task, make_task, registry, task_names


def run(capsys, *arguments):
    """The exit status, and both outputs."""
    try:
        status = main(["tasks", *arguments])
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


def test_list(capsys):
    status, table, _ = run(capsys)
    assert status == 0
    for name in task_names():
        if name.count("/"):
            assert name in table
    row = next(line for line in table.splitlines() if " hao2018/agreement " in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "hao2018/agreement", "per_step", "depth", "800 of 1-16", "100 of 1-16", "1,000 of 1-32", "10",
    ]  # fmt: skip
    assert "100 each of 40-100" in table
    assert "800 of 12 " in table
    status, output, _ = run(capsys, "--json")
    tasks = {task["name"]: task for task in json.loads(output)["tasks"]}
    assert set(tasks) == set(task_names())
    assert tasks["suzgun2019/dyck6"]["splits"]["train"] == {
        "number": 15_000, "shortest": 2, "longest": 50, "balanced": False,
    }  # fmt: skip


def test_show(capsys):
    status, output, _ = run(capsys, "show", "hao2018/parentheses", "--seed", "3", "-n", "2")
    assert status == 0
    task = make_task("hao2018/parentheses")
    first = task.split("train", 3)[0]
    head, _, source, target, scored, *_ = output.splitlines()
    assert head == "hao2018/parentheses, Hao et al. 2018: per_step, train, seed 3"
    assert source == "source " + task.write(first.source)
    assert target == "target " + task.write(first.target)
    assert scored.split()[1:] == [
        symbol if on else "." for symbol, on in zip(task.write(first.target).split(), first.mask, strict=True)
    ]
    assert output.count("source") == 2
    _, output, _ = run(capsys, "show", "suzgun2019/dyck2", "-n", "1", "--split", "test", "--json")
    task = make_task("suzgun2019/dyck2")
    example = task.split("test", 0)[0]
    (shown,) = json.loads(output)["examples"]
    assert shown == {
        "source": task.write(example.source),
        "target": " ".join(task.write_targets(example.target)),
        "mask": [True] * len(example.mask),
    }
    assert "scored" not in run(capsys, "show", "suzgun2019/dyck2", "-n", "1")[1]  # all of it is
    options = ["--split", "test", "--shortest", "2", "--longest", "3"]
    _, output, _ = run(capsys, "show", "joulin2015/anbn", "-n", "100", *options)
    assert [line.split()[1:] for line in output.splitlines() if line.startswith("source")] == [
        ["<s>", *"aabb"], ["<s>", *"aaabbb"],
    ]  # fmt: skip


def test_options_of_the_task(tmp_path, capsys):
    status, output, _ = run(capsys, "show", "grefenstette2015/copy", "symbols=1", "--longest", "9", "-n", "3")
    assert status == 0
    sources = [line.split()[1:] for line in output.splitlines() if line.startswith("source")]
    assert {symbol for source in sources for symbol in source} == {"a1"}
    path = tmp_path / "strings.csv"
    path.write_text("si3 vi1 oi2,so3 oo2 vo1\n")
    assert run(capsys, "check", "grefenstette2015/svo_sov", str(path), "words=3")[0] == 0
    status, _, err = run(capsys, "check", "grefenstette2015/svo_sov", str(path), "words=2")
    assert status == 2
    assert "'so3' is not a symbol of the targets" in err


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("hao2018/reversal", "0 1 1,2 2 2 1 1 0\n0,# 0\n"),
        ("hao2018/parentheses", "( ) [ ],) [ ]\n( ),) #\n"),
        ("suzgun2019/dyck2", "( ),(/)/[ (/[\n"),
        ("grefenstette2015/gender", "a fe1 and the me2,eine fg1 und der mg2\n"),
        ("dusell2020/hardest_cfl", '", $ ( ) , ;",", $ ( ) , ; </s>"\n'),
    ],
)
def test_files_that_agree(name, lines, tmp_path, capsys):
    path = tmp_path / "strings.csv"
    path.write_text(lines)
    number = lines.count("\n")
    assert run(capsys, "check", name, str(path)) == (0, f"{path}: {number} of {number} lines agree with {name}\n", "")


def test_files_that_do_not_agree(tmp_path, capsys):
    path = tmp_path / "strings.csv"
    path.write_text("0 1,0 1\n1 1,1 1\n0 1,0\n#,#\n" + "0,1\n" * 6)
    status, output, _ = run(capsys, "check", "hao2018/xor", str(path))
    assert status == 1
    assert output.splitlines() == [
        f"{path}: 1 of 10 lines agree with hao2018/xor",
        "line 2: the output is 1 1, the task's 1 0",
        "line 3: the output is 0, the task's 0 1",
        "line 4: a string of hao2018/xor has no blanks; got #",
        "line 5: the output is 1, the task's 0",
        "line 6: the output is 1, the task's 0",
        "and 4 more",
    ]
    status, output, _ = run(capsys, "check", "hao2018/xor", str(path), "--json")
    result = json.loads(output)
    assert (status, result["lines"], result["agree"], len(result["disagree"])) == (1, 10, 1, 9)
    assert result["disagree"][0] == {"line": 2, "problem": "the output is 1 1, the task's 1 0"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "hao2018/xr"], "that `stack-lm tasks` lists; got 'hao2018/xr'; did you mean 'hao2018/xor'"),
        (["show", "hao2018/xor", "words=3"], "hao2018/xor has the options splits; got 'words'"),
        (
            ["show", "suzgun2019/dyck2", "--shortest", "7", "--longest", "7"],
            "suzgun2019/dyck2 has no string of a length from 7 to 7",
        ),
        pytest.param(
            ["show", "hao2018/formula", "--longest", "60"], "too many derivations of depth", marks=pytest.mark.slow
        ),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    status, _, error = run(capsys, *arguments)
    assert status == 2
    assert len(error.splitlines()) == 1
    assert re.search(message, error), error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0 1,0 1,0\n", "line 1: a line must be `input,output`; it has 3 fields"),
        (b"0 3,0 1\n", "line 1: '3' is not a symbol of hao2018/xor; it has 0 1 #"),
        (b"0 1,0 3\n", "line 1: '3' is not a symbol of the targets of hao2018/xor"),
    ],
)
def test_broken_files(content, message, tmp_path, capsys):
    path = tmp_path / "strings.csv"
    path.write_bytes(content)
    status, _, error = run(capsys, "check", "hao2018/xor", str(path))
    assert status == 2
    assert len(error.splitlines()) == 1
    assert str(path) in error
    assert message in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("(0 )0,2\n", "line 2: '2' is not a label of flare/dyck_2_3; it has 0 1"),
        ("(0 )0,1 1\n", "line 2: a line must have one label; it has 2"),
    ],
)
def test_broken_files_of_labels(content, message, tmp_path, capsys):
    path = tmp_path / "strings.csv"
    path.write_text("string,label\n" + content, encoding="utf-8")
    status, output, error = run(capsys, "check", "flare/dyck_2_3", str(path))
    assert (status, output, error.count("\n")) == (2, "", 1)
    assert message in error


def test_a_task_that_cannot_compute_targets(tmp_path, capsys, monkeypatch):
    class Draws(Task):
        vocabulary = ("a",)

        def sample(self, rng, length):
            return Example((0,), (0,), (True,))

    monkeypatch.setitem(registry.TASKS.registered, "draws", Draws)
    status, _, error = run(capsys, "check", "draws", str(tmp_path / "any.csv"))
    assert (status, error) == (2, "stack-lm: error: draws cannot compute the targets of given strings\n")
    assert "Other tasks" in run(capsys)[1]
    status, _, error = run(capsys, "show", "draws")
    assert (status, error) == (2, "stack-lm: error: draws has no split 'train'; it has none\n")
