"""Tables, tasks, tokenizers and configurations that are wrong: one line of error, nothing written, no input changed."""

import json

import pandas
import pytest
from cli.cases import fails, save_model, write
from conftest import run, run_json

ROWS = "".join(f"the dog {i},{'ab'[i % 2]}\n" for i in range(20))
FRAMED = "text,label\n" + ROWS


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "s.csv", "id,sentence\n1,the dog sleeps\n2,a cat\n")
    return tmp_path


def refused(capsys, folder, *command):
    """The message of a command that must fail and leave all files as they are, and no others."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    message = fails(capsys, *command)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return message


# --- surprisal, and the reader of tables


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "t.jsonl",
            '{"sentence": "a", "x": 1' + "0" * 30 + "}\n",
            "numbers of over 64 bits",
        ),
        ("t.jsonl", '{"sentence": "a", "x": 1}\n{"sentence": "a", "x": [1]}\n', "has values of several types"),
        ("t.parquet", "PAR1 and no more", "is not a readable Parquet file"),
        ("t.csv", "sentence,surprisal,surprisal_input\na,1,2\n", "'surprisal_input' is taken; rename one of them"),
    ],
)
def test_tables_for_surprisal(capsys, folder, model, name, content, message):
    write(folder / name, content)
    assert message in refused(capsys, folder, "surprisal", model, "--data", name, "--output", "o.parquet")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", ""), "the name of a file is empty"),
        (("--data", "hub:"), "hub: must be followed by the name of a dataset"),
        (("--data", "-", "--frequencies", "-"), "--data and --frequencies cannot both be standard input"),
        (("--output", "full.csv"), "/dev/full is not a regular file"),
    ],
)
def test_options_of_surprisal(capsys, folder, model, options, message):
    (folder / "full.csv").symlink_to("/dev/full")
    data = () if "--data" in options else ("--data", "s.csv")
    assert message in refused(capsys, folder, "surprisal", model, *data, *options)


def test_frequencies(capsys, folder, model):
    write(folder / "f.csv", "word,count\nthe,-1\n")
    message = refused(capsys, folder, "surprisal", model, "--data", "s.csv", "--frequencies", "f.csv")
    assert "f.csv, row 1: count must be a number of at least 0; got" in message


def test_a_table_of_surprisal_is_data_too(capsys, folder, model):
    """Its columns of strengths are not those of the result, which has a figure of its own."""
    pandas.DataFrame({"sentence": ["the dog"], "push_strength": ["high"]}).to_csv("earlier.csv", index=False)
    command = ("surprisal", model, "--data", "earlier.csv", "--output", "o.csv", "--figure", "f.svg")
    assert run(capsys, *command)[0] == 0
    assert pandas.read_csv("o.csv")["push_strength_input"].tolist() == ["high"] * 2


def test_no_pattern_of_files_is_overwritten(capsys, folder, model):
    write(folder / "t.jsonl", '{"text": "the dog"}\n')
    message = refused(capsys, folder, "parse", model, "--data", "*.jsonl", "--output", "t.jsonl")
    assert "would overwrite a file that the command reads" in message


ODD = "the \U0001f468\u200d\U0001f469 \u202e\u05e9\u05dc\u202c \u200b \u0301 e\u0301 \ufeff a\u200db dog\n\u200b\n"


@pytest.mark.filterwarnings("ignore:Glyph .* missing")  # which a command prints
def test_words_that_nobody_sees(capsys, folder, model):
    write(folder / "odd.txt", ODD)
    words = ODD.splitlines()[0].split()
    for ending in ("html", "svg", "tex"):
        assert run(capsys, "parse", model, "--data", "odd.txt", "--output", f"t.{ending}")[0] == 0
    rows = run_json(capsys, "surprisal", model, "--data", "odd.txt", "--figure", "f.pdf")["rows"]
    assert [row["word"] for row in rows if row["sentence"] == 1] == words


# --- training


@pytest.mark.parametrize(
    ("content", "overrides", "message"),
    [
        (FRAMED, ("data.column=label",), "data.column and data.label_column must differ; got 'label' for both"),
        (FRAMED + "a,\n", (), "t.csv, row 21: a label must be a string or an integer; got ''"),
    ],
)
def test_tables_for_classifiers(capsys, folder, content, overrides, message):
    write(folder / "t.csv", content)
    command = ("train", "classifier", "data.train=t.csv", "output_dir=out", *overrides)
    assert message in refused(capsys, folder, *command)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("tokenizer.kind=bpe", "tokenizer.vocab_size=256"), "vocab_size must be more than 256 with kind bpe"),
        (("tokenizer.pretrained=s.csv",), "cannot load a tokenizer from s.csv: "),
        (("model={layers: [*a]}",), "aliases are not allowed"),
    ],
)
def test_configurations_of_language_models(capsys, folder, overrides, message):
    words = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "c"}
    write(folder / "text.txt", SENTENCES)
    (folder / "tokenizer").mkdir()
    write(folder / "tokenizer" / "tokenizer.json", json.dumps({"version": "1.0", "model": words}))
    command = ("train", "lm", "data.source=text.txt", "data.held_out=2", "output_dir=out")
    assert message in refused(capsys, folder, *command, *overrides)


SENTENCES = "the dog sleeps\na cat sees the dog\nthe cat\na dog\n"
