"""The command line, as a user types it."""

import csv
import json
import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import byte_level_tokenizer, run, run_json, tiny_config
from transformers import GPT2Config, GPT2LMHeadModel

from stack_lm import ModelScorer, StackRNNForCausalLM, __version__, memories
from stack_lm.cli import commands
from stack_lm.cli.main import COMMANDS, main, make_parser
from stack_lm.core.console import progress
from stack_lm.text.generated import generate_corpus
from stack_lm.training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
from stack_lm.training.language_model import Trainer

SENTENCE = "the dog that the cats fear chases a rabbit ."


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A stack model and an LSTM, each trained for a second on generated English."""
    directory = tmp_path_factory.mktemp("models")
    for name, memory in (("stack", "stack"), ("lstm", "none")):
        config = RunConfig(
            output_dir=str(directory / name),
            # From the middle of its range the push varies after a second, which is enough for trees of any kind.
            model={"memory": memory, "hidden_size": 20, "embedding_size": 10, "push_strength_init": 1.5},
            tokenizer=TokenizerConfig(lowercase="none"),
            data=DataConfig(source="generated:600", held_out=60),
            training=LoopConfig(epochs=1, learning_rate=1e-2),
        )
        Trainer(config, quiet=True).train()
    return directory


# --- each command, for machines and for people


def test_parse(capsys, models, tmp_path):
    result = run_json(capsys, "parse", models / "stack", SENTENCE, "a cat sleeps .", "--output", tmp_path / "t.mrg")
    assert (result["signal"], result["decoder"]) == ("push_strength", "algorithm1")
    first, second = result["parses"]
    assert first["words"] == SENTENCE.split()
    assert re.sub("[()]", "", first["tree"]) == SENTENCE
    scorer = ModelScorer.from_pretrained(str(models / "stack"), device="cpu")
    (trace,) = scorer.trace([SENTENCE.split()])
    np.testing.assert_allclose(first["push_strength"], trace.signals["push_strength"], atol=1e-5)
    assert first["distances"] == first["push_strength"]
    lines = (tmp_path / "t.mrg").read_text().splitlines()
    assert lines == [first["brackets"], second["brackets"]]
    status, out, _ = run(capsys, "parse", models / "stack", SENTENCE)
    assert status == 0
    assert out.splitlines()[0] == first["tree"]
    assert "push strength" in out
    # Ordinary text is split as the model's tokenizer splits it.
    (parse,) = run_json(capsys, "parse", models / "stack", "a cat sleeps.")["parses"]
    assert {key: parse[key] for key in ("words", "tree")} == {key: second[key] for key in ("words", "tree")}
    np.testing.assert_allclose(parse["push_strength"], second["push_strength"], atol=1e-5)  # of another batch


def test_parse_with_several_heads(capsys, models, tmp_path):
    """Their mean makes the tree and stands in the table; the record has each head."""
    tokenizer = ModelScorer.from_pretrained(str(models / "stack"), device="cpu").tokenizer
    fields = {"memory_size": 8, "num_heads": 4, "pop_control": "expected_value"}
    StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), **fields)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (parse,) = run_json(capsys, "parse", tmp_path, SENTENCE)["parses"]
    heads = [parse[f"push_strength_head_{i}"] for i in range(4)]
    np.testing.assert_allclose(parse["distances"], np.mean(heads, axis=0), rtol=1e-5)
    _, out, _ = run(capsys, "parse", tmp_path, SENTENCE)
    assert "push strength" in out
    assert "head" not in out


def test_lines_of_progress_where_no_bar_is_shown(capsys, monkeypatch):
    monkeypatch.setattr("stack_lm.core.console.SECONDS", 0.0)
    for total, quiet in ((3, False), (None, False), (3, True)):
        with progress("scoring", total, quiet=quiet) as advance:
            advance(1)
            advance(2)
    assert capsys.readouterr().err.splitlines() == ["scoring: 1 of 3", "scoring: 3 of 3", "scoring: 1", "scoring: 3"]


def test_parse_reads_files_and_standard_input(capsys, models, tmp_path, monkeypatch):
    path = tmp_path / "s.txt"
    path.write_text("the dog sleeps .\n\na cat waits .\n")
    from_file = run_json(capsys, "parse", models / "stack", "--data", path)
    assert [p["words"][1:2] for p in from_file["parses"]] == [["dog"], [], ["cat"]]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(path.read_bytes())))
    assert run_json(capsys, "parse", models / "stack", "-")["parses"] == from_file["parses"]
    limited = run_json(capsys, "parse", models / "stack", "--data", path, "--limit", 2)
    assert limited["parses"] == from_file["parses"][:2]
    _, out, _ = run(capsys, "parse", models / "stack", "--data", path)
    assert out.splitlines() == [parse["tree"] for parse in from_file["parses"]]  # also "" for the empty line


def test_parse_with_several_models(capsys, models, tmp_path):
    stack = str(models / "stack")
    command = ("parse", stack, SENTENCE, "--ensemble", stack, stack)
    result = run_json(capsys, *command, "--output", tmp_path / "t.mrg")
    assert result["models"] == [stack] * 3
    assert result["agreement"] == [100, 100, 100]
    (parse,) = result["parses"]
    assert set(parse["runs"]) == {parse["tree"]}
    assert parse["tree"] == run_json(capsys, "parse", stack, SENTENCE)["parses"][0]["tree"]
    assert (tmp_path / "t.mrg").read_text().strip() == parse["brackets"]
    status, out, _ = run(capsys, *command)
    assert status == 0
    assert "mean F1 with the other models" in out


def test_parse_with_the_model_that_agrees_most(capsys, models, tmp_path):
    other = shutil.copytree(models / "stack", tmp_path / "other")
    model = StackRNNForCausalLM.from_pretrained(other)
    (memory,) = memories(model)
    torch.nn.init.normal_(memory.controls.projection.weight)
    model.save_pretrained(other)
    command = ("parse", other, SENTENCE, "--ensemble", models / "stack", models / "stack", "--choose")
    result = run_json(capsys, *command, "--output", tmp_path / "t.mrg")
    alone = run_json(capsys, "parse", models / "stack", SENTENCE)["parses"][0]
    assert result["agreement"][0] < result["agreement"][1]
    assert result["chosen"] == str(models / "stack")
    assert result["parses"][0]["tree"] == alone["tree"]
    assert (tmp_path / "t.mrg").read_text().strip() == alone["brackets"]
    assert f"{models / 'stack'} (chosen)" in run(capsys, *command)[1]
    status, _, error = run(capsys, "parse", models / "stack", SENTENCE, "--choose")
    assert (status, error) == (
        2,
        "stack-lm: error: --choose needs three models or more, because two agree equally; got 1\n",
    )


def test_parse_f1_of_a_collapsed_model(capsys, models, treebank, tmp_path):
    command = ("--data", treebank, "--convention", "prpn")
    collapsed = shutil.copytree(models / "stack", tmp_path / "collapsed")
    model = StackRNNForCausalLM.from_pretrained(collapsed)
    (memory,) = memories(model)
    torch.nn.init.zeros_(memory.controls.projection.weight)
    model.save_pretrained(collapsed)
    note = "its push strength hardly varies between words (sd 0.000), so its trees mean little\n"
    for options in ((), ("--dropout-samples", "2")):
        assert f"{collapsed}: {note}" in run(capsys, "parse-f1", collapsed, *command, *options)[2]
    assert "hardly varies" not in run(capsys, "parse-f1", models / "stack", *command)[2]


def test_parse_f1(capsys, models, treebank, tmp_path):
    command = ("parse-f1", models / "stack", "--data", treebank, "--convention", "prpn", "--baselines")
    result = run_json(capsys, *command)
    (system,) = result["systems"]
    assert {key: result[key] for key in system} == system
    assert (result["convention"], system["n_sentences"]) == ("prpn", 40)
    assert 0 < system["f1"] < result["baselines"]["best binary trees"]["f1"]
    assert {"left", "right", "balanced", "random distances", "random merges"} <= set(result["baselines"])
    assert system["punctuation"] == "removed after parsing"
    assert {"NP", "VP", "S"} <= set(system["label_recall"])
    status, out, err = run(capsys, *command)
    assert status == 0
    assert f"{system['f1']:.2f}" in out
    assert "convention prpn" in out
    assert "signal push_strength" in err
    # The model's trees through a file score the same.
    sentences = tmp_path / "s.txt"
    sentences.write_text("".join(" ".join(s.words) + "\n" for s in generate_corpus(40, seed=8)))
    assert run(capsys, "parse", models / "stack", "--data", sentences, "--output", tmp_path / "p.mrg")[0] == 0
    for convention in ("prpn", "merrill"):
        one = run_json(capsys, "parse-f1", models / "stack", "--data", treebank, "--convention", convention)
        two = run_json(capsys, "parse-f1", tmp_path / "p.mrg", "--data", treebank, "--convention", convention)
        assert one["systems"][0]["f1"] == two["systems"][0]["f1"]
    before = run_json(capsys, *command[:-1], "--rule", "punctuation=before", "--decoder", "gap", "--max-words", 8)
    assert before["systems"][0]["punctuation"] == "removed before parsing"
    assert before["systems"][0]["n_sentences"] < 40


def write_agreement(directory):
    (directory / "a.text").write_text("the dogs near the cat are . <eos>\nthe cat xyzzes <eos>\na cat is . <eos>\n")
    (directory / "a.gold").write_text("5\tare\tis\t1\n2\txyzzes\txyzz\t0\n2\tis\tare\t0\n")
    return ("--data", directory, "--format", "linzen-gulordava")


def test_agreement(capsys, models, tmp_path):
    data = write_agreement(tmp_path)
    result = run_json(capsys, "agreement", models / "lstm", *data)
    assert (result["n"], result["n_skipped"], result["n_oov"], result["oov"]) == (2, 1, 1, "skip")
    assert result["accuracy"] in (0, 50, 100)
    assert {k: v["n"] for k, v in result["by"]["attractors"].items()} == {"0": 1, "1": 1}
    assert result["by_attractors"] == {k: v["accuracy"] for k, v in result["by"]["attractors"].items()}
    assert result["by"]["number"]["plural"]["n"] == 1
    assert result["interval"][0] <= result["accuracy"] <= result["interval"][1]
    wrong = run_json(capsys, "agreement", models / "lstm", *data, "--oov", "wrong")
    assert (wrong["n"], wrong["accuracy"]) == (3, pytest.approx(result["accuracy"] * 2 / 3))
    status, out, _ = run(capsys, "agreement", models / "stack", *data)
    assert status == 0
    assert "attractors: 1" in out
    assert "left out: 1 of 3 (1 with a word outside the vocabulary)" in out


def test_the_score_follows_from_the_table_of_items(capsys, models, tmp_path):
    data = write_agreement(tmp_path)
    table = tmp_path / "items.tsv"
    result = run_json(capsys, "agreement", models / "lstm", *data, "--items", table)
    rows = list(csv.DictReader(table.read_text().splitlines(), delimiter="\t"))
    assert [row["prefix"] for row in rows] == ["the dogs near the cat", "the cat", "a cat"]
    scored = [row for row in rows if row["outcome"] not in ("oov", "identical", "unpredicted")]
    correct = [float(row["logprob_correct"]) > float(row["logprob_wrong"]) for row in scored]
    assert 100 * sum(correct) / len(correct) == result["accuracy"]
    run_json(capsys, "agreement", models / "lstm", *data, "--items", table.with_suffix(".CSV"))
    assert list(csv.DictReader(table.with_suffix(".CSV").read_text().splitlines())) == rows
    assert run_json(capsys, "agreement", table.with_suffix(".CSV"), *data)["n"] == result["n"]
    # Another model's table stands for the model.
    found = run_json(capsys, "agreement", models / "stack", *data, "--against", table)
    one = found["comparison"]
    assert one == run_json(capsys, "agreement", models / "stack", *data, "--against", models / "lstm")["comparison"]
    assert (found["against"]["runs"][0]["accuracy"], len(found["runs"])) == (result["accuracy"], 1)
    assert one["n"] == 2
    assert {one["accuracy_first"], one["accuracy_second"]} <= {0, 50, 100}
    assert "McNemar: right alone" in run(capsys, "agreement", models / "stack", *data, "--against", table)[1]
    own = run_json(capsys, "agreement", table, *data)
    assert own == {**result, "model": str(table), "command": own["command"]}
    table.write_text(table.read_text().replace("a cat", "a dog"))
    status, _, err = run(capsys, "agreement", models / "stack", *data, "--against", table)
    assert (status, "row 3: another item: prefix is 'a dog', here 'a cat'" in err) == (2, True)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Tables of four runs' outcomes on six items: two of one model, two of another."""
    directory = tmp_path_factory.mktemp("outcomes")
    items = "".join(f"the dogs {'near the cat ' * (i % 2)}sleep . <eos>\n" for i in range(6))
    (directory / "a.text").write_text(items)
    (directory / "a.gold").write_text("".join(f"{2 + 3 * (i % 2)}\tsleep\tsleeps\t{i % 2}\n" for i in range(6)))
    columns = ["item", "prefix", "correct", "wrong", "attractors", "number"]
    for name, right in {"a0": "111100", "a1": "111110", "b0": "100000", "b1": "110000"}.items():
        rows = [[*columns, "logprob_correct", "logprob_wrong", "outcome"]]
        for i, correct in enumerate(right):
            prefix = "the dogs" + " near the cat" * (i % 2)
            row = [i + 1, prefix, "sleep", "sleeps", i % 2, "plural", -2.0, -3.0 if correct == "1" else -1.0]
            rows.append([*row, "correct" if correct == "1" else "wrong"])
        (directory / f"{name}.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return directory


def test_agreement_of_several_runs(capsys, outcomes):
    data = ("--data", outcomes, "--format", "linzen-gulordava")
    command = ("agreement", outcomes / "a0.tsv", outcomes / "a1.tsv", *data)
    against = ("--against", outcomes / "b0.tsv", outcomes / "b1.tsv")
    result = run_json(capsys, *command, *against)
    assert [run["accuracy"] for run in result["runs"]] == pytest.approx([400 / 6, 500 / 6])
    assert result["spread"]["mean"] == pytest.approx(75)
    assert result["spread"]["by"]["attractors"]["0"]["runs"] == pytest.approx([200 / 3, 100])
    assert [run["accuracy"] for run in result["against"]["runs"]] == pytest.approx([100 / 6, 200 / 6])
    comparison = result["comparison"]
    assert (comparison["difference"], comparison["n_items"]) == (pytest.approx(50), 6)
    assert comparison["low"] < 50 < comparison["high"]
    assert comparison["by"]["attractors"]["1"]["difference"] == pytest.approx(50)
    status, out, _ = run(capsys, *command, *against)
    assert status == 0
    assert "agreement accuracy in % of 2 runs" in out
    assert "attractors: 1" in out
    assert "+50.00" in out
    assert "over 2 and 2 runs and the items that all of them scored: min F' (Clark 1973)" in out
    assert "comparison" not in run_json(capsys, *command)


def test_runs_that_score_other_items(capsys, outcomes, tmp_path):
    """With its vocabulary, the first run can score no item with an attractor."""
    lines = (outcomes / "a0.tsv").read_text().splitlines(keepends=True)
    changed = [line.replace("\tcorrect\n", "\toov\n").replace("\twrong\n", "\toov\n") for line in lines[2::2]]
    lines[2::2] = changed
    first = tmp_path / "first.tsv"
    first.write_text("".join(lines))
    command = ("agreement", first, outcomes / "a1.tsv", "--data", outcomes, "--format", "linzen-gulordava")
    status, out, err = run(capsys, *command, "--by", "number", "--by", "attractors")
    assert (status, err, "number: plural" in out) == (0, "", True)
    rows = [line for line in out.splitlines() if "attractors: " in line]
    assert ["attractors: 0" in rows[0], "attractors: 1" in rows[1], len(rows)] == [True, True, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a0", "a0"], "a0.tsv is given twice"),
        (["a0", "a1", "--against", "b0"], "two or more runs of a model with two or more of another; got 2 and 1"),
        (["a0", "a1", "--items", "x"], "--items takes the items of one model; got 2 models"),
        (["a0", "--by", "color"], "--by must be one of attractors, number; got 'color'"),
    ],
)
def test_runs_that_cannot_be_compared(capsys, outcomes, arguments, message):
    named = [f"{outcomes / argument}.tsv" if argument[0] in "ab" else argument for argument in arguments]
    status, out, err = run(capsys, "agreement", *named, "--data", outcomes, "--format", "linzen-gulordava")
    assert (status, out) == (2, "")
    assert message in err


def test_runs_without_variance_have_no_interval(capsys, outcomes, tmp_path):
    data = ("--data", outcomes, "--format", "linzen-gulordava")
    text = (outcomes / "a0.tsv").read_text()
    right = text.replace("-1.0\twrong", "-3.0\tcorrect")
    for name in ("r0", "r1"):
        (tmp_path / name).write_text(right)
        (tmp_path / f"w{name}").write_text(right.replace("-3.0\tcorrect", "-1.0\twrong"))
    runs = (tmp_path / "r0", tmp_path / "r1", *data, "--against", tmp_path / "wr0", tmp_path / "wr1")
    comparison = run_json(capsys, "agreement", *runs)["comparison"]
    assert comparison["difference"] == 100
    assert [comparison[name] for name in ("low", "high", "p_value")] == [None, None, None]
    status, out, _ = run(capsys, "agreement", *runs)
    assert (status, "no variance" in out, "nan" in out) == (0, True, False)


def test_a_broken_table_of_outcomes(capsys, outcomes, tmp_path):
    data = ("--data", outcomes, "--format", "linzen-gulordava")
    table = tmp_path / "t.tsv"
    for old, new, message in (
        ("-2.0", "low", "row 1: could not convert string to float: 'low'"),
        ("logprob_wrong", "wrongly", "is not a table written by --items: it has no column 'logprob_wrong'"),
        ("wrong\n", "false\n", "an outcome must be one of"),
    ):
        table.write_text((outcomes / "a0.tsv").read_text().replace(old, new))
        status, _, err = run(capsys, "agreement", table, *data)
        assert status == 2
        assert message in err


def test_minimal_pairs(capsys, models, tmp_path):
    lines = [{"good": f"the {a} sleeps.", "bad": f"the {a} sleep.", "construction": a} for a in ("dog", "cat")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "b.jsonl").write_text('{"good": 1}\n')
    command = ("minimal-pairs", models / "stack", "--format", "pairs")
    result = run_json(capsys, *command, "--data", tmp_path / "a.jsonl", "--items", tmp_path / "i.tsv")
    assert (result["n"], result["words"], set(result["by"]["construction"])) == (2, "given", {"dog", "cat"})
    assert "\tthe dog sleeps.\t" in (tmp_path / "i.tsv").read_text()
    status, out, err = run(capsys, *command, "--data", tmp_path)
    assert (status, out) == (2, "")
    assert "b.jsonl, line 1: 'good' must be a sentence" in err
    # What can be read is still scored, and the command fails.
    status, out, err = run(capsys, *command, "--data", tmp_path, "--keep-going")
    assert status == 2
    assert "construction: dog" in out
    assert "mean over constructions" in out
    status, out, _ = run(capsys, command[0], models / "lstm", *command[1:], "--data", tmp_path / "a.jsonl")
    assert (status, "mean over constructions" in out) == (0, True)  # of two runs
    assert "something was left out: " in err
    status, out, err = run(capsys, *command, "--data", tmp_path / "b.jsonl", "--keep-going")
    assert (status, out) == (2, "")
    status, _, err = run(capsys, *command, "--data", tmp_path / "a.jsonl", "--by", "size")
    assert (status, "--by must be one of construction; got 'size'" in err) == (2, True)


def test_suites(capsys, models, tmp_path):
    conditions = [
        {
            "condition_name": name,
            "regions": [{"region_number": 1, "content": "the dog"}, {"region_number": 2, "content": verb}],
        }
        for name, verb in (("good", "sleeps"), ("bad", "zzz"))
    ]
    items = [{"item_number": 7, "conditions": conditions}]
    content = {
        "predictions": [{"formula": "(2;%good%) < (2;%bad%)"}, {"formula": "(1;%good%) = (1;%bad%)"}],
        "items": items,
    }
    for name in ("number_a", "npi_b", "own"):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    files = [tmp_path / f"{name}.json" for name in ("number_a", "npi_b", "own")]
    result = run_json(capsys, "suites", models / "stack", *files, "--items", tmp_path / "i.tsv")
    assert list(result["means"]) == ["agreement", "licensing", "all circuits", "all files"]
    assert result["means"]["all files"]["n"] == 3
    assert result["suites"][0]["by_prediction"] in (50.0, 100.0)
    assert [suite["n_unknown"] for suite in result["suites"]] == [1, 1, 1]
    rows = (tmp_path / "i.tsv").read_text().splitlines()
    assert rows[0] == "suite\titem\tprediction\tformula\tbits\tholds"
    assert rows[2].startswith("number_a\t7\t2\t(1;%good%) = (1;%bad%)\t(1;%good%) ")
    assert rows[2].endswith("\t1")
    status, out, _ = run(capsys, "suites", models / "stack", files[2], "--formula", "(2;%good%) < (2;%bad%)")
    assert (status, "means over suites" in out) == (0, False)
    for arguments, message in (
        ((files[0], "--formula", "(3;%good%) < 1"), "item 7: the region of a formula must be one of 1, 2; got '3'"),
        ((files[0], "--formula", "good < bad"), "number_a.json: not a formula: 'good < bad'"),
        ((tmp_path / "none.json",), "none.json does not exist"),
    ):
        status, out, err = run(capsys, "suites", models / "stack", *arguments)
        assert (status, out, message in err) == (2, "", True), err


def test_contrasts(capsys, tmp_path):
    table = tmp_path / "words.csv"
    rows = ["item,condition,verb,model,sentence,position,word,surprisal"]
    for model in "xy":
        for item in range(4):
            for i, condition in enumerate(("short", "long")):
                words = [("the", 1.0), ("dog", 2.0 + i * (item + 1)), ("slept", 3.0)]
                rows += [
                    f"{item},{condition},2,{model},{2 * item + i + 1},{place},{word},{bits}"
                    for place, (word, bits) in enumerate(words, start=1)
                ]
    table.write_text("\n".join(rows))
    command = ("contrasts", table, "--item", "item", "--by", "condition")
    result = run_json(capsys, *command, "--region", "verb", "--pattern", "dog slept", "--items", tmp_path / "i.tsv")
    assert [(each["model"], each["region"]) for each in result["regions"][:2]] == [("x", "verb"), ("x", "dog slept")]
    for region, mean in zip(result["regions"][:2], (2.0, 5.0), strict=True):
        assert region["means"][0]["difference"] == mean
        assert region["contrasts"]["long - short"]["difference"] == pytest.approx(2.5)
    assert "y\tverb\t3\tcontrast\tlong - short\t4.0\n" in (tmp_path / "i.tsv").read_text()
    status, out, _ = run(capsys, *command, "--region", "verb:verb+1")
    assert (status, "a model has no subjects" in out) == (0, True)
    for arguments, message in (
        ((), "give a --region or a --pattern"),
        (("--region", "verb", "--by", "item", "model"), "--by takes one or two columns; got 3"),
        (("--region", "verb", "--column", "entropy"), "words.csv: a column must be one of item, "),
        (("--pattern", "("), "--pattern"),
    ):
        status, out, err = run(capsys, *command, *arguments)
        assert (status, out, message in err) == (2, "", True), err


def test_properties_of_minimal_pairs(capsys, models, tmp_path):
    """Numbers and text of the same digits are one group; names of the table's own columns change in it."""
    pair = {"good": "the dog sleeps .", "bad": "the dog sleep ."}
    lines = [pair | {"level": level} for level in (1, "1", 2)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ("minimal-pairs", models / "stack", "--format", "pairs", "--data")
    result = run_json(capsys, *command, tmp_path / "a.jsonl")
    assert {value: group["n"] for value, group in result["by"]["level"].items()} == {"1": 2, "2": 1}
    table = tmp_path / "i.tsv"
    for name in ("item", "outcome", "logprob_bad"):
        lines = [pair | {name: value} for value in ("x", "y")]
        (tmp_path / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        of_model = run_json(capsys, *command, tmp_path / "b.jsonl", "--items", table)
        assert f"\t{name}_input\t" in table.read_text().splitlines()[0]
        of_table = run_json(capsys, "minimal-pairs", table, *command[2:], tmp_path / "b.jsonl", "--words", "given")
        assert of_table["by"] == of_model["by"]
        assert list(of_table["by"]) == [name]
    (tmp_path / "b.jsonl").write_text(json.dumps(pair | {"file": "x"}) + "\n")
    status, _, err = run(capsys, *command, tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert (status, "a property 'file', which groups items of several files" in err) == (2, True)


def test_any_model(capsys, tmp_path):
    """A model of another architecture, with a byte-level tokenizer."""
    tokenizer, model, data = byte_level_tokenizer(), tmp_path / "model", tmp_path / "data"
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=64)
    for part in (GPT2LMHeadModel(config), tokenizer):
        part.save_pretrained(model)
    data.mkdir()
    result = run_json(capsys, "agreement", model, *write_agreement(data))
    assert (result["n"], result["n_oov"]) == (3, 0)
    (data / "p.jsonl").write_text('{"good": "the dog sleeps.", "bad": "the dog sleep."}\n')
    pairs = run_json(capsys, "minimal-pairs", model, "--data", data, "--format", "pairs")
    assert (pairs["n"], pairs["words"]) == (1, "given")
    (data / "t.txt").write_text("the dog sleeps .\n")
    assert run_json(capsys, "perplexity", model, "--data", data / "t.txt")["perplexity"] > 1


def test_perplexity(capsys, models, tmp_path):
    result = run_json(capsys, "perplexity", models / "stack", "--data", "generated:600", "--held-out", 60)
    records = (models / "stack" / "metrics.jsonl").read_text().splitlines()
    trained = json.loads(records[-1])
    # The sentences that training held out, scored by the other path.
    assert result["n_tokens"] == trained["eval_tokens"]
    assert np.log(result["perplexity"]) == pytest.approx(trained["eval_nats_per_token"], rel=1e-4)
    assert result["n_inner_tokens"] == trained["eval_inner_tokens"] == result["n_tokens"] - 120
    assert result["inner_perplexity"] == pytest.approx(trained["eval_inner_perplexity"], rel=1e-4)
    path = tmp_path / "t.txt"
    path.write_text("the dog sleeps .\na cat waits .\n")
    status, out, _ = run(capsys, "perplexity", models / "lstm", "--data", path)
    assert status == 0
    assert "2 sentences, 8 words" in out
    assert run_json(capsys, "perplexity", models / "lstm", "--data", path, "--limit", 1)["n_tokens"] == 5


def test_perplexities_of_several_models(capsys, models, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("the dog sleeps .\na cat waits .\nthe cats wait .\n")
    stack, lstm = models / "stack", models / "lstm"
    result = run_json(capsys, "perplexity", stack, "--against", lstm, "--data", path)
    ours, other = result["runs"][0], result["against"]["runs"][0]
    alone = run_json(capsys, "perplexity", stack, "--data", path)
    assert ours == {name: value for name, value in alone.items() if name in ours}
    difference = 100 * (ours["perplexity"] / other["perplexity"] - 1)
    assert result["comparison"]["token"]["difference"] == pytest.approx(difference)
    status, out, _ = run(capsys, "perplexity", stack, lstm, "--data", path)
    assert status == 0
    assert "difference" not in out
    assert f"{(ours['perplexity'] + other['perplexity']) / 2:,.2f}" in out
    status, out, _ = run(capsys, "perplexity", stack, "--against", lstm, "--data", path)
    assert f"{difference:+.2f}" in out
    assert "paired t-test" in out
    byte_level_tokenizer().save_pretrained(tmp_path / "bytes")
    StackRNNForCausalLM(tiny_config(vocab_size=400)).save_pretrained(tmp_path / "bytes")
    found = run_json(capsys, "perplexity", stack, tmp_path / "bytes", "--data", path)
    assert "perplexity" not in found["spread"]  # of a token: the two have other tokens
    other_words = shutil.copytree(lstm, tmp_path / "other")
    tokenizer = json.loads((other_words / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["Zeppelin"] = vocabulary.pop("cat")
    (other_words / "tokenizer.json").write_text(json.dumps(tokenizer))
    status, out, err = run(capsys, "perplexity", stack, "--against", other_words, "--data", path)
    assert (status, "difference" in out) == (2, False)
    assert f"{ours['perplexity']:,.2f}" in out  # what has taken long is not lost
    assert "of the words are unknown to these models, so their perplexities are not comparable" in err
    for paths, message in (
        ((stack, "--against", stack), "is given twice"),
        ((stack, lstm, "--against", path), "2 and 1"),
    ):
        status, _, err = run(capsys, "perplexity", *paths, "--data", path)
        assert status == 2
        assert message in err


def test_a_model_in_the_folder_of_models_is_suggested(capsys, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(models)
    status, _, err = run(capsys, "parse", "stack", "the dog sleeps .")
    assert status == 2
    assert err.rstrip().endswith("did you mean models/stack?")


def test_ordinary_text_where_a_line_is_a_sentence_gets_a_note(capsys, models, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("The dog sleeps. The cat waits.\n" * 3 + "The dog sleeps.\n")
    _, _, err = run(capsys, "perplexity", models / "lstm", "--data", path)
    assert "75% of the lines of" in err
    assert "--segmentation raw" in err
    assert (
        "several sentences"
        not in run(capsys, "perplexity", models / "lstm", "--data", path, "--segmentation", "raw")[2]
    )
    note = "3 lines seem to have several sentences (1, 2, 3); a model reads a row as one sentence"
    for arguments in (("surprisal", models / "lstm", "--data", path), ("parse", models / "stack", "--data", path)):
        status, _, err = run(capsys, *arguments)
        assert status == 0
        assert note in err


@pytest.mark.slow
def test_demo(capsys, tmp_path):
    command = ("demo", "--output", tmp_path / "demo", "--limit", 2500, "--epochs", 1)
    result = run_json(capsys, *command)
    assert result.pop("command").startswith("stack-lm demo --output ")
    assert {"stack", "lstm", "perplexity", "agreement", "parsing", "parse", "strengths", "seconds"} == set(result)
    assert set(result["parsing"]["baselines"]) >= {"left", "right", "random distances"}
    assert json.loads((tmp_path / "demo" / "metrics.json").read_text()) == result
    assert (tmp_path / "demo" / "strengths.png").stat().st_size > 10_000
    status, out, _ = run(capsys, *command)  # an earlier demo is replaced
    assert status == 0
    assert "agreement accuracy" in out
    assert run(capsys, "parse", tmp_path / "demo" / "stack", SENTENCE)[0] == 0


def test_every_command_is_listed_with_its_own_summary(capsys):
    assert make_parser(["--help"]).format_help() == make_parser().format_help()
    for name, summary in COMMANDS.items():
        with pytest.raises(SystemExit):
            main([name, "--help"])
        out = capsys.readouterr().out
        assert f"\n\n{summary[0].upper()}{summary[1:]}.\n" in unfolded(out)
        assert f"stack-lm {name}" in out.partition("example:\n")[2]
    folder = Path(commands.__file__).parent
    texts = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    defining = {name for name, text in texts.items() if "\nEXAMPLE = " in text and "\nSUMMARY = " not in text}
    assert defining == {name.replace("-", "_") for name in COMMANDS}


def unfolded(text):
    """Without the line breaks inside paragraphs."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def test_version_and_help():
    def shell(*arguments):
        command = [sys.executable, "-m", "stack_lm.cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert shell("--version").stdout == f"stack-lm {__version__}\n"
    top = shell("--help").stdout
    for command in ("demo", "parse", "parse-f1", "agreement", "minimal-pairs", "perplexity"):
        assert f"\n  {command} " in top
    assert "example:\n  stack-lm parse-f1" in shell("parse-f1", "--help").stdout
    wrong = shell("parse")
    assert wrong.returncode == 2
    assert "the following arguments are required: MODEL" in wrong.stderr


@pytest.mark.parametrize(
    "usage", ["parse MODEL [SENTENCE ...]", "parse-f1 [MODEL ...] --data TREEBANK", "train KIND ..."]
)
def test_arguments_come_first_in_usage_lines(capsys, usage):
    with pytest.raises(SystemExit):
        main([usage.split()[0], "--help"])
    assert capsys.readouterr().out.startswith(f"usage: stack-lm {usage} [options]\n")


@pytest.mark.parametrize(("command", "most"), [("interventions", 12), ("parse", 15), ("surprisal", 19)])
def test_commands_have_few_options(capsys, command, most):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    options = re.findall(r"^  (?:-\w, )?(?:-\w \S+, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
    assert len({*options} - {"--help", "--json", "--import"}) <= most


# --- bad input: one clear line, exit status 2, nothing written


def bad_inputs(directory, models, treebank):
    empty, malformed, words = directory / "empty.txt", directory / "bad.mrg", directory / "unknown.txt"
    empty.write_text("")
    malformed.write_text("(S (NP (DT the)\n")
    words.write_text("qwx zzk\n")
    stack, lstm = models / "stack", models / "lstm"
    f1 = ("parse-f1", stack, "--data")
    return [
        (("parse", directory / "none", "a"), "cannot load a language model from .*none"),
        (("parse", stack), "no sentence: give one or more, or --data F"),
        (("parse", stack, "a b", "--data", empty), "give sentences or --data, not both"),
        (("parse", stack, "the dog", "qwx zzk"), "sentence 2 has no word that the model knows: 'qwx zzk'"),
        (("parse", lstm, "the dog"), r"the model has no memory \(memory='none'\)"),
        ((*f1, treebank, "--convention", "best"), "convention must be one of 'prpn', .*, 'uuas'; got 'best'"),
        ((*f1, malformed, "--convention", "prpn"), "bad.mrg: the tree that starts on line 1 lacks 2 closing brackets"),
        (("parse-f1", "--data", treebank, "--convention", "prpn"), "give a MODEL, a file of trees"),
        ((*f1, treebank, "--convention", "prpn", "--max-words", "1"), "no sentence has at most 1 words that count"),
        (
            ("perplexity", stack, "--data", words, "--seed", "1"),
            "--seed chooses the sentences of --held-out; give both",
        ),
        (("perplexity", stack, "--data", words), "every word of the text is unknown to the model.*'qwx zzk'"),
        (("demo", "--output", directory), "is neither empty nor an earlier demo"),
        (("demo", "--output", directory / "new", "--limit", "100"), "--limit must be more than 2000; got 100"),
    ]


def test_bad_input(capsys, models, treebank, tmp_path):
    for arguments, message in bad_inputs(tmp_path, models, treebank):
        there = sorted(path.name for path in tmp_path.iterdir())
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (2, ""), arguments
        assert err.count("\n") == 1, err
        assert re.search(f"^stack-lm: error: .*{message}", err), (arguments, err)
        assert sorted(path.name for path in tmp_path.iterdir()) == there, arguments


@pytest.mark.slow
def test_a_closed_pipe_is_no_traceback(models):
    command = f"{sys.executable} -m stack_lm.cli.main parse {models / 'stack'} {' '.join(['a'] * 2000)} | head -c 20"
    run_ = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in run_.stderr


def test_arguments_of_a_list_may_follow_options(capsys, models, tmp_path):
    tree = tmp_path / "tree.mrg"
    status, _, err = run(capsys, "parse", models / "stack", "--output", tree, "a cat sleeps .")
    assert status == 0, err
    assert "cat" in tree.read_text()
    with pytest.raises(SystemExit):
        run(capsys, "parse", models / "stack", "--outptu", tree, "a cat sleeps .")
    assert "unrecognized arguments: --outptu" in capsys.readouterr().err
