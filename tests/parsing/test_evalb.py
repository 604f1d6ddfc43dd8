"""EVALB's parameter files."""

import pytest
from nltk.tree import Tree

from stack_lm.errors import InputError
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


def test_phrases_that_lose_all_their_words_do_not_count(parameters):
    rules = parameters(COLLINS)
    assert score("(S (NN a) (PRN (: --) (: --)) (NN b))", "(S (NN a) (: --) (: --) (NN b))", rules).f1 == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DELETE_LABELS X", "my.prm, line 1: keyword must be one of DEBUG, .*; got 'DELETE_LABELS'"),
        ("DEBUG 0\n\nEQ_LABEL ADVP", r"my.prm, line 3: EQ_LABEL takes 2 value\(s\); got 1"),
        ("CUTOFF_LEN forty", "CUTOFF_LEN must be a whole number; got 'forty'"),
        ("DISC_ONLY 1", "DISC_ONLY must be 0"),
        ("", "my.prm is empty"),
    ],
)
def test_bad_parameters(parameters, text, message):
    with pytest.raises(InputError, match=message):
        parameters(text)
