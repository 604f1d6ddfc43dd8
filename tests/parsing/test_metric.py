"""The module for Hugging Face's `evaluate`, loaded from its folder without a network."""

from pathlib import Path

import pytest

import stack_lm.eval
from stack_lm.parsing import CONVENTIONS, read_treebank, score_trees

evaluate = pytest.importorskip("evaluate")

FOLDER = Path(stack_lm.eval.__file__).parent / "metrics" / "parse_f1"
GOLD = [
    "(S (NP (DT the) (NN cat)) (VP (VBD sat) (ADVP (RB right) (RB there))) (. .))",
    "(S (NP (NNP Ann)) (VP (VBZ is) (ADJP (RB very) (JJ old))) (. .))",
]
PREDICTED = [
    "(X (X the) (X (X cat) (X (X sat) (X (X right) (X there)))))",
    "(X (X (X Ann) (X is)) (X (X very) (X old)))",
]


@pytest.fixture(scope="module")
def metric(tmp_path_factory, evaluate_cache):
    return evaluate.load(str(FOLDER), cache_dir=str(tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("convention", ["prpn", "compound-pcfg", "corpus"])
def test_it_is_the_same_score(metric, convention, tmp_path):
    for name, trees in (("gold.mrg", GOLD), ("predicted.mrg", PREDICTED)):
        (tmp_path / name).write_text("\n".join(trees))
    gold, predicted = read_treebank(str(tmp_path / "gold.mrg")), read_treebank(str(tmp_path / "predicted.mrg"))
    expected = score_trees(gold, predicted, convention)
    found = metric.compute(predictions=PREDICTED, references=GOLD, convention=convention)
    assert (found["f1"], found["precision"], found["recall"]) == (expected.f1, expected.precision, expected.recall)
    assert found["label_recall"] == expected.label_recall
    assert found["convention"]["name"] == convention
    assert found["by_length"]["1-10"]["n_sentences"] == found["n_sentences"] == 2


def test_distances(metric):
    """By hand: the splits are before "sat" and before "right"; "the cat" is what is left."""
    found = metric.compute(predictions=[[0, 1, 3, 2, 1, 9]], references=GOLD[:1], convention="prpn", decoder="gap")
    assert found["f1"] == pytest.approx(100, abs=1e-4)
    assert found["recall"] == pytest.approx(100, abs=1e-4)
    shorter = metric.compute(predictions=[[1, 3, 2, 1, 9]], references=GOLD[:1], convention="prpn", decoder="gap")
    assert shorter["f1"] == found["f1"]


def test_rules_can_be_changed(metric):
    kept = metric.compute(predictions=GOLD, references=GOLD, convention="evalb", labels="ignored", gold="collapsed")
    assert kept["f1"] < 100  # the unary phrases are not in the gold trees any more
    assert (kept["convention"]["labels"], kept["convention"]["gold"]) == ("ignored", "collapsed")
    assert metric.compute(predictions=GOLD, references=GOLD, convention="evalb")["f1"] == 100


@pytest.mark.parametrize(
    ("predictions", "options", "message"),
    [
        (
            PREDICTED,
            {"convention": "prpn", "punctuation": "kept"},
            "a rule must be one of removed, .*; got 'punctuation'",
        ),
        (PREDICTED[::-1], {"convention": "prpn"}, "the predicted tree 1 .*prediction 1.* words differ"),
    ],
)
def test_bad_input(metric, predictions, options, message):
    with pytest.raises(ValueError, match=message):
        metric.compute(predictions=predictions, references=GOLD, **options)


def test_the_card_says_what_the_module_takes():
    card = (FOLDER / "README.md").read_text()
    of_brackets = [name for name in CONVENTIONS if name != "uuas"]
    for name in (*of_brackets, "decoder", "predictions", "references", "label_recall", "by_length"):
        assert f"`{name}`" in card, name
