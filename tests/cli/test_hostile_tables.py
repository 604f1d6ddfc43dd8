"""Tables, tasks, tokenizers and configurations that are wrong: one line of error, nothing written, no input changed."""

import pytest
from cli.cases import fails, save_model, write
from conftest import run, run_json


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
        ("t.jsonl", '{"sentence": "a", "x": 1}\n{"sentence": "a", "x": [1]}\n', ".parquet cannot hold a column"),
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
