"""F1 in its conventions: definitions, invariants and the known numbers."""

import random
from dataclasses import replace

import numpy as np
import pytest
from conftest import REAL_DATA, needs_real_data
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tree import Tree

from stack_lm.core.errors import InputError
from stack_lm.parsing import (
    CONVENTIONS,
    ConstituencyTree,
    Convention,
    get_convention,
    prepare_gold,
    random_merges,
    read_predictions,
    read_treebank,
    register_convention,
    right_branching,
    score_trees,
)


def tree(text):
    return Tree.fromstring(text)


GOLD = tree("(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .))")


def test_prpn_by_hand():
    """Without the full stop six words are left: gold spans (0, 3), (3, 6), (4, 6); the sentence itself is left out."""
    predicted = tree("(X (X the (X old cat)) (X (X sat on) (X it .)))")
    score = score_trees([GOLD], [predicted], "prpn")
    # Predicted, over the words left: (0, 3), (1, 3), (3, 6), (3, 5); two of four are right, of three gold ones.
    assert score.counts.tolist() == [[2, 4, 3]]
    assert (score.precision, score.recall) == (pytest.approx(50, abs=1e-4), pytest.approx(200 / 3, abs=1e-4))
    assert score.f1 == pytest.approx(100 * 2 * (1 / 2) * (2 / 3) / (1 / 2 + 2 / 3), abs=1e-4)
    assert score.label_recall == {"NP": pytest.approx(100), "S": 100, "VP": 100, "PP": 0}
    assert score.label_counts == {"NP": 1, "S": 1, "VP": 1, "PP": 1}


def test_merrill_by_hand():
    """Head-binarised: ((the (old cat)) ((sat (on it)) .)); spans (0, 3), (1, 3), (3, 7), (3, 6), (4, 6)."""
    predicted = tree("(X (X the (X old cat)) (X sat (X on (X it .))))")
    score = score_trees([GOLD], [predicted], "merrill")
    assert (score.precision, score.recall, score.f1) == (pytest.approx(60, abs=1e-4),) * 3


def test_htut_counts_the_whole_sentence():
    predicted = tree("(X (X the (X old cat)) (X sat (X on (X it .))))")
    assert score_trees([GOLD], [predicted], "htut").counts.tolist() == [[4, 6, 6]]
    assert score_trees([tree("(S (NN a))")], [tree("(X a)")], "htut").f1 == pytest.approx(100, abs=1e-4)


def test_compound_pcfg_keeps_what_stands_below_the_outermost_phrase():
    gold = tree("(S (VP (VB go) (ADVP (RB right) (RB now))) (. !))")
    predicted = tree("(X go (X right now))")
    # Without the exclamation mark S and VP have the same words; only the one of them that is outermost goes.
    assert score_trees([gold], [predicted], "compound-pcfg").counts.tolist() == [[1, 1, 2]]
    assert score_trees([gold], [predicted], "prpn").counts.tolist() == [[1, 1, 1]]
    short = tree("(S (NN a) (. .))")
    assert score_trees([gold, short], [predicted, tree("(X a .)")], "compound-pcfg").n_sentences == 1
    assert score_trees([gold, short], [predicted, tree("(X a .)")], "prpn").n_sentences == 2


def test_compound_pcfg_does_not_count_what_punctuation_leaves_behind():
    """Trees without labels have no unary phrases: a full stop split off at the top says nothing about the rest."""
    gold = tree("(S (NP (DT a) (NN dog)) (VP (VBZ barks) (RB now)) (. .))")
    left = ConstituencyTree.unlabelled("a dog barks now .".split(), [(0, 5), (0, 4), (0, 2), (2, 4)])
    before = ConstituencyTree.unlabelled("a dog barks now".split(), [(0, 4), (0, 2), (2, 4)])
    assert score_trees([gold], [left], "compound-pcfg").counts.tolist() == [[2, 2, 2]]
    assert score_trees([gold], [before], "compound-pcfg").counts.tolist() == [[2, 2, 2]]


def test_corpus_averages_over_spans():
    other = tree("(S (NN a) (VP (VB b) (NN c)))")
    score = score_trees([GOLD, other], [right_branching(GOLD.leaves()), tree("(X a (X b c))")], "corpus")
    # Right branching finds (3, 6) and (4, 6) of three gold spans, with four predicted ones.
    assert score.counts.tolist() == [[2, 4, 3], [1, 1, 1]]
    assert (score.precision, score.recall) == (pytest.approx(60), pytest.approx(75))
    assert score.f1 == pytest.approx(2 * 60 * 75 / 135)


def test_evalb_counts_unary_phrases_and_labels():
    gold = tree("(S (NP (NNP Ann)) (VP (VBZ is) (ADJP (JJ old))))")
    same_words = tree("(S (NP (NNP Ann)) (VP (VBZ is) (NP (JJ old))))")
    score = score_trees([gold], [same_words], "evalb")
    assert (score.precision, score.recall) == (75, 75)
    ignoring = replace(get_convention("evalb"), labels="ignored")
    assert score_trees([gold], [same_words], ignoring).f1 == 100
    collapsed = replace(ignoring, gold="collapsed")
    assert score_trees([gold], [same_words], collapsed).counts.tolist() == [[2, 4, 2]]


def test_trees_without_labels_are_compared_without_labels():
    score = score_trees([GOLD], [tree("(X (X the old cat) (X sat (X on it)) .)")], "evalb")
    assert score.convention.labels == "ignored"
    assert score.counts.tolist() == [[4, 4, 5]]


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ("(NP (NN a) (. .))", "(X a .)", 100),  # nothing to find and nothing found
        ("(S (NN a) (NN b))", "(X a b)", 100),
        ("(S (NN a) (NN b) (NN c))", "(X a (X b c))", 0),  # nothing to find, something found
        ("(FRAG (. .) (. !))", "(X . !)", 100),  # no words at all
    ],
)
def test_empty_cases_of_prpn(gold, predicted, expected):
    assert score_trees([tree(gold)], [tree(predicted)], "prpn").f1 == pytest.approx(expected, abs=1e-4)


def test_sentences_that_are_not_scored():
    flat, short = tree("(S (NN a) (NN b) (NN c))"), tree("(S (NN a))")
    gold, predicted = [GOLD, flat, short], [right_branching(t.leaves()) for t in (GOLD, flat, short)]
    prpn = get_convention("prpn")
    assert score_trees(gold, predicted, replace(prpn, min_words=2)).numbers.tolist() == [0, 1]
    assert score_trees(gold, predicted, replace(prpn, without_spans="skipped")).numbers.tolist() == [0]


def test_by_length():
    rng = random.Random(0)
    gold = [random_merges([f"w{i}" for i in range(n)], rng) for n in (3, 10, 11, 25, 41, 90)]
    predicted = [random_merges(t.words, rng) for t in gold]
    score = score_trees(gold, predicted, "prpn")
    assert {name: part.n_sentences for name, part in score.by_length.items()} == {
        "1-10": 2, "11-20": 1, "21-30": 1, "41 or more": 2,
    }  # fmt: skip
    assert score.of_lengths(0, 10).f1 == pytest.approx(score_trees(gold[:2], predicted[:2], "prpn").f1)
    assert score.of_lengths(0, float("inf")).f1 == score.f1
    assert np.isnan(score.of_lengths(500, 600).f1)


@pytest.mark.parametrize(
    ("removed", "expected"),
    [
        ("nothing", "He paid $ 5 , or 3 % ."),
        ("period", "He paid $ 5 , or 3 %"),
        ("punctuation", "He paid $ 5 or 3 %"),
        ("punctuation+currency", "He paid 5 or 3 %"),
    ],
)
def test_what_is_removed(removed, expected):
    gold = tree("(S (PRP He) (VBD paid) ($ $) (CD 5) (, ,) (CC or) (CD 3) (NN %) (. .))")
    rules = Convention("mine", "", removed=removed)
    assert " ".join(prepare_gold(gold, rules).kept_words) == expected
    by_token = replace(rules, removed_by="tokens")
    assert " ".join(prepare_gold(gold, by_token).kept_words) == expected


@pytest.mark.parametrize(
    ("token", "tag", "kept"),
    [
        (",", ",", False), ("$", "$", False), ("%", "NN", True), ("-LRB-", "-LRB-", False), ("'s", "POS", True),
        ("--", None, False), ("US$", None, False), ("'s", None, True), ("cat", None, True), (";", ":", False),
        (".", "$.", False), (",", "PUNCT", False), (",", "PONCT", False), ("(", "$LRB", False), (",", "$,--", False),
        ("。", "PU", False), (",", "PUNC", False),
    ],
)  # fmt: skip
def test_what_is_a_word(token, tag, kept):
    assert get_convention("prpn").kept([token], [tag]) == (kept,)


def test_a_single_quotation_mark_without_tags():
    rules = get_convention("prpn")
    assert rules.kept("the workers ' pay".split(), [None] * 4) == (True,) * 4
    assert rules.kept("a ` good ' pay".split(), [None] * 5) == (True, False, True, False, True)


WORD = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(
    st.builds(lambda tag, word: Tree(tag, [word]), st.sampled_from(["NN", "DT", "VBZ"]), WORD),
    lambda children: st.builds(Tree, st.sampled_from(["S", "NP", "VP"]), st.lists(children, min_size=1, max_size=3)),
    max_leaves=9,
).filter(lambda t: len(t.leaves()) > 1)


OF_PHRASES = st.sampled_from([name for name in CONVENTIONS if name != "uuas"])


@given(TREES, OF_PHRASES)
def test_a_tree_scores_100_against_itself(one, convention):
    rules = get_convention(convention)
    itself = one if rules.gold == "annotated" else prepare_gold(one, rules).tree
    score = score_trees([one], [itself], replace(rules, min_words=0))
    spans = score.counts[0, 2] or rules.average == "sentence"
    assert score.f1 == pytest.approx(100 if spans else 0, abs=1e-4)


@given(TREES, st.randoms(), OF_PHRASES)
@settings(max_examples=50)
def test_precision_and_recall_trade_places_with_the_sides(one, rng, convention):
    rules = replace(get_convention(convention), gold="annotated")
    other = random_merges(one.leaves(), rng)
    there, back = score_trees([one], [other], rules), score_trees([other], [one], replace(rules, labels="ignored"))
    assert there.counts.tolist() == back.counts[:, [0, 2, 1]].tolist()


def test_predictions_may_be_of_the_words_left():
    whole, left = right_branching("the old cat sat on it .".split()), right_branching("The old cat sat on it".split())
    assert score_trees([GOLD], [whole], "prpn").f1 == score_trees([GOLD], [left], "prpn").f1


def test_escaped_brackets_are_the_same_words():
    gold = tree("(S (NN a) (PRN (-LRB- -LRB-) (NN b) (-RRB- -RRB-)))")
    assert score_trees([gold], [right_branching("a ( b )".split())], "merrill").n_sentences == 1
    with pytest.raises(InputError, match="word 2 is '\\)', in the gold tree '-LRB-'"):
        score_trees([gold], [right_branching("a ) b )".split())], "merrill")


@pytest.mark.parametrize(
    ("gold", "predicted", "convention", "message"),
    [
        ([GOLD], [], "prpn", "there are 0 predicted trees for 1 gold trees"),
        ([GOLD], [None], "prpn", "the predicted tree 1 cannot be scored: it is missing"),
        ([GOLD], [tree("(X the old dog sat on it)")], "prpn", "word 3 is 'dog', in the gold tree 'cat'"),
        ([tree("(S (NN a))")], [tree("(X a)")], "compound-pcfg", "no sentence is left to score"),
    ],
)
def test_bad_input(gold, predicted, convention, message):
    with pytest.raises(InputError, match=message):
        score_trees(gold, predicted, convention)


def test_going_on_without_what_cannot_be_scored():
    wrong = tree("(X the old dog sat on it)")
    score = score_trees([GOLD] * 3, [None, right_branching(GOLD.leaves()), wrong], "prpn", keep_going=True)
    assert score.numbers.tolist() == [1]
    assert len(score.errors) == 2
    assert "the predicted tree 3 cannot be scored" in score.errors[1]
    with pytest.raises(InputError, match="no sentence is left to score; the predicted tree 1 cannot be scored"):
        score_trees([GOLD], [wrong], "prpn", keep_going=True)


@pytest.mark.usefixtures("registries")
def test_a_convention_of_ones_own():
    mine = Convention("mine", "here", removed="period", whole_sentence="counted")
    assert register_convention(mine) is register_convention(mine) is get_convention("mine")
    assert score_trees([GOLD], [GOLD], "mine").f1 == pytest.approx(100)
    with pytest.raises(ValueError, match="the convention name 'prpn' is taken"):
        register_convention(replace(mine, name="prpn"))


# --- known numbers


@pytest.fixture(scope="module")
def evalb_sample():
    if not REAL_DATA.is_dir():
        pytest.skip(f"no real data at {REAL_DATA}")
    directory = REAL_DATA / "parsing" / "evalb_wsj_sample"
    gold, parses = read_treebank(str(directory / "parses.gld")), read_predictions(str(directory / "parses.tst"))
    rows = [line.split("|") for line in (directory / "results.txt").read_text().splitlines() if line[:1] == "|"]
    return score_trees(gold, parses, "evalb"), [row[1:] for row in rows if row[1].strip().isdigit()]


@needs_real_data
def test_evalbs_own_report(evalb_sample):
    """EVALB's report on the authors' parses: recall 28.43, precision 32.93, F 30.51."""
    score, rows = evalb_sample
    assert [round(value, 2) for value in (score.recall, score.precision, score.f1)] == [28.43, 32.93, 30.51]
    assert round(score.complete_match, 2) == 0.64
    assert round(float(score.crossing.mean()), 2) == 15.45
    assert round(100 * float((score.crossing == 0).mean()), 2) == 0.79
    # Sentence by sentence: matched, test and gold brackets, crossing brackets, length.
    assert [[int(row[5]), int(row[7]), int(row[6])] for row in rows] == score.counts.tolist()
    assert [int(row[8]) for row in rows] == score.crossing.tolist()
    assert [int(row[1]) for row in rows] == score.lengths.tolist()
    assert score.counts.sum(axis=0).tolist() == [29694, 90171, 104464]
