"""Tables, tasks, tokenizers and configurations that are wrong: one line of error, nothing written, no input changed."""

import json
import os
import shutil

import pandas
import pytest
from commands.test_hostile_input import fails, model, save_model, write
from conftest import run, run_json

__all__ = ["model"]
ROWS = "".join(f"the dog {i},{'ab'[i % 2]}\n" for i in range(20))
FRAMED = "text,label\n" + ROWS


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
        ("t.csv", "sentence," + ",".join(map(str, range(20_000))) + ",7\n", "two columns named '7'"),
        ("t.jsonl", "{}\n", "t.jsonl has no columns"),
        (
            "t.jsonl",
            '{"sentence": "a", "x": 1' + "0" * 30 + "}\n",
            "numbers of over 64 bits",
        ),
        ("t.jsonl", '{"sentence": "a", "x": 1}\n{"sentence": "a", "x": [1]}\n', "has values of several types"),
        ("t.parquet", "PAR1 and no more", "is not a readable Parquet file"),
        ("t.csv.gz", "no gzip", "cannot read t.csv.gz: Not a gzipped file"),
        ("t.csv", "id,sentence\n", "t.csv has a header and no rows"),
        ("t.csv", 'sentence\n"the dog\n', "a quotation mark opens a field that none closes"),
        ("t.csv", "sentence\n" + "x" * 20_000_000 + "\n", "longer than 16,777,216 characters"),
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
        (("--sentence", "0", "--figure", "f.png"), "'0' is not a whole number of at least 1"),
        (("--sentence", "3", "--figure", "f.png"), "--sentence must be at most 2"),
        (("--base", "3"), "argument --base: must be one of 2, e, 10; got '3'"),
        (("--word-strength", "lst"), "did you mean 'last'?"),
        (("--output", "folder.csv"), "folder.csv is a directory; a file name is needed"),
        (("--output", "s.csv/o.csv"), "s.csv is a file"),
        (("--output", "o.csv", "--figure", "s.csv/f.png"), "s.csv is a file"),
        (("--output", "full.csv"), "/dev/full is not a regular file"),
        (("--output", "absent/../s.csv"), "--output absent/../s.csv would overwrite a file that the command reads"),
        (("--output", "a\0b.csv"), "has a NUL character"),
    ],
)
def test_options_of_surprisal(capsys, folder, model, options, message):
    (folder / "folder.csv").mkdir()
    (folder / "full.csv").symlink_to("/dev/full")
    data = () if "--data" in options else ("--data", "s.csv")
    assert message in refused(capsys, folder, "surprisal", model, *data, *options)


@pytest.mark.parametrize("line", ["word,count\nthe,x\n", "word,count\nthe,-1\n", "word,count\nthe,nan\n"])
def test_frequencies(capsys, folder, model, line):
    write(folder / "f.csv", line)
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
        (FRAMED, ("model.model_type=deep_stack_rnn",), "model.model_type must be one of stack_rnn, stack_transformer"),
        (FRAMED, ("data.test=[[t.csv]]",), "data.test[0] must be a string"),
        ("text,label\n" + "the dog,a\n" * 20, (), "a classifier needs two labels or more; all texts have 'a'"),
        (FRAMED + "a,\n", (), "t.csv, row 21: a label must be a string or an integer; got ''"),
        (FRAMED + ",a\n", (), "t.csv, row 21 has no text"),
        ("text,lab\na,b\n", (), "t.csv has no column 'label' (did you mean 'lab'?)"),
        ("text,class\na,b\n", (), "its columns are text, class; data.label_column names the column of the labels"),
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
        (("tokenizer.kind=unigram", f"tokenizer.vocab_size={10**12}"), "vocab_size must be at most 10,000,000"),
        (("tokenizer.pretrained=tokenizer",), "cannot load a tokenizer from tokenizer: WordLevel error: Missing [UNK]"),
        (("tokenizer.pretrained=s.csv",), "cannot load a tokenizer from s.csv: "),
        (("model={model_type: deep_stack_rnn, layers: [[3]]}",), "layers[0] must be a mapping; got [3]"),
        (("model={model_type: deep_stack_rnn, layers: [{hidden_size: .nan}]}",), "layers[0].hidden_size must be an"),
        (("model={model_type: deep_stack_rnn, layers: [{inputs: [0]}]}",), "the first layer reads the embedding alone"),
        (("model={layers: [*a]}",), "aliases are not allowed"),
        (("model=" + "[" * 1000,), "nested too deep"),
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


def test_a_negative_seed(capsys, folder):
    message = "argument --seed: '-1' is not a whole number of at least 0"
    assert message in refused(capsys, folder, "tasks", "show", "hao2018/xor", "--seed", "-1")


def test_an_option_of_a_task_of_any_length(capsys, folder):
    write(folder / "t.csv", "string,label\n" + ROWS.replace("dog", "cat"))
    assert "seed must be an integer" in refused(capsys, folder, "tasks", "check", "t.csv", "seed=" + "a" * 300)


# --- exports


def test_exports_to_what_is_there(capsys, folder):
    save_model(folder / "m")
    (folder / "full").mkdir()
    write(folder / "full" / "x", "")
    for target, message in (
        ("full", "exists and is not empty"),
        ("s.csv", "s.csv is a file"),
        ("m", "is not empty"),
    ):
        assert message in refused(capsys, folder, "export", "m", target), target
    shutil.rmtree(folder / "full")
    os.symlink("nowhere", folder / "broken")
    assert "broken" in refused(capsys, folder, "export", "broken", "full")
