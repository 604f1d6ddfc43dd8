"""recipes/train_classifier.py on tables with any labels."""

import importlib.util
import json
import random
from pathlib import Path

import pytest
from transformers import pipeline

RECIPE = Path(__file__).parents[2] / "recipes" / "train_classifier.py"
SPEC = importlib.util.spec_from_file_location("train_classifier", RECIPE)
TRAIN = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(TRAIN)
SMALL = ["model.hidden_size=8", "model.embedding_size=6", "training.learning_rate=1.0e-2", "training.threads=1"]


def table(path, rows, columns="review,stars"):
    path.write_text("\n".join([columns, *(f"{text},{label}" for text, label in rows)]) + "\n")
    return path


@pytest.fixture
def files(tmp_path):
    """Three labels, which a word decides."""
    rng = random.Random(0)
    words = {"good": "fine", "so-so": "middling", "bad": "awful"}
    rows = [(f"a {word} {rng.choice(['book', 'film'])}", label) for label, word in words.items() for _ in range(40)]
    rng.shuffle(rows)
    table(tmp_path / "train.csv", rows[30:])
    table(tmp_path / "test.csv", rows[:30])
    return tmp_path


def arguments(files, *more):
    named = [f"data.train={files / 'train.csv'}", f"data.test={files / 'test.csv'}", f"output_dir={files / 'run'}"]
    return [*named, "data.column=review", "data.label_column=stars", *SMALL, *more]


def test_three_labels(capsys, files):
    assert TRAIN.main(arguments(files, "training.epochs=4", "--json")) == 0
    result = json.loads(capsys.readouterr().out)
    (test,) = result["test"].values()
    assert test["n"] == 30
    assert test["accuracy"] == test["macro_f1"] == 100
    assert [one["label"] for one in test["labels"]] == ["bad", "good", "so-so"]
    classify = pipeline("text-classification", str(files / "run"))
    answers = classify(["a fine film", "a middling book", "awful"], batch_size=3)
    assert [answer["label"] for answer in answers] == ["good", "so-so", "bad"]
    assert "name: Text classification" in (files / "run" / "README.md").read_text()
    # A preset's network, for labels that are numbers.
    rows = [("a b", k % 2) for k in range(20)]
    train = table(files / "numbers.csv", rows, "text,label")
    more = [f"data.train={train}", "data.validation=null", f"data.test=[{train}]", f"output_dir={files / 'other'}"]
    assert TRAIN.main(["merrill2019/numpred_u1", *more, *SMALL, "training.epochs=1"]) == 0
    assert "macro F1" in capsys.readouterr().out
    assert json.loads((files / "other" / "config.json").read_text())["id2label"] == {"0": "0", "1": "1"}


@pytest.mark.parametrize(
    ("name", "content", "more", "message"),
    [
        ("train.csv", "", [], "train.csv is empty"),
        ("train.csv", "review,stars\na,x\nb,x\n", [], "needs two labels or more; all texts have 'x'"),
        ("train.csv", "reveiw,stars\na,x\nb,y\n", [], "no column 'review' (did you mean 'reveiw'"),
        (
            "train.csv",
            "review,star\na,x\nb,y\n",
            [],
            "no column 'stars' (did you mean 'star'?); its columns are review",
        ),
        ("train.csv", "review,stars,stars\na,x,y\n", [], "two columns named 'stars'"),
        ("train.csv", "review,stars\na,x\n,y\n", [], "row 2 has no text"),
        ("train.csv", "review,stars\na,x\nb,\n", [], "row 2: a label must be a string or an integer; got ''"),
        ("test.csv", "review,stars\na,good\nb,great\n", [], "test.csv, row 2: no training text has the label 'great'"),
        ("numpred.test.1", "VBZ\tthe dog\n", ["data.test=numpred.test.1"], "is a file of number prediction; "),
        (
            "mixed.jsonl",
            '{"review": "a", "stars": 1}\n{"review": "b", "stars": "x"}\n',
            ["data.train=mixed.jsonl"],
            "mixed.jsonl, line 2: the label 'x' is of another type than those before it",
        ),
    ],
)
def test_bad_input(capsys, files, monkeypatch, name, content, more, message):
    monkeypatch.chdir(files)
    (files / name).write_text(content)
    assert TRAIN.main(arguments(files, *more)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (files / "run").exists()
