"""F1 in its conventions: definitions, invariants and the known numbers."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from conftest import REAL_DATA, needs_real_data
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tree import Tree

from stack_lm.errors import InputError
from stack_lm.parsing import (
    CONVENTIONS,
    balanced,
    left_branching,
    random_distances,
    random_merges,
    read_treebank,
    right_branching,
    score_trees,
)
from stack_lm.parsing.f1 import get_convention, is_word, prepare_gold


def tree(text):
    return Tree.fromstring(text)


GOLD = tree("(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .))")


def test_prpn_by_hand():
    """Without the full stop six words are left: gold spans (0, 3), (3, 6), (4, 6); the sentence itself is left out."""
    predicted = tree("(X (X the (X old cat)) (X (X sat on) (X it .)))")
    score = score_trees([GOLD], [predicted], "prpn")
    # Predicted, over the words left: (0, 3), (1, 3), (3, 6), (3, 5); two of four are right, of three gold ones.
    assert (score.precision, score.recall) == (pytest.approx(50, abs=1e-4), pytest.approx(200 / 3, abs=1e-4))
    assert score.f1 == pytest.approx(100 * 2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3), abs=1e-4)
    assert score.label_recall == {"NP": pytest.approx(100), "S": 100, "VP": 100, "PP": 0}
    assert score.label_counts == {"NP": 1, "S": 1, "VP": 1, "PP": 1}


def test_predictions_may_be_of_the_words_left():
    whole, left = right_branching("the old cat sat on it .".split()), right_branching("the old cat sat on it".split())
    assert score_trees([GOLD], [whole], "prpn").f1 == score_trees([GOLD], [left], "prpn").f1


def test_merrill_by_hand():
    """Head-binarised: ((the (old cat)) ((sat (on it)) .)); spans (0, 3), (1, 3), (3, 7), (3, 6), (4, 6)."""
    predicted = tree("(X (X the (X old cat)) (X sat (X on (X it .))))")
    score = score_trees([GOLD], [predicted], "merrill")
    assert (score.precision, score.recall, score.f1) == (pytest.approx(60, abs=1e-4),) * 3


def test_evalb_counts_unary_phrases_and_labels():
    gold = tree("(S (NP (NNP Ann)) (VP (VBZ is) (ADJP (JJ old))))")
    same_words = tree("(S (NP (NNP Ann)) (VP (VBZ is) (NP (JJ old))))")
    score = score_trees([gold], [same_words], "evalb")
    assert (score.precision, score.recall) == (75, 75)
    assert score_trees([gold], [same_words], "evalb", labelled=False).f1 == 100


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ("(NP (NN a) (. .))", "(X a .)", 100),  # nothing to find and nothing found
        ("(S (NN a) (NN b))", "(X a b)", 100),
        ("(S (NN a) (NN b) (NN c))", "(X a (X b c))", 0),  # nothing to find, something found
    ],
)
def test_empty_cases_of_prpn(gold, predicted, expected):
    assert score_trees([tree(gold)], [tree(predicted)], "prpn").f1 == pytest.approx(expected, abs=1e-4)


WORD = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(
    st.builds(lambda tag, word: Tree(tag, [word]), st.sampled_from(["NN", "DT", "VBZ"]), WORD),
    lambda children: st.builds(Tree, st.sampled_from(["S", "NP", "VP"]), st.lists(children, min_size=2, max_size=3)),
    max_leaves=9,
).filter(lambda t: len(t.leaves()) > 1)


@given(TREES, st.sampled_from(["prpn", "evalb"]))
def test_a_tree_scores_100_against_itself(one, convention):
    assert score_trees([one], [one], convention).f1 == pytest.approx(100, abs=1e-4)


@given(TREES)
def test_a_binary_tree_scores_100_against_itself_in_merrill(one):
    binary = balanced([f"{word}{i}" for i, word in enumerate(one.leaves())])
    assert score_trees([binary], [binary], "merrill").f1 == pytest.approx(100, abs=1e-4)


@given(TREES, st.randoms())
@settings(max_examples=50)
def test_label_names_do_not_matter_without_labels(one, rng):
    other = random_merges(one.leaves(), rng)
    renamed = one.copy(deep=True)
    for node in renamed.subtrees(lambda node: isinstance(node[0], Tree)):
        node.set_label("Q" + node.label())
    assert score_trees([one], [other], "prpn").f1 == score_trees([renamed], [other], "prpn").f1
    # With labels precision and recall trade places when the sides do.
    there, back = score_trees([one], [renamed], "evalb"), score_trees([renamed], [one], "evalb")
    assert (there.precision, there.recall) == (back.recall, back.precision)


def test_the_order_of_sentences_does_not_matter():
    rng = random.Random(0)
    gold = [random_merges([f"w{i}" for i in range(n)], rng) for n in range(2, 30)]
    predicted = [random_distances(t.leaves(), rng) for t in gold]
    for convention in CONVENTIONS:
        one = score_trees(gold, predicted, convention)
        two = score_trees(gold[::-1], predicted[::-1], convention)
        assert one.f1 == pytest.approx(two.f1)
        assert np.array_equal(one.per_sentence, two.per_sentence[::-1])
        assert one.per_sentence.shape == (28, 3)


def test_baselines_by_hand():
    words = list("abcde")
    rng = random.Random(0)
    assert left_branching(words).pformat(margin=200) == "(X (X (X (X a b) c) d) e)"
    assert right_branching(words).pformat(margin=200) == "(X a (X b (X c (X d e))))"
    assert balanced(words).pformat(margin=200) == "(X (X a b) (X c (X d e)))"
    for make in (left_branching, right_branching, balanced, lambda w: random_merges(w, rng)):
        for n in range(1, 12):
            sentence = [str(i) for i in range(n)]
            made = make(sentence)
            assert made.leaves() == sentence
            assert all(len(node) == 2 for node in made.subtrees()) or n == 1


@pytest.mark.parametrize(
    ("token", "tag", "word"),
    [
        (",", ",", False), ("$", "$", False), ("%", "NN", True), ("-LRB-", "-LRB-", False), ("'s", "POS", True),
        ("--", None, False), ("US$", None, False), ("'s", None, True), ("cat", None, True), (";", ":", False),
    ],
)  # fmt: skip
def test_what_is_a_word(token, tag, word):
    assert is_word(token, tag) is word


@pytest.mark.parametrize(
    ("gold", "predicted", "convention", "message"),
    [
        ([GOLD], [], "prpn", "there are 0 predicted trees for 1 gold trees"),
        ([], [], "prpn", "there are no trees"),
        ([GOLD], [GOLD], "f1", "convention must be one of prpn, merrill, evalb; got 'f1'"),
        ([GOLD], [tree("(X a b)")], "evalb", "the predicted tree 1 .*: it has 2 words, the gold tree 7"),
        ([GOLD], [tree("(X the old dog sat on it)")], "prpn", "word 3 is 'dog', in the gold tree 'cat'"),
    ],
)
def test_bad_input(gold, predicted, convention, message):
    with pytest.raises(InputError, match=message):
        score_trees(gold, predicted, convention)


# --- known numbers


@needs_real_data
def test_evalbs_own_report():
    """EVALB's report on the authors' parses: recall 28.43, precision 32.93, F 30.51."""
    directory = REAL_DATA / "parsing" / "evalb_wsj_sample"
    gold, parses = (read_treebank(str(directory / name)) for name in ("parses.gld", "parses.tst"))
    score = score_trees(gold, parses, "evalb")
    assert (score.recall, score.precision, score.f1) == tuple(pytest.approx(x, abs=5e-3) for x in (28.43, 32.93, 30.51))
    # Sentence by sentence too, as far as the report's two decimals go.
    rows = [line.split("|") for line in (directory / "results.txt").read_text().splitlines() if line[:1] == "|"]
    reported = np.array([[float(row[5]), float(row[4])] for row in rows if row[1].strip().isdigit()])
    assert np.abs(score.per_sentence[:, :2] / 100 - reported).max() <= 0.0051


BASELINES = {
    "left": lambda words, rng: left_branching(words),
    "right": lambda words, rng: right_branching(words),
    "balanced_floor": lambda words, rng: balanced(words),
    "random_merge": random_merges,
    "random_alg1": random_distances,
}


@pytest.fixture(scope="module")
def wsj():
    if not REAL_DATA.is_dir():
        pytest.skip(f"no real data at {REAL_DATA}")
    reference = json.loads((REAL_DATA / "parsing" / "reference_wsj_sample.json").read_text())
    return read_treebank("nltk:treebank"), reference


@pytest.mark.parametrize(
    ("name", "longest"),
    [*((name, None) for name in BASELINES), ("left", 10), ("right", 10), ("left", 40), ("right", 40)],
)
def test_baselines_on_the_treebank_sample(wsj, name, longest):
    trees, reference = wsj
    gold = [prepare_gold(t, get_convention("prpn")) for t in trees]
    gold = [item for item in gold if longest is None or item.kept.sum() <= longest]
    rng = random.Random(0)
    score = score_trees(gold, [BASELINES[name](item.kept_words, rng) for item in gold], "prpn")
    expected = reference["baselines"][f"nltk_pos/prpn/nonbin/{'full' if longest is None else f'len{longest}'}"][name]
    assert score.n_sentences == expected["n_all"]
    assert score.f1 == pytest.approx(expected["sF1_noroot_all"], abs=0.5 if name.startswith("random") else 0.05)
    if longest is None and not name.startswith("random"):
        recall = reference["label_recall_nltk"]["nltk/prpn/root"]
        for label, value in recall[name].items():
            assert score.label_recall[label] == pytest.approx(value, abs=0.01)
            assert score.label_counts[label] == recall["_n"][label]


@pytest.mark.parametrize(("make", "expected"), [(left_branching, 13.09), (right_branching, 15.99)])
def test_branching_against_head_binarised_trees(wsj, make, expected):
    """Measured elsewhere on the same trees, with the whole sentence counted and sentences of one word left out."""
    trees, _ = wsj
    rules = replace(get_convention("merrill"), whole_sentence=True)
    gold = [prepare_gold(t, rules) for t in trees]
    gold = [item for item in gold if len(item.words) > 1]
    assert score_trees(gold, [make(item.words) for item in gold], rules).f1 == pytest.approx(expected, abs=0.05)
