"""`stack-lm surprisal`: from tables of sentences to tables of words."""

import csv
import hashlib
import io
import json
import sys

import numpy as np
import pandas as pd
import pytest
from cli.cases import fails
from conftest import run, run_json, tiny_config

from stack_lm import StackRNNForCausalLM, surprisal, train_word_tokenizer

TEXTS = ["The dogs, which bark, sleep.", "", 'the "old"\ndog', "qwx zzy"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The directories of a stack model and of an LSTM with one tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_word_tokenizer([('the dogs dog which bark sleep old . , "'.split(), None)])
    for name, memory in (("stack", "stack"), ("lstm", "none")):
        ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        model = StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), memory=memory, **ids))
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder / "stack", folder / "lstm"


@pytest.fixture
def data(tmp_path):
    """A table with quotation marks and line breaks inside its fields."""
    rows = [("item", "condition", "text")]
    rows += [(f"0{i}", 'two\nlines, "quoted"', text) for i, text in enumerate(TEXTS)]
    with open(tmp_path / "data.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return tmp_path / "data.csv"


READERS = {
    ".csv": lambda path: pd.read_csv(path, dtype={"item": str}, keep_default_na=False, na_values=[""]),
    ".tsv": lambda path: pd.read_csv(path, sep="\t", dtype={"item": str}, keep_default_na=False, na_values=[""]),
    ".jsonl": lambda path: pd.DataFrame([json.loads(line) for line in path.read_text("utf-8").splitlines()]),
    ".parquet": pd.read_parquet,
    ".xlsx": lambda path: pd.read_excel(path, dtype={"item": str}, keep_default_na=False, na_values=[""]),
}


@pytest.mark.parametrize("ending", READERS)
def test_every_format_has_the_table_of_the_function(capsys, models, data, tmp_path, ending):
    if ending == ".xlsx":
        pytest.importorskip("openpyxl")
    output = tmp_path / f"out{ending}"
    output.write_text("an earlier result")
    status, out, err = run(capsys, "surprisal", models[0], "--data", data, "--end", "--output", output)
    assert (status, out.splitlines()[-1]) == (0, f"written: {output}, {output}.json")
    assert err == f"row 2 is empty; row 4 has no word that {models[0]} knows\n"
    frame = pd.DataFrame({"item": ["00", "01", "02", "03"], "condition": 'two\nlines, "quoted"', "sentence": TEXTS})
    expected = surprisal(str(models[0]), frame, end=True)
    assert expected["word"].tolist()[5:9] == ["</s>", "the", '"old"', "dog"]
    found = READERS[ending](output)
    assert list(found) == list(expected)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-6)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data.csv", output.name, f"{output.name}.json"]
    origin = json.loads((tmp_path / f"{output.name}.json").read_text())
    assert origin["command"].startswith("stack-lm surprisal ")
    weights = (models[0] / "model.safetensors").read_bytes()
    assert origin["models"][0]["sha256"] == {"model.safetensors": hashlib.sha256(weights).hexdigest()}
    assert "first rows" not in out


def test_sentences_are_arguments_too(capsys, models):
    rows = run_json(capsys, "surprisal", models[0], "the dogs bark", "old dogs sleep")["rows"]
    assert [row["word"] for row in rows] == "the dogs bark old dogs sleep".split()
    assert "surprisal, 1 sentence" in run(capsys, "surprisal", *models, "the dogs bark")[1]
    assert fails(capsys, "surprisal", "the dogs bark") == "give a MODEL beside the sentences"
    assert fails(capsys, "surprisal", models[0]).startswith("no sentence: give one or more, or --data FILE")


def test_unreadable_rows_can_be_left_out(capsys, models, tmp_path):
    lines = ["{", '{"item": 7, "text": "the dogs bark"}', '{"item": 8, "text": 3}', '{"item": 9, "text": "the dog"}']
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")
    command = ("surprisal", models[0], "--data", tmp_path / "data.jsonl", "--output", tmp_path / "out.csv")
    assert fails(capsys, *command).startswith(f"{tmp_path / 'data.jsonl'}, line 1")
    assert not (tmp_path / "out.csv").exists()
    status, _, err = run(capsys, *command, "--keep-going")
    assert status == 2
    assert err.count("left out: ") == 3  # of two lines, and at the end
    assert "data.jsonl, line 3: " in err
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table)[:2] == ["item", "sentence"]
    assert table[["item", "sentence", "word"]].values.tolist() == [  # numbered as in the file
        [7, 2, "the"], [7, 2, "dogs"], [7, 2, "bark"], [9, 4, "the"], [9, 4, "dog"],
    ]  # fmt: skip
    (tmp_path / "data.jsonl").write_text("{\n{\n")
    assert "data.jsonl has no text" in run(capsys, *command, "--keep-going")[2]


def test_trees_keep_their_numbers(capsys, models, tmp_path):
    """One without words, one that cannot be read, and words as the treebank has them."""
    word = "2\u00a01/2"
    (tmp_path / "a.mrg").write_text(f"(S (NN the))\n(S (-NONE- *))\n(S (NN dogs)))\n(S (NN the) (CD {word}))\n")
    status, out, _ = run(capsys, "surprisal", models[0], "--data", tmp_path / "a.mrg", "--keep-going", "--json")
    result = json.loads(out)
    assert status == 2
    assert [(row["sentence"], row["word"]) for row in result["rows"]] == [(1, "the"), (4, "the"), (4, word)]
    assert result["empty"] == [2, 3]


def test_several_models(capsys, models, data, tmp_path):
    result = run_json(capsys, "surprisal", *models, "--data", data, "--output", tmp_path / "o.parquet", "--base", "e")
    table = pd.read_parquet(tmp_path / "o.parquet")
    assert list(table)[:3] == ["model", "item", "condition"]
    for model, of_json in zip(models, result["models"], strict=True):
        rows = table[table["model"] == str(model)]
        assert (of_json["model"], of_json["words"]) == (str(model), len(rows))
        assert of_json["mean_surprisal"] == pytest.approx(rows["surprisal"][~rows["unknown"]].mean())
        assert of_json["unknown"] == rows["unknown"].sum() > 0
        assert rows["push_strength"].isna().all() == (model == models[1])
        expected = surprisal(str(model), TEXTS, base="e")["surprisal"]
        np.testing.assert_allclose(rows["surprisal"], expected, rtol=1e-6)
    assert result["written"] == [str(tmp_path / name) for name in ("o.parquet", "o.parquet.json")]
    assert {name: result[name] for name in ("sentences", "empty", "unit", "column")} == {
        "sentences": 4, "empty": [2], "unit": "nats", "column": "text",
    }  # fmt: skip
    status, out, _ = run(capsys, "surprisal", *models, "--data", data)
    assert status == 0
    assert "mean surprisal" in out
    assert out.splitlines()[-1] == "the mean leaves out unknown words"


def test_standard_input_and_output(capsys, monkeypatch, models):
    stream = io.TextIOWrapper(io.BytesIO(b"the dogs bark.\nold dog\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    arguments = ("--data", "-", "--output", "-", "--punctuation", "split")
    status, out, err = run(capsys, "surprisal", models[1], *arguments)
    assert (status, err) == (0, "")
    table = pd.read_csv(io.StringIO(out))
    assert list(table) == ["sentence", "position", "word", "n_tokens", "unknown", "punctuation", "surprisal"]
    assert table["word"].tolist() == ["the", "dogs", "bark", ".", "old", "dog"]


def test_long_texts_are_printed_in_part_and_written_with_nine_digits(capsys, models, tmp_path):
    (tmp_path / "long.txt").write_text("the dogs bark .\n" * 2 + "the dogs bark .  " * 30)
    status, out, _ = run(capsys, "surprisal", models[0], "--data", tmp_path / "long.txt", "--output", "-")
    assert status == 0
    numbers = [number for row in csv.DictReader(io.StringIO(out)) for name, number in row.items() if "str" in name]
    assert len(numbers) == 128 * 4
    assert max(len(number.replace(".", "").lstrip("0")) for number in numbers) == 9
    status, out, _ = run(capsys, "surprisal", models[0], "--data", tmp_path / "long.txt")
    assert status == 0
    assert "68 more rows; --output FILE writes all" in out


def test_stories(capsys, models, tmp_path):
    """A story in a row, split into sentences, each in the context of those before."""
    stories = ["The dogs bark. Old dogs sleep, which bark. The dog.", "Dogs bark."]
    with open(tmp_path / "s.csv", "w") as file:
        csv.writer(file).writerows([("story", "text"), *enumerate(stories)])
    (tmp_path / "f.tsv").write_text("word\tcount\ndogs\t5\nThe\t2\nthe\t1\n")
    command = ("surprisal", models[0], "--data", tmp_path / "s.csv", "--segmentation", "raw", "--context", "story")
    more = ("--lags", "1", "--entropy", "--frequencies", tmp_path / "f.tsv")
    rows = pd.DataFrame(run_json(capsys, *command, *more)["rows"])
    assert rows["sentence"].tolist() == [1] * 3 + [2] * 5 + [3] * 2 + [4] * 2
    assert (rows["words_before"] + rows["position"]).tolist() == [*range(1, 11), 1, 2]
    assert rows["row"].tolist() == [1] * 10 + [2] * 2
    frame = pd.DataFrame({"text": ["The dogs bark.", "Old dogs sleep, which bark.", "The dog."], "story": 0})
    counts = {"the": 3, "dogs": 5}
    expected = surprisal(str(models[0]), frame, context="story", lags=1, entropy=True, frequencies=counts)
    for name in ("surprisal", "surprisal_1", "entropy_1", "log_frequency", "length_1"):
        np.testing.assert_allclose(rows[name][:10].astype(float), expected[name], rtol=1e-6)
    plain = pd.DataFrame(run_json(capsys, *command[:-2])["rows"])
    assert not np.allclose(rows["surprisal"][3:10], plain["surprisal"][3:10])
    (tmp_path / "p.txt").write_text("The dogs bark. Old dogs sleep.\n")
    table = pd.DataFrame(run_json(capsys, *command[:2], "--data", tmp_path / "p.txt", "--segmentation", "raw")["rows"])
    assert table["sentence"].tolist() == [1] * 3 + [2] * 3


def test_another_language(capsys, models):
    for command in ("surprisal", "parse"):
        note = run(capsys, command, models[0], "die Hunde bellen, dog")[2]
        assert f"words are unknown to {models[0]}; is it a model of this language?" in note
        assert "language" not in run(capsys, command, models[0], "the dogs bark, kaum")[2]


def test_a_name_that_is_ours(capsys, models, tmp_path):
    (tmp_path / "d.jsonl").write_text('{"sentence": "the dog", "word": 5, "push_strength": null}\n')
    status, out, err = run(capsys, "surprisal", models[1], "--data", tmp_path / "d.jsonl", "--output", "-")
    assert status == 0
    assert out.startswith("word_input,push_strength_input,sentence,position,word,")
    assert "the input's column 'word' is called 'word_input' in the result, which has a 'word' of its own" in err


@pytest.mark.parametrize("names", [("stack",), ("stack", "lstm")])
def test_a_figure(capsys, monkeypatch, models, data, tmp_path, names):
    pytest.importorskip("matplotlib")
    drawn = []
    from stack_lm.cli.commands import surprisal as command

    monkeypatch.setattr(command, "save_figure", lambda path, figure: drawn.append(figure))
    chosen = [model for model in models if model.name in names]
    arguments = ("surprisal", *chosen, TEXTS[2], "--figure", tmp_path / "f.png")
    assert run(capsys, *arguments)[0] == 0
    (figure,) = drawn
    top, below = figure.axes
    assert [label.get_text() for label in top.get_xticklabels()] == ["the", '"old"', "dog"]
    for bars, model in zip(top.containers, chosen, strict=True):
        expected = surprisal(str(model), [TEXTS[2]])
        heights = expected["surprisal"]
        np.testing.assert_allclose([bar.get_height() for bar in bars], heights)
    assert len(below.containers) >= 1
    assert top.get_ylabel() == "surprisal (bits)"


def test_wrong_input_is_one_line_and_leaves_nothing(capsys, models, data, tmp_path):
    model = models[1]
    (tmp_path / "folder").mkdir()
    out = tmp_path / "out.csv"
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for arguments, message in [
        (("--data", data, "--column", "txt"), f"{data} has no column 'txt'"),
        (("--data", tmp_path / "folder"), "folder is a directory, not a file"),
        (("--data", data, "--figure", tmp_path / "f.gif"), "--figure must end in one of .png, .pdf, .svg"),
        ((model, "--data", data), f"{model} is given twice"),
        (("--data", data, "--json", "--output", "-"), "both print on standard output; leave one out"),
        (("--data", data, "--output", tmp_path / "x.xls"), "--output must end in one of .csv, .tsv, .jsonl, .parquet"),
        (("--data", data, "--context", "story"), "context must be one of 'item', 'condition', 'text'; got 'story'"),
        (("--data", data, "--lags", "9"), "lags must be below 5, the number of words of the longest text; got 9"),
        (("--data", data, "--frequencies", "model"), f"{model} has no word_counts.tsv; name a table"),
        (("--data", data, "--frequencies", data), f"{data}, row 1: a word and its count are needed"),
        (("--data", data, "--window", "1"), "window must be at least 2 tokens; got 1"),
    ]:
        extra = () if "--output" in arguments else ("--output", out)
        assert message in fails(capsys, "surprisal", model, *arguments, *extra), arguments
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
