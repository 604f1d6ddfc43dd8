"""EVALB's parameter files."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from nltk.tree import Tree

from stack_lm.core.errors import InputError
from stack_lm.parsing import get_convention, score_trees
from stack_lm.parsing.evalb import read_parameters

# What the parameter file of Collins (1997), shipped with EVALB, says.
COLLINS = """
##------------------------------------------##
DEBUG 0
MAX_ERROR 10
CUTOFF_LEN 40
LABELED 1
DISC_ONLY 0
DELETE_LABEL TOP
DELETE_LABEL -NONE-
DELETE_LABEL ,
DELETE_LABEL :
DELETE_LABEL ``
DELETE_LABEL ''
DELETE_LABEL .
DELETE_LABEL_FOR_LENGTH -NONE-
EQ_LABEL ADVP PRT
"""
GOLD = "(TOP (S (NP-SBJ (NNP Ann)) (VP (VBD gave) (PRT (RP up)) (, ,) (ADVP (RB finally))) (. .)))"


@pytest.fixture
def parameters(tmp_path):
    def read(text):
        path = tmp_path / "my.prm"
        path.write_text(text)
        return read_parameters(str(path))

    return read


def score(gold, predicted, rules):
    return score_trees([Tree.fromstring(gold)], [Tree.fromstring(predicted)], rules)


def test_a_setting_without_effect(parameters):
    with pytest.warns(UserWarning, match="my.prm, line 2: QUOTE_LABEL POS has no effect"):
        parameters("LABELED 1\nQUOTE_LABEL POS\n")


def test_collins(parameters):
    """By hand: TOP does not count, punctuation goes, and ADVP is as good as PRT; S, NP, VP, PRT and ADVP are left."""
    rules = parameters(COLLINS)
    predicted = "(TOP (S (NP (NNP Ann)) (VP (VP (VBD gave) (ADVP (RB up))) (, ,) (ADVP (RB finally)) (. .))))"
    found = score(GOLD, predicted, rules)
    # Predicted: S (0, 4), NP (0, 1), VP (1, 4), VP (1, 3), ADVP (2, 3), ADVP (3, 4).
    assert found.counts.tolist() == [[5, 6, 5]]
    assert found.tagging_accuracy == 75  # RP became RB
    assert found.lengths.tolist() == [6]  # punctuation counts, as only traces are left out of the length
    assert found.convention.cutoff == 40
    plain = score(GOLD, predicted, get_convention("evalb"))
    assert plain.counts.tolist() == [[4, 7, 6]]  # TOP counts, PRT is not found, and VP ends before the full stop


def test_labels_are_not_compared(parameters):
    swapped = GOLD.replace("VP", "NP").replace("ADNP", "ADVP")
    assert score(GOLD, swapped, parameters(COLLINS)).counts.tolist() == [[4, 5, 5]]
    assert score(GOLD, swapped, parameters(COLLINS.replace("LABELED 1", "LABELED 0"))).counts.tolist() == [[5, 5, 5]]


def test_equal_labels_form_classes(parameters):
    rules = parameters("EQ_LABEL A B\nEQ_LABEL C D\nEQ_LABEL B C\nEQ_WORD colour color\n")
    assert score("(A (X colour) (D (X c) (X d)))", "(D (X color) (B (X c) (X d)))", rules).f1 == 100
    assert score("(A (X a) (D (X c) (X d)))", "(E (X a) (B (X c) (X d)))", rules).f1 == 50
    deleted = parameters("DELETE_LABEL B\nEQ_LABEL A B\n")
    assert score("(S (X a) (A (X c) (X d)))", "(S (X a) (X c) (X d))", deleted).counts.tolist() == [[1, 1, 1]]


def by_definition(gold, predicted, deleted, equal):
    """As EVALB does it: words with deleted tags go, then brackets that are empty or have deleted labels. For each gold
    bracket that is left, the first one of the prediction that matches and is still free counts.
    """

    def compare(one, other):
        return one == other or (one, other) in equal or (other, one) in equal

    def read(node, brackets, words):
        if isinstance(node[0], str):
            words += [node[0]] * (node.label() not in deleted)
            return
        place = len(brackets)
        brackets.append(None)
        start = len(words)
        for child in node:
            read(child, brackets, words)
        brackets[place] = (start, len(words), node.label().split("-")[0])

    sides = []
    for tree in (gold, predicted):
        brackets, words = [], []
        read(tree, brackets, words)
        sides.append([b for b in brackets if b[0] < b[1] and not any(compare(b[2], label) for label in deleted)])
    golden, found = sides
    free = list(found)
    matched = 0
    for start, stop, label in golden:
        for bracket in free:
            if bracket[:2] == (start, stop) and compare(label, bracket[2]):
                matched += 1
                free.remove(bracket)
                break
    crossing = sum(any(a < c < b < d or c < a < d < b for a, b, _ in golden) for c, d, _ in found)
    return [matched, len(found), len(golden)], crossing


@st.composite
def trees_of_the_same_words(draw):
    tags = draw(st.lists(st.sampled_from(["NN", "VB", ",", "."]), min_size=1, max_size=8))
    leaves = [Tree(tag, [f"w{place}"]) for place, tag in enumerate(tags)]

    def grow():
        nodes = list(leaves)
        for _ in range(draw(st.integers(1, 8))):
            start = draw(st.integers(0, len(nodes) - 1))
            stop = draw(st.integers(start + 1, len(nodes)))
            nodes[start:stop] = [Tree(draw(st.sampled_from(["S", "NP-SBJ", "ADVP", "PRT", "TOP"])), nodes[start:stop])]
        return Tree("S", nodes)

    return grow(), grow()


@given(trees_of_the_same_words())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_against_the_definition(parameters, pair):
    rules = parameters(COLLINS)
    gold, predicted = pair
    assume(any(tag in ("NN", "VB") for _, tag in gold.pos()))
    counts, crossing = by_definition(gold, predicted, set(", . : `` '' TOP".split()), {("ADVP", "PRT")})
    found = score_trees([gold], [predicted], rules)
    assert found.counts.tolist() == [counts]
    assert found.crossing.tolist() == [crossing]


def test_sentences_of_punctuation_alone_are_skipped(parameters):
    gold = [Tree.fromstring(text) for text in ("(S (. .) (. !))", "(S (NN a) (. .))")]
    assert score_trees(gold, gold, parameters(COLLINS)).numbers.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DELETE_LABELS X", "my.prm, line 1: no setting of EVALB that can be used: 'DELETE_LABELS X'"),
        ("DISC_ONLY 1", "'DISC_ONLY 1'"),
        ("", "my.prm is empty"),
    ],
)
def test_bad_parameters(parameters, text, message):
    with pytest.raises(InputError, match=message):
        parameters(text)
