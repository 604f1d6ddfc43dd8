"""`stack-lm parse-f1` on trees from files, as a user types it."""

import csv
import json
import re

import numpy as np
import pytest
from conftest import needs_real_data

from stack_lm.cli.main import main
from stack_lm.parsing import CONVENTIONS, read_treebank, right_branching
from stack_lm.parsing.averages import corpus_scores, sentence_scores

TREES = [
    "( (S (NP-SBJ (DT the) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .)) )",
    "( (S (NP (NNP Ann)) (VP (VBZ is) (ADJP (RB very) (JJ old))) (. .)) )",
    "( (NP (DT a) (NN dog) (CC and) (DT a) (NN cat)) )",
    "( (SBARQ (WHADVP (WRB why)) (SQ (VBZ is) (NP (PRP she)) (VP (VBG going) (ADVP (RB away)))) (. ?)) )",
]
RIGHT = [
    "(the (old (cat (sat (on (it .))))))",
    "(Ann (is (very (old .))))",
    "(a (dog (and (a cat))))",
    "(why (is (she (going (away ?)))))",
]


@pytest.fixture
def gold(tmp_path):
    path = tmp_path / "gold.mrg"
    path.write_text("\n".join(TREES) + "\n")
    return path


@pytest.fixture
def right(tmp_path):
    path = tmp_path / "right.jsonl"
    path.write_text("".join(json.dumps({"binary_parse": tree}) + "\n" for tree in RIGHT))
    return path


@pytest.fixture
def run(capsys, gold):
    def run(*arguments, convention="prpn", treebank=gold):
        capsys.readouterr()
        command = ["parse-f1", "--data", treebank, "--convention", convention, *arguments]
        status = main([str(argument) for argument in command])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def run_json(run):
    def run_json(*arguments, **options):
        status, out, err = run(*arguments, "--json", **options)
        assert status == 0, err
        assert out.count("\n") == 1
        return json.loads(out)

    return run_json


@pytest.mark.parametrize("convention", [name for name in CONVENTIONS if name != "uuas"])
def test_the_gold_trees_score_100(run_json, gold, convention):
    changed = ["--rule", "gold=annotated"] if CONVENTIONS[convention].gold != "annotated" else []
    (system,) = run_json(gold, *changed, convention=convention)["systems"]
    assert system["f1"] == pytest.approx(100, abs=1e-4)


def test_options_change_the_rules_and_say_so(run, run_json, right):
    kept = run_json(right, "--rule", "punctuation=kept", "--rule", "whole_sentence=counted")
    assert kept["changes"] == {"removed": "nothing", "whole_sentence": "counted"}
    assert kept["words_removed"] == 0
    short = run_json(right, "--max-words", "5")
    assert short["systems"][0]["n_sentences"] == 3
    corpus = run_json(right, "--rule", "average=corpus")
    assert corpus["systems"][0]["f1"] == run_json(right, convention="corpus")["systems"][0]["f1"]
    _, out, _ = run(right, "--rule", "gold=left", "--rule", "min_words=2")
    assert "convention prpn (Shen et al. 2018: PRPN, ON-LSTM), but gold: left, but min words: 2" in out
    assert "removed: punctuation+currency, by tags (13.0% of the tokens); gold trees: left" in out


def test_the_report_says_how_words_are_removed(run, right, gold, tmp_path):
    """By their form where trees have no tags, whatever the convention."""
    out = run(right, treebank=right)[1].replace("\n", " ")
    assert "removed: punctuation+currency, by tokens, as trees have no tags (13" in out
    some = tmp_path / "some.mrg"
    untagged = [re.sub(r"[^\s()]+", r"(X \g<0>)", tree).replace("((", "(X (") for tree in RIGHT[:2]]
    some.write_text("\n".join([*untagged, *TREES[2:]]) + "\n")
    assert "by tags, or by tokens in 2 trees without (13" in run(right, treebank=some)[1]
    assert "removed: period, by tokens" in run(right, "--rule", "removed=period")[1]


def test_parameters(tmp_path, run, run_json, gold, right):
    path = tmp_path / "my.prm"
    path.write_text("DELETE_LABEL .\nCUTOFF_LEN 6\nDELETE_LABEL_FOR_LENGTH .\n")
    (system,) = run_json(gold, "--rule", f"parameters={path}", convention="evalb")["systems"]
    assert system["evalb"]["tagging_accuracy"] == 100
    assert system["evalb"]["at_most_cutoff_words"]["n_sentences"] == 4
    (system,) = run_json(right, "--rule", f"parameters={path}", convention="evalb")["systems"]
    assert system["labels"] == "ignored"
    _, out, _ = run(right, "--rule", f"parameters={path}", convention="evalb")
    assert "removed: words with a deleted tag (13.0% of the tokens); gold trees" in out
    _, out, _ = run(gold, convention="evalb")
    assert "removed: nothing; gold trees" in out


@pytest.mark.parametrize("extra", [["--against"], ["--ensemble"], []], ids=str)
def test_labels_are_compared_for_all_trees_of_a_report_or_for_none(run, run_json, gold, right, extra):
    _, out, err = run(gold, *extra, right, convention="evalb")
    assert "labels: ignored" in " ".join(out.split())
    assert f"labels are ignored, because {right} has no labels" in " ".join(err.split())
    one, two = run_json(gold, *extra, right, convention="evalb")["systems"]
    assert (one["labels"], two["labels"]) == ("ignored", "ignored")
    _, out, err = run(gold, gold, convention="evalb")
    assert ("labels: compared" in " ".join(out.split()), err) == (True, "")
    (system,) = run_json(gold, "--baselines", convention="evalb")["systems"]
    assert system["labels"] == "ignored"


def test_sentences_without_a_tree_keep_their_places(tmp_path, run, gold):
    """As `parse` writes them, at the end of the file too: an error, or left out."""
    with_empty = TREES[0] + "\n\n" + TREES[2] + "\n\n"
    (tmp_path / "p.mrg").write_text(with_empty)
    records = [{"brackets": line, "spans": []} for line in with_empty.split("\n")[:-1]]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for name, said in (("p.mrg", "line 2: the line is empty"), ("p.jsonl", "line 2: `brackets` is empty")):
        status, _, err = run(tmp_path / name)
        assert (status, said in err) == (2, True)
        status, out, err = run(tmp_path / name, "--keep-going", "--json")
        assert (status, f"{name}, line 4" in err) == (2, True)
        assert json.loads(out)["systems"][0]["n_sentences"] == 2
    (tmp_path / "more.mrg").write_text("\n".join(TREES) + "\n\n\n")
    assert run(tmp_path / "more.mrg")[0] == 0


def test_baselines_and_the_upper_bound(run, run_json, right):
    result = run_json(right, "--baselines")
    assert result["baselines"]["right"]["f1"] == result["systems"][0]["f1"]
    assert max(score["f1"] for score in result["baselines"].values()) == result["baselines"]["best binary trees"]["f1"]
    assert result["baselines"]["random distances"]["f1_std"] >= 0
    _, out, _ = run(right, "--baselines")
    assert "best binary trees" in out


@pytest.mark.parametrize("convention", ["prpn", "corpus"])
def test_items_recompute_the_score(tmp_path, run_json, right, convention):
    path = tmp_path / "items.tsv"
    (system,) = run_json(right, "--items", path, convention=convention)["systems"]
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["words"] for row in rows][:2] == ["the old cat sat on it", "Ann is very old"]
    assert rows[1]["sentence"].endswith("gold.mrg, line 2")
    assert [row["number"] for row in rows] == ["1", "2", "3", "4"]
    run_json(right, "--items", path, "--max-words", 5, convention=convention)
    with open(path, encoding="utf-8", newline="") as file:
        kept = [row["number"] for row in csv.DictReader(file, delimiter="\t")]
    assert kept == [row["number"] for row in rows if int(row["length"]) <= 5] != ["1", "2"]
    counts = np.array([[int(row[f"spans {kind}"]) for kind in ("right", "predicted", "in gold")] for row in rows])
    if convention == "prpn":
        assert 100 * sentence_scores(counts)[:, 2].mean() == pytest.approx(system["f1"])
        assert np.mean([float(row["F1"]) for row in rows]) == pytest.approx(system["f1"])
    else:
        assert 100 * corpus_scores(counts.sum(axis=0))[2] == pytest.approx(system["f1"])


def test_systems_are_compared(run, run_json, gold, right):
    result = run_json(right, "--against", gold)
    (comparison,) = result["comparisons"]
    f1 = [system["f1"] for system in result["systems"]]
    assert (comparison["first"], comparison["second"]) == (str(gold), str(right))
    assert comparison["difference"] == pytest.approx(f1[1] - f1[0])
    assert comparison["low"] <= comparison["difference"] <= comparison["high"]
    status, out, _ = run(right, "--against", gold)
    assert status == 0
    assert f"difference in F1 from {right}, paired bootstrap" in out
    (row,) = (line for line in out.splitlines() if line.startswith(f"│ {gold} ") and "+" in line)
    assert [cell.strip() for cell in row.split("│")][2:5] == [
        f"{comparison[name]:+.2f}" for name in ("difference", "low", "high")
    ]
    assert "10,000 resamples of 4 sentences" in out


def test_tags_of_punctuation_that_the_convention_does_not_know(tmp_path, run, run_json, right):
    own = tmp_path / "own.mrg"
    own.write_text("\n".join(TREES).replace("(. ", "(Punct ") + "\n")
    note = (
        "the convention does not know the tags (Punct) of 3 of 3 punctuation marks, which count as words; "
        "--rule removed_by=tokens removes them by their form\n"
    )
    assert note in run(right, treebank=own)[2]
    assert run(right, "--rule", "removed_by=tokens", treebank=own)[2] == ""
    assert run(right)[2] == ""
    assert run(right, convention="merrill", treebank=own)[2] == ""
    by_token = run_json(right, "--rule", "removed_by=tokens", treebank=own)
    assert by_token["f1"] == run_json(right)["f1"]


def test_trees_are_written(tmp_path, run, right):
    for name in ("t.svg", "t.tex", "t.jsonl", "t.mrg"):
        assert run(right, "--output", tmp_path / name, "--limit", 3)[0] == 0
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 3
    assert read_treebank(str(tmp_path / "t.mrg"))[2].words == ("a", "dog", "and", "a", "cat")
    assert "1 of 3 predicted spans are right" not in (tmp_path / "t.tex").read_text()
    assert (tmp_path / "t.svg").read_text().count("predicted spans are right") == 3


def test_keeping_going(tmp_path, run, gold, right):
    """What is wrong is named, the rest is scored, and the command fails in the end."""
    other, latin = tmp_path / "other.jsonl", tmp_path / "latin.mrg"
    broken = [{"binary_parse": "(the old dog sat on it)"}, {"binary_parse": "(Ann (is"}]
    other.write_text("".join(json.dumps(row) + "\n" for row in broken) + "\n" + json.dumps({"tree": RIGHT[3]}) + "\n")
    latin.write_bytes("(S (NN café))\n".encode("latin-1"))
    status, out, err = run(other, latin, right, "--keep-going", "--json")
    assert status == 2
    result = json.loads(out)
    assert [system["system"] for system in result["systems"]] == [str(other), str(right)]
    assert [system["n_sentences"] for system in result["systems"]] == [1, 4]
    assert result["systems"][0]["n_left_out"] == 3
    assert "other.jsonl, line 2: the tree that starts on line 1 lacks 2 closing brackets" in err
    assert "other.jsonl, line 3: the line is empty" in err
    assert "word 3 is 'dog', in the gold tree 'cat'" in err
    assert "latin.mrg, line 1: not UTF-8 text" in err
    assert err.rstrip().splitlines()[-1].startswith("stack-lm: error: something was left out: ")
    status, out, err = run(other, latin, right)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "parameters=p.prm"], "--rule parameters needs --convention evalb; got prpn"),
        (["--rule", "labels=compared"], "labels can be compared with brackets='multiset' only; got brackets='set'"),
        (["--rule", "avrage=corpus"], "--rule must be one of removed, "),
        (["--rule", "min_words=two"], "--rule min_words must be a whole number; got 'two'"),
        (
            ["--convention", "merrill", "--rule", "removed_by=tokens"],
            "removed_by is for words that are removed",
        ),
        (["--rule", "punctuation=before"], "--rule punctuation=before is for models, and files hold trees already"),
        (
            ["--rule", "punctuation=kept", "--rule", "removed=period"],
            "punctuation=kept and removed=period contradict",
        ),
    ],
)
def test_bad_options(run, right, arguments, message):
    status, out, err = run(right, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_two_systems_cannot_write_one_file(run, right, gold, tmp_path):
    status, _, err = run(right, gold, "--items", tmp_path / "items.tsv")
    assert status == 2
    assert "--output and --items write the trees of one system; got 2" in err
    assert not (tmp_path / "items.tsv").exists()


@needs_real_data
def test_the_reference_baselines_from_a_file(tmp_path, run_json):
    """Right branching on NLTK's sample, as another parser's output: 39.91."""
    trees = read_treebank("nltk:treebank")
    path = tmp_path / "right.mrg"
    path.write_text("".join(right_branching(tree.words).brackets() + "\n" for tree in trees))
    (system,) = run_json(path, treebank="nltk:treebank")["systems"]
    assert system["f1"] == pytest.approx(39.91, abs=0.005)
    assert system["n_sentences"] == 3914
    assert [system["label_recall"][label] for label in ("SBAR", "NP", "VP")] == pytest.approx(
        [68.3, 23.9, 71.8], abs=0.1
    )


BALANCED = [
    "((the (old cat)) ((sat on) (it .)))",
    "((Ann is) (very (old .)))",
    "((a dog) (and (a cat)))",
    "((why (is she)) (going (away ?)))",
]


@pytest.fixture
def balanced(tmp_path):
    path = tmp_path / "balanced.jsonl"
    path.write_text("".join(json.dumps({"binary_parse": tree}) + "\n" for tree in BALANCED))
    return path


def test_an_ensemble_of_files(run, run_json, right, balanced, gold, tmp_path):
    command = [right, "--ensemble", balanced, right]
    result = run_json(*command, "--prior", "right-branching", "--output", tmp_path / "t.jsonl")
    ensemble = result["ensemble"]
    assert ensemble["runs"] == [str(right), str(balanced), str(right)]
    assert ensemble["votes"]["f1"] == result["systems"][0]["f1"]  # two of three runs are right branching
    assert ensemble["best_existing"]["f1"] == ensemble["votes_with_prior"]["f1"] == ensemble["votes"]["f1"]
    left = run_json(balanced, "--ensemble", balanced, "--prior", "right-branching:3")
    assert left["ensemble"]["votes"]["f1"] == left["systems"][0]["f1"]
    assert left["ensemble"]["votes_with_prior"]["f1"] == result["systems"][0]["f1"]  # three votes against two
    mutual = np.array(ensemble["mutual_f1"])
    assert mutual[0, 2] == 100
    assert (mutual == mutual.T).all()
    assert ensemble["outliers"] == [str(balanced)]
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == len(TREES)
    status, out, _ = run(*command)
    assert status == 0
    for row in (
        "mean of 3 runs",
        "standard deviation",
        "the run that agrees most with the others",
        "ensemble: spans with the most votes",
        "no vote",
    ):
        assert row in out


def test_bad_ensembles(run, right, balanced, tmp_path):
    empty, short, other = tmp_path / "empty.jsonl", tmp_path / "short.jsonl", tmp_path / "other.jsonl"
    empty.write_text("")
    short.write_text("".join(balanced.read_text().splitlines(keepends=True)[:2]))
    other.write_text(balanced.read_text().replace("dog", "fox"))
    for arguments, message in [
        ((right, "--ensemble", empty), "empty.jsonl is empty"),
        ((right, "--ensemble", short), "short.jsonl has 2 trees, but"),
        ((right, "--ensemble", other), "word 2 is 'fox', in the gold tree 'dog'"),
        ((right, balanced, "--prior", "right-branching"), "--prior needs --ensemble"),
        ((right, "--ensemble", balanced, "--prior", "left"), "--prior must be one of right-branching"),
        ((right, "--layer", "0"), "--layer is for models, and files hold trees already"),
    ]:
        status, out, error = run(*arguments)
        assert (status, out) == (2, ""), arguments
        assert message in error
        assert error.count("\n") == 1
