"""The command line, as a user types it."""

import json
import re
import subprocess
import sys
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import REAL_DATA, needs_real_data

from stack_lm import ModelScorer, __version__
from stack_lm.cli import main
from stack_lm.data.generated import generate_corpus
from stack_lm.training import DataConfig, LoopConfig, RunConfig, TokenizerConfig, Trainer

SENTENCE = "the dog that the cats fear chases a rabbit ."


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A stack model and an LSTM, each trained for a second on generated English."""
    directory = tmp_path_factory.mktemp("models")
    for name, memory in (("stack", "stack"), ("lstm", "none")):
        config = RunConfig(
            output_dir=str(directory / name),
            model={"memory": memory, "hidden_size": 20, "embedding_size": 10},
            tokenizer=TokenizerConfig(lowercase="none"),
            data=DataConfig(source="generated:600", held_out=60),
            training=LoopConfig(epochs=1, learning_rate=1e-2),
        )
        Trainer(config, quiet=True).train()
    return directory


@pytest.fixture(scope="session")
def treebank(tmp_path_factory):
    path = tmp_path_factory.mktemp("treebank") / "generated.mrg"
    trees = [" ".join(str(s.tree).split()) for s in generate_corpus(40, seed=8)]
    path.write_text("".join(f"( {tree} )\n" for tree in trees))
    return path


def run(capsys, *arguments):
    """Exit status, standard output and standard error of a command."""
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def run_json(capsys, *arguments):
    status, out, err = run(capsys, *arguments, "--json")
    assert status == 0, err
    assert out.count("\n") == 1
    return json.loads(out)


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


def test_parse_reads_files_and_standard_input(capsys, models, tmp_path, monkeypatch):
    path = tmp_path / "s.txt"
    path.write_text("the dog sleeps .\n\na cat waits .\n")
    from_file = run_json(capsys, "parse", models / "stack", "--file", path)
    assert [p["words"][1] for p in from_file["parses"]] == ["dog", "cat"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(path.read_bytes())))
    assert run_json(capsys, "parse", models / "stack", "-")["parses"] == from_file["parses"]


def test_parse_f1(capsys, models, treebank, tmp_path):
    command = ("parse-f1", models / "stack", "--treebank", treebank, "--convention", "prpn", "--baselines")
    result = run_json(capsys, *command)
    (system,) = result["systems"]
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
    assert run(capsys, "parse", models / "stack", "--file", sentences, "--output", tmp_path / "p.mrg")[0] == 0
    for convention in ("prpn", "merrill"):
        one = run_json(capsys, "parse-f1", models / "stack", "--treebank", treebank, "--convention", convention)
        two = run_json(
            capsys, "parse-f1", "--predictions", tmp_path / "p.mrg", "--treebank", treebank, "--convention", convention
        )
        assert one["systems"][0]["f1"] == two["systems"][0]["f1"]
    before = run_json(capsys, *command[:-1], "--punctuation", "before", "--decoder", "gap", "--max-length", 8)
    assert before["systems"][0]["punctuation"] == "removed before parsing"
    assert before["systems"][0]["n_sentences"] < 40


def test_agreement(capsys, models, tmp_path):
    (tmp_path / "a.text").write_text("the dogs near the cat sleep . <eos>\nthe cat xyzzes <eos>\n")
    (tmp_path / "a.gold").write_text("5\tare\tis\t1\n2\txyzzes\txyzz\t0\n")
    result = run_json(capsys, "agreement", models / "lstm", "--data", tmp_path, "--format", "linzen-gulordava")
    assert result["accuracy"] in (0, 100)
    assert result["by_attractors"] == {"1": result["accuracy"]}
    assert (result["n"], result["n_skipped"], result["n_oov"], result["oov"]) == (1, 1, 1, "skip")
    wrong = run_json(
        capsys, "agreement", models / "lstm", "--data", tmp_path, "--format", "linzen-gulordava", "--oov", "wrong"
    )
    assert (wrong["n"], wrong["accuracy"]) == (2, result["accuracy"] / 2)
    status, out, _ = run(capsys, "agreement", models / "stack", "--data", tmp_path, "--format", "linzen-gulordava")
    assert status == 0
    assert "1 attractors" in out
    assert "out of vocabulary" in out


def test_perplexity(capsys, models, tmp_path):
    result = run_json(capsys, "perplexity", models / "stack", "--data", "generated:600", "--held-out", 60)
    records = (models / "stack" / "metrics.jsonl").read_text().splitlines()
    trained = json.loads(records[-1])
    # The sentences that training held out, scored by the other path.
    assert result["n_tokens"] == trained["eval_tokens"]
    assert result["nats_per_token"] == pytest.approx(trained["eval_nats_per_token"], rel=1e-4)
    assert result["perplexity"] == pytest.approx(np.exp(result["nats_per_token"]))
    path = tmp_path / "t.txt"
    path.write_text("the dog sleeps .\na cat waits .\n")
    status, out, _ = run(capsys, "perplexity", models / "lstm", "--data", path)
    assert status == 0
    assert "2 sentences, 8 words" in out
    assert run_json(capsys, "perplexity", models / "lstm", "--data", path, "--limit", 1)["n_tokens"] == 3


@pytest.mark.slow
def test_demo(capsys, tmp_path):
    command = ("demo", "--output", tmp_path / "demo", "--sentences", 2500, "--epochs", 1)
    result = run_json(capsys, *command)
    assert {"stack", "lstm", "parsing", "figure", "seconds"} == set(result)
    assert set(result["parsing"]["f1"]) >= {"stack RNN", "left branching", "right branching", "random distances"}
    assert json.loads((tmp_path / "demo" / "metrics.json").read_text()) == result
    assert (tmp_path / "demo" / "strengths.png").stat().st_size > 10_000
    status, out, _ = run(capsys, *command)  # an earlier demo is replaced
    assert status == 0
    assert "agreement accuracy" in out
    assert run(capsys, "parse", tmp_path / "demo" / "stack", SENTENCE)[0] == 0


def test_version_and_help():
    def shell(*arguments):
        command = [sys.executable, "-m", "stack_lm.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert shell("--version").stdout == f"stack-lm {__version__}\n"
    top = shell("--help").stdout
    for command in ("demo", "parse", "parse-f1", "agreement", "perplexity"):
        assert f"\n    {command}" in top
    assert "example:\n  stack-lm parse-f1" in shell("parse-f1", "--help").stdout
    wrong = shell("parse")
    assert wrong.returncode == 2
    assert "the following arguments are required: MODEL" in wrong.stderr


@pytest.mark.parametrize("command", ["demo", "parse", "parse-f1", "agreement", "perplexity"])
def test_every_command_shows_an_example(capsys, command):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"example:\n  stack-lm {command}" in capsys.readouterr().out


# --- bad input: one clear line, exit status 2, nothing written


def bad_inputs(directory, models, treebank):
    empty, malformed, words = directory / "empty.txt", directory / "bad.mrg", directory / "unknown.txt"
    empty.write_text("")
    malformed.write_text("(S (NP (DT the)\n")
    words.write_text("qwx zzk\n")
    short = directory / "short.mrg"
    short.write_text("(X (X a) (X b))\n")
    stack, lstm = models / "stack", models / "lstm"
    f1 = ("parse-f1", stack, "--treebank")
    linzen = ("--format", "linzen-gulordava")
    return [
        (("parse", directory / "none", "a"), "cannot load a language model from .*none"),
        (("parse", stack), "no sentence to parse: give one or more, or --file F"),
        (("parse", stack, "a b", "--file", empty), "give sentences or --file, not both"),
        (("parse", stack, "--file", directory / "none.txt"), "none.txt does not exist"),
        (("parse", stack, "--file", empty), "empty.txt is empty"),
        (("parse", stack, " "), "sentence 1 is empty"),
        (("parse", stack, "the dog", "qwx zzk"), "sentence 2 has no word that the model knows: 'qwx zzk'"),
        (("parse", stack, "a b", "--decoder", "best"), "--decoder must be one of algorithm1, gap; got 'best'"),
        (("parse", stack, "a b", "--signal", "peep"), "--signal must be one of push_strength.*; got 'peep'"),
        (("parse", lstm, "the dog"), r"the model has no memory \(memory='none'\)"),
        (("parse", stack, "the dog", "--output", directory), "is a directory; a file name is needed"),
        (("parse", stack, "the dog", "--output", empty / "x"), "cannot make the directory"),
        ((*f1, treebank, "--convention", "best"), "convention must be one of prpn, .*, evalb; got 'best'"),
        ((*f1, directory / "none.mrg", "--convention", "prpn"), "none.mrg does not exist"),
        ((*f1, empty, "--convention", "prpn"), "empty.txt is empty"),
        ((*f1, malformed, "--convention", "prpn"), "bad.mrg: the tree that starts on line 1 lacks 2 closing brackets"),
        (("parse-f1", "--treebank", treebank, "--convention", "prpn"), "give a MODEL, or --predictions FILE"),
        (
            ("parse-f1", "--predictions", short, "--treebank", treebank, "--convention", "prpn"),
            "short.mrg has 1 trees, but .*generated.mrg has 40",
        ),
        ((*f1, treebank, "--convention", "prpn", "--max-length", "1"), "no sentence has at most 1 words that count"),
        (("agreement", stack, "--data", directory / "none", *linzen), "none.text does not exist"),
        (("agreement", stack, "--data", empty, "--format", "csv"), "format must be one of linzen.*; got 'csv'"),
        (("perplexity", stack, "--data", directory / "none.txt"), "none.txt does not exist"),
        (("perplexity", stack, "--data", empty), "empty.txt is empty"),
        (("perplexity", stack, "--data", words), "every word of the text is unknown to the model.*'qwx zzk'"),
        (("perplexity", stack, "--data", words, "--held-out", "-1"), "--held-out must be more than 0; got -1"),
        (("perplexity", stack, "--data", words, "--device", "warp"), "cannot use the device 'warp'"),
        (("demo", "--output", directory), "is not empty and no earlier demo"),
        (("demo", "--output", empty), "is a file; a directory is needed"),
        (("demo", "--output", directory / "new", "--sentences", "100"), "--sentences must be more than 2000; got 100"),
    ]


def test_bad_input(capsys, models, treebank, tmp_path):
    for arguments, message in bad_inputs(tmp_path, models, treebank):
        there = sorted(path.name for path in tmp_path.iterdir())
        status, out, err = run(capsys, *arguments)
        assert (status, out) == (2, ""), arguments
        assert err.count("\n") == 1, err
        assert re.search(f"^stack-lm: error: .*{message}", err), (arguments, err)
        assert sorted(path.name for path in tmp_path.iterdir()) == there, arguments


def test_a_treebank_of_unknown_words_only(capsys, models, tmp_path):
    path = tmp_path / "t.mrg"
    path.write_text("(S (NN qwx) (NN zzk))\n")
    status, _, err = run(capsys, "parse-f1", models / "stack", "--treebank", path, "--convention", "merrill")
    assert status == 2
    assert "stack knows no word of" in err


def test_a_truncated_model_is_one_line(capsys, models, tmp_path):
    import shutil

    shutil.copytree(models / "stack", tmp_path / "m")
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    status, _, err = run(capsys, "parse", tmp_path / "m", "the dog")
    assert status == 2
    assert re.fullmatch("stack-lm: error: cannot load a language model from .*\n", err)


def test_a_closed_pipe_is_no_traceback(models):
    command = f"{sys.executable} -m stack_lm.cli parse {models / 'stack'} {' '.join(['a'] * 2000)} | head -c 20"
    run_ = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in run_.stderr


@needs_real_data
def test_evalb_on_the_authors_parses(capsys):
    directory = REAL_DATA / "parsing" / "evalb_wsj_sample"
    result = run_json(
        capsys, "parse-f1", "--predictions", directory / "parses.tst", "--treebank", directory / "parses.gld",
        "--convention", "evalb",
    )  # fmt: skip
    rounded = tuple(round(result["systems"][0][key], 2) for key in ("recall", "precision", "f1"))
    assert rounded == (28.43, 32.93, 30.51)
