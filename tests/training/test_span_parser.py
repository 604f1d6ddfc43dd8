"""`stack-lm train parser` as a user types it: votes, what it learns, resuming, and bad input."""

import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from stack_lm import Parser
from stack_lm.cli.main import main as stack_lm
from stack_lm.core.errors import InputError
from stack_lm.parsing import read_predictions
from stack_lm.parsing.baselines import left_branching, right_branching
from stack_lm.parsing.distances import tree_from_distances
from stack_lm.parsing.ensemble import vote_by_words
from stack_lm.parsing.trees import ConstituencyTree
from stack_lm.text import generate_corpus
from stack_lm.training.votes import read_votes

SMALL = [
    "model.embedding_size=16",
    "model.hidden_size=24",
    "model.span_size=24",
    "model.num_layers=1",
    "model.dropout=0",
]
SMALL += [
    "model.embedding_dropout=0",
    "tokenizer.vocab_size=400",
    "training.learning_rate=0.01",
    "training.batch_size=8",
]


def tree(words, *spans):
    return ConstituencyTree.unlabelled(words.split(), spans)


def write(path, trees):
    path.write_text("".join(f"{each.nltk_tree().pformat(margin=10**9)}\n" for each in trees))
    return path


@pytest.fixture(scope="module")
def gold(tmp_path_factory):
    """Trees of generated English."""
    sentences = list(generate_corpus(400))
    trees = [ConstituencyTree.from_nltk(sentence.tree) for sentence in sentences]
    return write(tmp_path_factory.mktemp("trees") / "gold.mrg", trees)


@pytest.fixture(scope="module")
def parser(gold, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "parser"
    assert (
        stack_lm(["train", "parser", f"data.trees=[{gold}]", *SMALL, "training.epochs=5", f"output_dir={output}"]) == 0
    )
    return output


def test_votes_are_shares(tmp_path):
    words = "a b c d"
    one = write(
        tmp_path / "1.mrg", [tree(words, (0, 4), (0, 2), (2, 4)), tree("a b", (0, 2)), tree("x y z", (0, 3), (1, 3))]
    )
    two = write(
        tmp_path / "2.mrg", [tree(words, (0, 4), (1, 4), (2, 4)), tree("a b", (0, 2)), tree("x y z", (0, 3), (0, 2))]
    )
    (first, second), _ = read_votes([str(one), str(two)])  # two words have one tree
    assert first.votes.by_span() == {(0, 4): 2, (2, 4): 2, (0, 2): 1, (1, 4): 1}
    matrix = first.matrix(6)
    assert matrix.shape == (6, 6)
    assert matrix[1, 4] == 0.5
    assert matrix.sum() == 3
    assert first.tree() in (tree(words, (0, 4), (0, 2), (2, 4)), tree(words, (0, 4), (1, 4), (2, 4)))
    with_prior = read_votes([str(one), str(two)], "right-branching")[0][1]
    assert with_prior.matrix(4)[1, 3] == pytest.approx(2 / 3)
    assert with_prior.tree() == right_branching("x y z".split())
    two_votes = read_votes([str(one), str(two)], "right-branching", prior_votes=2)[0][1]
    assert two_votes.matrix(4)[1, 3] == pytest.approx(3 / 4)
    assert second.words == ("x", "y", "z")


@given(st.data())
def test_the_elected_tree_is_that_of_the_ensemble(data):
    """A tree votes once for a span of words, whatever punctuation its own spans have there; and ties stay ties."""
    words = data.draw(st.lists(st.sampled_from(["a", "b", ",", ".", "-LRB-"]), min_size=3, max_size=9))
    n_voters = data.draw(st.integers(1, 10))
    distances = st.lists(st.integers(0, 4), min_size=len(words), max_size=len(words))
    trees = [tree_from_distances(words, data.draw(distances), "gap") for _ in range(n_voters)]
    with tempfile.TemporaryDirectory() as folder:
        files = [str(write(Path(folder) / f"{i}.mrg", [one])) for i, one in enumerate(trees)]
        ((sentence,), _) = read_votes(files)
    assert sentence.tree() == vote_by_words(trees)


def test_sentences_without_a_tree_are_left_out(gold, tmp_path, capsys):
    """`stack-lm parse --output` writes an empty line for a sentence without words that the model knows."""
    lines = gold.read_text().splitlines(keepends=True)[:300]
    for name, missing in (("1.mrg", (2, 5, 299)), ("2.mrg", (5, 7)), ("3.jsonl", ())):
        trees = [None if i in missing else line for i, line in enumerate(lines)]
        if name.endswith(".jsonl"):
            rows = [json.dumps({"words": [], "brackets": "" if i == 9 else line}) for i, line in enumerate(trees)]
            (tmp_path / name).write_text("\n".join(rows) + "\n")
        else:
            (tmp_path / name).write_text("".join(line or "\n" for line in trees))
    files = [str(tmp_path / name) for name in ("1.mrg", "2.mrg", "3.jsonl")]
    sentences, notes = read_votes(files)
    rest = [line for i, line in enumerate(lines) if i not in (2, 5, 7, 9, 299)]
    (tmp_path / "rest.mrg").write_text("".join(rest))
    assert [one.words for one in sentences] == [one.words for one in read_votes([str(tmp_path / "rest.mrg")])[0]]
    assert notes == [
        f"5 of 300 sentences are left out because a file has no tree for them, such as {files[0]} for sentence 3"
    ]
    arguments = ["train", "parser", f"data.trees=[{','.join(files)}]", *SMALL, "training.max_steps=2"]
    assert stack_lm([*arguments, f"output_dir={tmp_path / 'run'}"]) == 0
    assert notes[0] in capsys.readouterr().err


def test_brackets_are_read_as_files_of_trees_escape_them(parser, tmp_path):
    """`stack-lm parse --output` writes "-LRB-" to .mrg, and "(" to the words of JSON lines."""
    (tmp_path / "1.mrg").write_text("(X (X (X -LRB-) (X a)) (X -RRB-))\n")
    row = {"words": ["(", "a", ")"], "distances": [0, 1, 2]}
    (tmp_path / "2.jsonl").write_text(json.dumps(row) + "\n")
    (sentence,), _ = read_votes([str(tmp_path / "1.mrg"), str(tmp_path / "2.jsonl")])
    assert sentence.words == ("-LRB-", "a", "-RRB-")
    read = Parser.from_pretrained(str(parser), device="cpu")
    raw, escaped = "the dog ( a cat ) runs .".split(), "the dog -LRB- a cat -RRB- runs .".split()
    one, two = read([raw, escaped])
    assert one.tree.words == tuple(raw)
    assert one.tree.spans == two.tree.spans
    probabilities = read.scorer.probabilities(list(read.scorer.encode([raw, escaped])))
    np.testing.assert_array_equal(*probabilities)


def test_a_voter_unlike_the_others_has_no_vote(gold, tmp_path, capsys):
    trees = [tree for tree in read_predictions(str(gold)) if len(tree) > 4]
    fair, failed = (str(tmp_path / f"{name}.mrg") for name in ("fair", "failed"))
    write(tmp_path / "fair.mrg", trees)
    write(tmp_path / "failed.mrg", [left_branching(tree.words) for tree in trees])
    files = [fair, fair, failed, fair]
    sentences, notes = read_votes(files, None, 0.85)
    assert len(notes) == 1
    assert notes[0].startswith(f"{failed} has no vote: its mean F1 with the others, ")
    assert all((sentence.votes.counts == sentence.total).all() for sentence in sentences)
    everyone, notes = read_votes(files)
    assert not notes
    assert any((sentence.votes.counts < sentence.total).any() for sentence in everyone)
    assert read_votes([fair, failed], None, 0.85)[1] == []  # two cannot show which has failed
    for number, file in enumerate(files):
        (tmp_path / f"{number}-{Path(file).name}").write_text(Path(file).read_text())
    arguments = ["train", "parser", f"data.trees={tmp_path}/?-*.mrg", *SMALL, "training.max_steps=2"]
    assert stack_lm([*arguments, f"output_dir={tmp_path / 'run'}"]) == 0
    assert "failed.mrg has no vote" in capsys.readouterr().err
    assert stack_lm([*arguments, f"output_dir={tmp_path / 'all'}", "data.outlier_share=0"]) == 0
    assert "no vote" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_parser_learns_trees(parser, capsys, tmp_path):
    records = [json.loads(line) for line in (parser / "metrics.jsonl").read_text().splitlines()]
    losses = [record["eval_loss"] for record in records if "eval_loss" in record]
    assert losses == sorted(losses, reverse=True)
    sentences = [s for s in generate_corpus(200, seed=5) if len(s.words) > 4]
    new = write(tmp_path / "new.mrg", [ConstituencyTree.from_nltk(s.tree) for s in sentences])
    capsys.readouterr()
    arguments = ["--data", str(new), "--convention", "prpn", "--baselines", "--json"]
    assert stack_lm(["parse-f1", str(parser), *arguments]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["f1"] > 70 > 55 > scores["baselines"]["balanced"]["f1"]
    assert scores["signal"] is None
    # Every way to parse has the same trees.
    file = tmp_path / "new.txt"
    file.write_text("".join(" ".join(s.words) + "\n" for s in sentences))
    found = Parser.from_pretrained(str(parser), device="cpu")([list(s.words) for s in sentences])
    assert stack_lm(["parse", str(parser), "--data", str(file), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [parse["tree"] for parse in printed["parses"]] == [str(parse) for parse in found]
    assert stack_lm(["parse", str(parser), "the dog sleeps ."]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_a_run_goes_on_exactly(gold, tmp_path):
    def train(output, *more):
        arguments = ["train", "parser", f"data.trees=[{gold}]", *SMALL, "model.dropout=0.3", f"output_dir={output}"]
        assert stack_lm([*arguments, "data.limit=80", "data.held_out=20", "training.threads=1", *more]) == 0
        return load_file(output / "model.safetensors")

    whole = train(tmp_path / "whole", "training.epochs=2")
    train(tmp_path / "parts", "training.epochs=1")
    parts = train(tmp_path / "parts", "training.epochs=2", "--resume")
    for name, weights in whole.items():
        torch.testing.assert_close(parts[name], weights, rtol=0, atol=0)


def test_bad_input(gold, parser, tmp_path, capsys):
    shorter = tmp_path / "shorter.mrg"
    shorter.write_text("".join(gold.read_text().splitlines(keepends=True)[:-1]))
    lines = gold.read_text().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    other = tmp_path / "other.mrg"
    other.write_text("".join(lines))
    short = write(tmp_path / "short.mrg", [tree("a b", (0, 2))])
    for arguments, message in (
        ([], "data.trees must name a file of trees, or one for each voter: data.trees=[a.mrg, b.mrg]"),
        (["data.trees=a.mrg", "data.prior_votes=2"], "data.prior_votes needs data.prior: data.prior=right-branching"),
        ([f"data.trees=[{gold}, {shorter}]"], "has 400 trees, but"),
        ([f"data.trees=[{gold}, {other}]"], "have different words in tree"),
        ([f"data.trees={tmp_path}/none*.mrg"], "no file matches "),
        ([f"data.trees={gold}", f"data.validation={short}"], "short.mrg: no sentence has three words or more"),
        (
            [f"data.trees=[{gold}]", "tokenizer.add_eos=false"],
            "tokenizer must have tokens that begin and end sentences",
        ),
    ):
        output = tmp_path / "run"
        assert stack_lm(["train", "parser", *arguments, f"output_dir={output}"]) != 0
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert message in error, (arguments, error)
        assert not output.exists()
    for name in ("signal=push_strength", "decoder=gap", "layer=0", "dropout-samples=2", "word-strength=sum"):
        key, _, value = name.partition("=")
        assert stack_lm(["parse", str(parser), "the dog", f"--{key}", value]) != 0
        assert f"it takes no {key.replace('-', '_')} (--{key})" in capsys.readouterr().err
    long = ["a"] * 2001
    with pytest.raises(InputError, match="sentence 2 has 2,001 words; a span parser reads at most 2,000"):
        Parser.from_pretrained(str(parser), device="cpu")([["the", "dog"], long])
    with pytest.raises(InputError, match="language model"):
        from stack_lm import ModelScorer

        ModelScorer.from_pretrained(str(parser), device="cpu")
