"""Tables, tasks, tokenizers and configurations that are wrong: one line of error, nothing written, no input changed."""

import pytest
from cli.cases import fails, save_model, write
from conftest import run, run_json

from stack_lm.text.records import read_records


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
        ("t.jsonl", '{"sentence": "a", "x": 1}\n{"sentence": "a", "x": [1]}\n', ".parquet cannot hold the table"),
        ("t.parquet", "PAR1 and no more", "is not a readable Parquet file"),
        ("t.csv", "sentence,surprisal,surprisal_input\na,1,2\n", "'surprisal_input' is taken; rename one of them"),
    ],
)
def test_tables_for_surprisal(capsys, folder, model, name, content, message):
    write(folder / name, content)
    assert message in refused(capsys, folder, "surprisal", model, "--data", name, "--output", "o.parquet")


def test_no_pattern_of_files_is_overwritten(capsys, folder, model):
    write(folder / "t.jsonl", '{"text": "the dog"}\n')
    message = refused(capsys, folder, "parse", model, "--data", "*.jsonl", "--output", "t.jsonl")
    assert "would overwrite a file that the command reads" in message


ODD = "the \U0001f468\u200d\U0001f469 \u202e\u05e9\u05dc\u202c \u200b \u0301 e\u0301 \ufeff a\u200db dog\n\u200b\n"


@pytest.mark.filterwarnings("ignore:Glyph .* missing")  # which a command prints
def test_words_that_nobody_sees(capsys, folder, model):
    write(folder / "odd.txt", ODD)
    words = ODD.splitlines()[0].replace("\ufeff", "").split()  # a byte order mark is no word
    for ending in ("html", "svg", "tex"):
        assert run(capsys, "parse", model, "--data", "odd.txt", "--output", f"t.{ending}")[0] == 0
    rows = run_json(capsys, "surprisal", model, "--data", "odd.txt", "--figure", "f.pdf")["rows"]
    assert [row["word"] for row in rows if row["sentence"] == 1] == words


def test_contexts_of_json(capsys, folder, model):
    write(folder / "t.jsonl", '{"text": "the dog", "id": [1]}\n')
    message = refused(capsys, folder, "surprisal", model, "--data", "t.jsonl", "--context", "id")
    assert message == "sentence 1: a context must be a text or a number; got [1]"


def test_carriage_returns(capsys, folder, model):
    """They end lines of every format; inside a field, which is written to a table, they are line breaks."""
    for name, text in (("t.csv", "id,text\r1,the dog\r"), ("t.tsv", "id\ttext\r1\tthe dog\r"), ("t.txt", "the dog\r")):
        (folder / name).write_text(text, newline="")
        assert run_json(capsys, "perplexity", model, "--data", name)["n_words"] == 2
    (folder / "group.csv").write_text("\ufeff,e,a\re,e,a\ra,a,e\r", encoding="utf-8", newline="")
    assert run(capsys, "tasks", "show", "groups/word_problem", "table=group.csv", "-n", 1)[0] == 0
    write(folder / "t.jsonl", '{"id": "x\\ry", "text": "the dog"}\n')
    run_json(capsys, "surprisal", model, "--data", "t.jsonl", "--output", "s.csv")
    assert [record.fields["id"] for record in read_records("s.csv", column="word")] == ["x\ny"] * 2


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("groups/word_problem", b",e,\xe9\ne,e,a\n", "t.csv, line 1: not UTF-8 text"),
        ("automaton:t.csv", b",a\n->*q," + b"p" * 200_000, "no state with a row"),
    ],
)
def test_tables_of_symbols(capsys, folder, task, content, message):
    (folder / "t.csv").write_bytes(content)
    options = ["table=t.csv"] if task.startswith("groups") else []
    assert message in refused(capsys, folder, "tasks", "show", task, *options)


def test_one_sentence_has_no_interval(capsys, folder, model):
    write(folder / "t.txt", "the dog sleeps\n")
    assert "interval" not in run(capsys, "perplexity", model, "--data", "t.txt")[1]


def test_too_many_directories(capsys, folder):
    write(folder / "t.txt", "the dog sleeps\n" * 9)
    message = refused(capsys, folder, "train", "lm", "data.source=t.txt", f"output_dir={'t/' * 1500}run")
    assert message.startswith("cannot write in output_dir t/t/")
    assert message.endswith("File name too long")
