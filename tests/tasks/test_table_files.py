"""Tasks of files: their kinds, symbols and splits; and whatever may be wrong with a file."""

import random
from collections import Counter

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import FileTask, make_task

ROWS = [("a b", "b a"), ("a", "a"), ("b b b", "b b b"), ("a a", "a a")] * 5


def write(path, columns, rows, delimiter=","):
    lines = [delimiter.join(map(str, row)) for row in (columns, *rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def labels(path, counts, string="a b"):
    rows = [(string, label) for label, number in counts.items() for _ in range(number)]
    return write(path, ("string", "label"), rows)


def test_the_columns_say_the_kind(tmp_path):
    tagging = make_task(write(tmp_path / "a.csv", ("input", "output"), ROWS))
    assert (tagging.kind, tagging.own_kind, tagging.paper) == ("per_step", "tagging", "")
    other = make_task(
        write(tmp_path / "b.tsv", ("id", "output", "input"), [(1, "a", "a b"), *[(2, "b", "b")] * 9], "\t")
    )
    assert other.kind == "transduction"
    assert other.vocabulary == other.target_vocabulary == ("a", "b")
    classes = make_task(labels(tmp_path / "c.csv", {"yes": 5, "no": 5, "perhaps": 5}))
    assert (classes.kind, classes.target_vocabulary) == ("classification", ("no", "perhaps", "yes"))
    language = make_task(write(tmp_path / "d.csv", ("text",), [("a b",)] * 9))
    assert (language.kind, language.vocabulary) == ("language", ("a", "b", "<s>", "</s>"))
    assert language.split("train", 0)[0] == ((2, 0, 1), (0, 1, 3), (True,) * 3)
    sets = make_task(write(tmp_path / "e.csv", ("input", "output"), [("a a", "a/b b")] * 9), kind="next_symbols")
    assert sets.split("test", 0)[0].target == (frozenset({0, 1}), frozenset({1}))
    forced = make_task(str(tmp_path / "a.csv"), kind="transduction")
    assert forced.kind == "transduction"


def test_symbols_are_words_characters_or_lists(tmp_path):
    path = write(tmp_path / "a.csv", ("text",), [("ab c",)] * 5)
    assert make_task(path).vocabulary == ("ab", "c", "<s>", "</s>")
    assert make_task(path, symbols="characters").vocabulary == ("a", "b", "c", "\u2423", "<s>", "</s>")
    lists = tmp_path / "a.jsonl"
    lists.write_text('{"input": ["a", "b"], "output": "a b"}\n' * 5)
    assert make_task(str(lists)).split("train", 0)[0] == ((0, 1), (0, 1), (True, True))


def test_shares_are_held_out_by_a_seed_of_their_own(tmp_path):
    rows = [(f"s{k}",) for k in range(100)]
    path = write(tmp_path / "a.csv", ("text",), [("a " * (k + 1),) for k in range(100)])
    task = make_task(path)
    assert {name: plan.number for name, plan in task.plan.items()} == {"train": 80, "validation": 10, "test": 10}
    parts = task.splits(seed=3)
    assert parts == make_task(path).splits(seed=4)
    assert sorted(len(e.source) - 1 for part in parts.values() for e in part) == list(range(1, len(rows) + 1))
    assert parts["test"] != make_task(path, seed=1).splits(0)["test"]
    other = make_task(path, test=0.25, validation=0)
    assert {name: plan.number for name, plan in other.plan.items()} == {"train": 75, "test": 25}


def test_what_is_held_out_has_no_symbol_that_training_lacks(tmp_path):
    rows = [(f"a b{k // 2}",) for k in range(30)]
    path = write(tmp_path / "a.csv", ("text",), rows)
    for seed in range(5):
        task = make_task(path, seed=seed)
        assert {symbol for e in task.split("train", 0) for symbol in e.target} >= set(range(16))
    with pytest.raises(InputError, match="12 test and 6 validation strings .* only 1. of 30 have no symbol"):
        make_task(path, test=0.4, validation=0.2)
    path = write(tmp_path / "b.csv", ("string", "label"), [(f"a{k}", k % 2) for k in range(30)])
    with pytest.raises(InputError, match="only 0 of 30 have no symbol"):
        make_task(path)
    task = make_task(path, unknown="replace")
    assert {task.write(e.source) for e in task.split("test", 0)} == {"<unk>"}


def test_labels_keep_their_shares(tmp_path):
    task = make_task(labels(tmp_path / "a.csv", {"common": 150, "rare": 49, "once": 1}))
    counts = {name: Counter(task.target_vocabulary[e.target[0]] for e in part) for name, part in task.splits(0).items()}
    assert counts["test"] in ({"common": 15, "rare": 5}, {"common": 16, "rare": 4})
    assert counts["train"]["once"] == 1
    assert sum(counts["train"].values()) == 160


def test_a_folder_has_a_file_for_each_split(tmp_path):
    for name in ("train", "dev", "test"):
        labels(tmp_path / f"{name}.csv", {"x": 2, "y": 3})
    (tmp_path / "README.md").write_text("of no matter")
    task = make_task(str(tmp_path))
    assert {name: plan.number for name, plan in task.plan.items()} == {"train": 5, "validation": 5, "test": 5}
    (tmp_path / "dev.csv").unlink()
    task = make_task(str(tmp_path), validation=0.2)
    assert {name: plan.number for name, plan in task.plan.items()} == {"train": 4, "validation": 1, "test": 5}


def test_splits_choose_among_the_rows(tmp_path):
    path = write(tmp_path / "a.csv", ("input", "output"), ROWS)
    task = make_task(path, splits={"train": {"longest": 2}, "test": {"number": 1}})
    assert {len(e.source) for e in task.split("train", 0)} == {1, 2}
    assert len(task.split("test", 0)) == 1
    with pytest.raises(InputError, match="a.csv has 2 test strings of lengths from . to .; 99 were asked for"):
        make_task(path, splits={"test": {"number": 99}}).check_plan(0)
    assert set(task.length_weights(1, 2)) == {1, 2}
    assert len(task.sample(random.Random(0), 3).source) == 3


def test_long_strings_are_for_the_test(tmp_path):
    rows = [("a " * n + "b", "yn"[n % 2]) for n in range(1, 41)]
    path = write(tmp_path / "a.csv", ("string", "label"), rows)
    task = make_task(path, test_from=31)
    lengths = {name: [len(e.source) - 1 for e in task.split(name, 0)] for name in task.plan}
    assert sorted(n + 1 for n in lengths["test"]) == list(range(31, 42))
    assert max(lengths["train"] + lengths["validation"]) + 1 == 30
    assert len(lengths["validation"]) == 3
    with pytest.raises(InputError, match="test_from=100 needs shorter and longer strings; .*a.csv has none as long"):
        make_task(path, test_from=100)


def test_a_string_without_a_row_has_no_scored_target(tmp_path):
    task = make_task(write(tmp_path / "a.csv", ("input", "output"), ROWS))
    assert task.example(task.read("a b")) == ((0, 1), (1, 0), (True, True))
    assert task.example(task.read("b a b")).mask == (False,) * 3
    task = make_task(str(tmp_path / "a.csv"), kind="transduction")
    with pytest.raises(InputError, match="has no such string"):
        task.example(task.read("b a b"))


def test_a_beginning_lets_the_empty_string_be_classified(tmp_path):
    rows = [("", "yes"), *((" ".join("ab" * n), "yes") for n in range(1, 9)), *(("b " * n, "no") for n in range(1, 9))]
    path = write(tmp_path / "train.csv", ("string", "label"), rows)
    write(tmp_path / "test.csv", ("string", "label"), rows[:3])
    task = make_task(str(tmp_path), begin=True)
    assert task.vocabulary == ("a", "b", "<s>")
    assert [task.write(e.source) for e in task.split("test", 0)] == ["<s>", "<s> a b", "<s> a b a b"]
    assert (task.plan["test"].shortest, task.plan["test"].longest) == (0, 4)
    assert task.example(()) in task.split("test", 0)
    assert task.example(task.read("a a")) == ((2, 0, 0), (0,), (False,))
    assert next(e.source for e in task.read_file(path)) == (2,)
    assert "3 symbols; 2 labels: no, yes" in task.summary()
    with pytest.raises(InputError, match="row 1: the string is empty; begin=true lets it be classified"):
        make_task(path)
    with pytest.raises(InputError, match="begin=true is for strings with labels; a language task needs none"):
        make_task(write(tmp_path / "a.csv", ("text",), [("a",)] * 20), begin=True)


def test_symbols_that_training_lacks(tmp_path):
    labels(tmp_path / "train.csv", {"x": 5, "y": 5})
    labels(tmp_path / "test.csv", {"x": 1}, string="a c")
    with pytest.raises(
        InputError, match=r"test.csv, row 1: no training string has the symbol 'c'; trained with unknown=replace"
    ):
        make_task(str(tmp_path))
    task = make_task(str(tmp_path), unknown="replace")
    assert task.write(task.split("test", 0)[0].source) == "a <unk>"
    labels(tmp_path / "test.csv", {"x": 1, "z": 1})
    with pytest.raises(InputError, match=r"test.csv, row 2: no training string has the label 'z'"):
        make_task(str(tmp_path), unknown="replace")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "input,output,label,string\na,b,c,a\n",
            {},
            "input,output and string,label, of several kinds of task; set kind",
        ),
        ("input,output\na b,a\n" + "a,a\n" * 9, {"kind": "tagging"}, "row 1: a tagging task .*; got 1 for 2"),
        (
            "input,output\na,a\n",
            {},
            "has 1 row; too few to hold out 1 test and 1 validation strings and leave one to train on$",
        ),
        (
            "string,label\n" + "".join(f"{'a' * n},{n % 2}\n" for n in range(1, 30)),
            {},
            "only . of 29 have .* lack; each string is one symbol: symbols=characters makes one of each character$",
        ),
    ],
)
def test_files_that_are_no_task(tmp_path, content, options, message):
    path = tmp_path / "own.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        make_task(str(path), **options).check_plan(0)
    assert "\n" not in str(caught.value)


def test_names_that_are_no_files(tmp_path):
    with pytest.raises(InputError, match="none.csv does not exist"):
        make_task(str(tmp_path / "none.csv"))
    with pytest.raises(
        InputError, match=r"has no file train with one of the endings .*.csv, .*.parquet; it has test.csv"
    ):
        labels(tmp_path / "test.csv", {"x": 1})
        make_task(str(tmp_path))
    (tmp_path / "train.csv").write_text("string,label\na,x\n")
    (tmp_path / "train.tsv").write_text("string\tlabel\na\tx\n")
    with pytest.raises(InputError, match=r"has several train files: train.csv, train.tsv"):
        make_task(str(tmp_path))
    (tmp_path / "plain.txt").write_text("a b\n")
    with pytest.raises(InputError, match="plain.txt is plain text; a task is a table: "):
        FileTask(str(tmp_path / "plain.txt"))


def test_a_file_that_changes_is_read_again(tmp_path):
    path = tmp_path / "a.csv"
    before = make_task(labels(path, {"x": 5, "y": 5}))
    after = make_task(labels(path, {"x": 5, "z": 6}))
    assert after.target_vocabulary == ("x", "z")
    assert before.digest != after.digest


def test_columns_may_have_other_names(tmp_path):
    path = write(tmp_path / "a.csv", ("source", "target"), ROWS)
    with pytest.raises(
        InputError, match=r"needs input,output or string,label or text; with columns=A,B they have other"
    ):
        make_task(path)
    task = make_task(path, columns="source,target")
    assert (task.own_kind, task.vocabulary) == ("tagging", ("a", "b"))
    assert task.read_file(path)[0].source == (0, 1)
    assert make_task(path, columns="source").own_kind == "language"
    assert make_task(path, columns="source, target", kind="classification").target_vocabulary == (
        "a",
        "a a",
        "b a",
        "b b b",
    )
    with pytest.raises(InputError, match="columns=source,goal does not name them"):
        make_task(path, columns="source,goal")


def test_mlregtest(tmp_path):
    train = tmp_path / "04.04.LT.1.1.0_Train.txt"
    lines = "".join(f"{'ab' * n}\tTRUE\n{'a' * n}\tFALSE\n" for n in range(1, 12))
    train.write_text(lines)
    alone = make_task(str(train))
    assert (alone.own_kind, alone.target_vocabulary, alone.vocabulary) == (
        "classification",
        ("FALSE", "TRUE"),
        ("a", "b"),
    )
    assert {name: split.number for name, split in alone.plan.items()} == {"train": 18, "validation": 2, "test": 2}
    for part in ("Dev", "TestSR", "TestSA", "TestLR", "TestLA"):
        (tmp_path / f"04.04.LT.1.1.0_{part}.txt").write_text("abab\tTRUE\nba\tFALSE\n")
    task = make_task(str(train))
    numbers = {"train": 22, "validation": 2, "test": 8, "test_sr": 2, "test_sa": 2, "test_lr": 2, "test_la": 2}
    assert {name: split.number for name, split in task.plan.items()} == numbers
    assert task.split("test_la", 0)[0] == ((0, 1, 0, 1), (1,), (True,))
    (tmp_path / "04.04.LT.1.1.0_Dev.txt").write_text("\tTRUE\n")
    with pytest.raises(InputError, match="line 1: the string is empty; begin=true lets it be classified"):
        make_task(str(train))
    train.write_text("abab\tYES\n")
    with pytest.raises(InputError, match="is plain text; a task is a table"):
        make_task(str(train))
