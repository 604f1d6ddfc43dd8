"""`stack-lm inspect` and `stack-lm strengths`, as a user types them."""

import csv
import re
import sys
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import run, run_json, tiny_config

from stack_lm import ModelScorer, StackRNNForCausalLM, train_word_tokenizer
from stack_lm.memory import NeuralStack, register_memory
from stack_lm.parsing import read_treebank
from stack_lm.text.generated import generate_corpus

SENTENCE = "the dog that the cats fear chases a rabbit ."


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Untrained models that know the words of the generated English; `stack` has strengths that differ."""
    directory = tmp_path_factory.mktemp("models")
    tokenizer = train_word_tokenizer([(s.words, None) for s in generate_corpus(2000)])
    kinds = {"stack": {"pop_control": 1.0}, "lstm": {"memory": "none"}, "superposition": {
        "memory": "superposition", "num_stacks": 2
    }, "deque": {"memory": "deque"}, "nondeterministic": {
        "memory": "nondeterministic", "memory_size": 0
    }, "sigmoid": {
        f"{name}_control": "sigmoid" for name in ("push", "pop", "read")
    }}  # fmt: skip
    for name, fields in kinds.items():
        model = StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), **fields))
        for parameter in model.parameters():
            parameter.data *= 4
        model.save_pretrained(directory / name)
        tokenizer.save_pretrained(directory / name)
    return directory


def test_inspect(capsys, models, tmp_path):
    page, figure, distributions = (tmp_path / name for name in ("p.html", "f.png", "d.svg"))
    arguments = (
        *("inspect", models / "stack", SENTENCE, "--output", page, "--figure", figure),
        *("--distributions", distributions),
    )
    found = run_json(capsys, *arguments)
    scorer = ModelScorer.from_pretrained(str(models / "stack"), device="cpu")
    words = SENTENCE.split()
    (trace,) = scorer.trace([words])
    assert found["words"] == words
    np.testing.assert_allclose(found["push_strength"], trace.signals["push_strength"], atol=1e-5)
    np.testing.assert_allclose(found["contents"], scorer.memory_contents(words), atol=1e-5)
    assert np.shape(found["read_distribution"]) == (10, 4)
    np.testing.assert_allclose(found["logprobs"], trace.logprobs, atol=1e-5)
    assert (found["memory"], found["controls"]["pop"]) == ("stack", "fixed to 1")
    assert (found["signal"], found["decoder"]) == ("push_strength", "algorithm1")
    assert re.sub("[()]", "", found["tree"]) == SENTENCE
    zone = scorer.dead_zone(words)
    assert found["dead_zone"]["own_share"] == pytest.approx(zone.own_share, abs=1e-5)
    assert {*found["dead_zone"]["gradients"]} == {"push_strength", "read_strength"}
    assert found["written"] == [str(page), str(figure), str(distributions)]
    assert SENTENCE in page.read_text()
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in distributions.read_text()
    status, out, _ = run(capsys, "inspect", models / "stack", SENTENCE, "--output", page)
    assert status == 0
    assert re.sub("[()]", "", out.splitlines()[0]) == SENTENCE
    assert f"\n{zone}\nwritten: {page}" in out


def test_a_sentence_after_options_or_from_standard_input(capsys, models, tmp_path, monkeypatch):
    pages = [tmp_path / f"{i}.html" for i in range(3)]
    for text, arguments in ((b"", [SENTENCE]), (SENTENCE.encode() + b"\n\n", ["-"])):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(text)))
        assert run(capsys, "inspect", models / "stack", "--output", pages.pop(), *arguments)[0] == 0
    one, two = (page.read_text() for page in sorted(tmp_path.glob("*.html")))
    assert one == two
    assert SENTENCE.split()[1] in one
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(b"a cat\na dog\n")))
    status, _, err = run(capsys, "inspect", models / "stack", "-", "--output", pages.pop())
    assert (status, err.count("standard input has 2 lines")) == (2, 1)


def test_inspect_beside_gold(capsys, models, treebank, tmp_path):
    page = tmp_path / "p.html"
    found = run_json(capsys, "inspect", models / "stack", "--data", treebank, "--sentence", 3, "--output", page)
    assert found["words"] == list(read_treebank(str(treebank))[2].words)
    assert "and the gold tree" in page.read_text()
    assert "predicted spans are right" in page.read_text()


@pytest.mark.parametrize(("model", "shown"), [("superposition", "operation"), ("deque", "push strength top")])
def test_inspect_shows_memories_that_make_no_trees_action_by_action(capsys, models, tmp_path, model, shown):
    page, figure = tmp_path / "p.html", tmp_path / "f.png"
    arguments = ("inspect", models / model, SENTENCE, "--output", page)
    found = run_json(capsys, *arguments, "--figure", figure)
    (trace,) = ModelScorer.from_pretrained(str(models / model), device="cpu").trace([SENTENCE.split()])
    for name, values in trace.actions[0].items():
        np.testing.assert_allclose(found[name], values, atol=1e-5)
    assert (found["memory"], found["written"]) == (model, [str(page), str(figure)])
    assert ("dead_zone" in found) == (model == "deque")
    assert shown in page.read_text()
    assert figure.read_bytes().startswith(b"\x89PNG")
    status, out, _ = run(capsys, *arguments)
    assert (status, shown.split()[0] in out) == (0, True)


def test_inspect_shows_actions_where_elements_are_not_one_for_each_step(capsys, models, tmp_path, registries):
    @register_memory("other")
    class Other(NeuralStack):
        """Has an element before the first step."""

        def initial_state(self, batch_size, length=None, **kwargs):
            empty = super().initial_state(batch_size, length, **kwargs)
            size = empty.values.shape[2]
            return empty._replace(
                values=empty.values.new_zeros(batch_size, 1, size), strengths=empty.strengths.new_zeros(batch_size, 1)
            )

    scorer = ModelScorer.from_pretrained(str(models / "stack"), device="cpu")
    StackRNNForCausalLM(tiny_config(vocab_size=len(scorer.tokenizer), memory="other")).save_pretrained(tmp_path / "m")
    scorer.tokenizer.save_pretrained(tmp_path / "m")
    found = run_json(capsys, "inspect", tmp_path / "m", SENTENCE, "--output", tmp_path / "page.html")
    assert len(found["push_strength"]) == len(SENTENCE.split())
    assert "contents" not in found


def test_inspect_shows_the_run_of_a_nondeterministic_stack(capsys, models, treebank, tmp_path):
    page, figure = tmp_path / "p.html", tmp_path / "f.png"
    arguments = ("inspect", models / "nondeterministic", SENTENCE, "--output", page)
    found = run_json(capsys, *arguments, "--figure", figure)
    (trace,) = ModelScorer.from_pretrained(str(models / "nondeterministic"), device="cpu").trace([SENTENCE.split()])
    assert found["run"]["moves"] == list(trace.run.moves)
    assert found["run"]["depths"] == trace.run.depths.tolist()
    assert (found["signal"], found["decoder"]) == ("run_depth", "gap")
    assert re.sub("[()]", "", found["tree"]) == SENTENCE
    assert figure.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert found["tree"] in text
    assert "move of the most probable run" in text
    assert "push weight" not in text  # of every possible move
    status, out, _ = run(capsys, *arguments, "--decoder", "algorithm1")
    assert status == 0
    for row, move, depth in zip(out.splitlines()[4:], trace.run.moves, trace.run.depths, strict=False):
        cells = [cell.strip() for cell in row.split("│")]
        assert (cells[3], cells[6]) == (move, str(depth))
    gold = ("--data", treebank, "--sentence", 3)
    run_json(capsys, "inspect", models / "nondeterministic", *gold, "--output", page)
    assert "and the gold tree" in page.read_text()
    status, _, err = run(capsys, *arguments, "--signal", "push_strength")
    assert (status, err.count("no signal 'push_strength' to parse with; there are: run_depth")) == (2, 1)
    found = run_json(capsys, "strengths", models / "nondeterministic", "--data", treebank)
    assert (found["signal"], found["n_sentences"]) == ("run_depth", 40)
    found = run_json(capsys, "parse-f1", models / "nondeterministic", "--data", treebank, "--convention", "prpn")
    assert (found["signal"], found["decoder"]) == ("run_depth", "gap")


def test_inspect_shows_the_surprisal_of_a_model_without_a_memory(capsys, models, tmp_path):
    page, figure = tmp_path / "p.html", tmp_path / "f.png"
    arguments = ("inspect", models / "lstm", f"{SENTENCE} qwx", "--output", page)
    found = run_json(capsys, *arguments, "--figure", figure)
    (trace,) = ModelScorer.from_pretrained(str(models / "lstm"), device="cpu").trace([[*SENTENCE.split(), "qwx"]])
    np.testing.assert_allclose(found["surprisal"], -trace.logprobs / np.log(2), atol=1e-5)
    assert (found["memory"], found["unknown"]) == ("none", [False] * 10 + [True])
    for value in found["surprisal"]:
        assert f">{value:.2f}</td>" in page.read_text()
    assert "surprisal (bits)" in page.read_text()
    assert figure.read_bytes().startswith(b"\x89PNG")
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert "surprisal (bits)" in out
    assert "qwx (unknown)" in out


def test_a_model_of_sigmoids_has_no_distributions(capsys, models, tmp_path):
    found = run_json(capsys, "inspect", models / "sigmoid", SENTENCE, "--output", tmp_path / "p.html")
    assert "push_distribution" not in found
    assert "distribution" not in (tmp_path / "p.html").read_text()
    status, _, err = run(
        capsys, "inspect", models / "sigmoid", SENTENCE, "--output", tmp_path / "q.html",
        "--distributions", tmp_path / "d.png",
    )  # fmt: skip
    assert (status, list(tmp_path.iterdir())) == (2, [tmp_path / "p.html"])  # nothing half-written
    assert "no strength of the model is an expected value" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stack"], "no sentence to inspect: give one, or --data PATH and --sentence N"),
        (["stack", "--sentence", "1"], "--sentence says which sentence of --data is shown"),
        (["stack", "--data", "TREEBANK"], "--data needs --sentence N"),
        (["stack", "qwx zzy"], "the sentence has no word that the model knows: 'qwx zzy'"),
        (["stack", SENTENCE, "--figure", "x.png", "--distributions", "x.png"], "must be different files"),
        (["lstm", SENTENCE, "--signal", "push_strength"], "the model has no memory"),
        (["lstm", SENTENCE, "--decoder", "gap"], "the model has no memory"),
    ],
)
def test_bad_input_of_inspect(capsys, models, treebank, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    model, *rest = [str(treebank) if argument == "TREEBANK" else argument for argument in arguments]
    status, out, err = run(capsys, "inspect", models / model, *rest)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_strengths(capsys, models, treebank, tmp_path):
    items, figure = tmp_path / "items.tsv", tmp_path / "f.png"
    found = run_json(
        capsys, "strengths", models / "stack", "--data", treebank, "--items", items, "--figure", figure
    )  # fmt: skip
    assert figure.read_bytes().startswith(b"\x89PNG")
    with open(items, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert (found["n_sentences"], found["n_words"]) == (40, len(rows))
    trees = read_treebank(str(treebank))
    assert len(rows) + found["n_unknown"] == sum(map(len, trees))
    # Anybody can recompute the groups from the items.
    for name, wanted in {
        "all words": lambda row: True,
        "nouns": lambda row: row["tag"].startswith("NN"),
        "transitive verbs": lambda row: row["frame"] == "transitive",
        "intransitive verbs": lambda row: row["frame"] == "intransitive",
    }.items():
        values = [float(row["push_strength"]) for row in rows if wanted(row)]
        assert found["groups"][name]["n"] == len(values)
        assert found["groups"][name]["mean"] == pytest.approx(np.mean(values))
    assert [(c["first"], c["second"]) for c in found["contrasts"]] == [
        ("verbs", "nouns"), ("transitive verbs", "intransitive verbs"), ("clausal verbs", "intransitive verbs"),
    ]  # fmt: skip
    scorer = ModelScorer.from_pretrained(str(models / "stack"), device="cpu")
    (trace,) = scorer.trace([trees[0].words])
    first = [float(row["push_strength"]) for row in rows if row["sentence"] == "1"]
    np.testing.assert_allclose(first, trace.signals["push_strength"][~trace.unknown], atol=1e-5)
    status, out, _ = run(capsys, "strengths", models / "stack", "--data", treebank, "--limit", 10)
    assert status == 0
    assert f"10 sentences of {treebank}" in out
    assert "transitive verbs" in out


def test_strengths_of_a_tagged_corpus(capsys, models, tmp_path):
    arguments = ("strengths", models / "stack", "--data", "generated:200:5")
    found = run_json(capsys, *arguments, "--figure", tmp_path / "f.svg")
    assert {"nouns", "verbs", "determiners"} < set(found["groups"])
    assert "transitive verbs" not in found["groups"]
    status, _, err = run(capsys, *arguments)
    assert status == 0
    assert "no trees to show which verbs have an object" in err


def test_strengths_of_universal_dependencies(capsys, tmp_path, models):
    def row(number, word, tag):
        return "\t".join([str(number), word, "_", tag, *["_"] * 6])

    sentence = [row(1, "the", "DET"), row(2, "dog", "NOUN"), row(3, "sleeps", "VERB"), row(4, ".", "PUNCT")]
    path = tmp_path / "a.conllu"
    path.write_text("\n".join([*sentence, ""] * 30) + "\n")
    found = run_json(capsys, "strengths", models / "stack", "--data", path)
    assert found["n_sentences"] == 30
    assert [found["groups"][name]["n"] for name in ("nouns", "verbs", "determiners")] == [30, 30, 30]
    path.write_text("\n".join(sentence).replace("NOUN", "_") + "\n")
    status, _, err = run(capsys, "strengths", models / "stack", "--data", path)
    assert status != 0
    assert "sentence 1: a word has no universal tag (column 4)" in err


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("stack", ["--data", "UNTAGGED"], "the tree has no part-of-speech tags"),
        ("stack", ["--data", "UNKNOWN"], "knows no word of"),
        ("lstm", ["--data", "generated:20"], "the model has no memory"),
    ],
)
def test_bad_input_of_strengths(capsys, models, tmp_path, model, arguments, message):
    files = {"UNTAGGED": "(X (X the) (X dog))\n", "UNKNOWN": "(NP (DT qqq) (NN zzz))\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    arguments = [str(tmp_path / argument) if argument in files else argument for argument in arguments]
    status, out, err = run(capsys, "strengths", models / model, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
