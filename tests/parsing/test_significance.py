"""The paired bootstrap."""

import random

import numpy as np
import pytest

from stack_lm.core.errors import InputError
from stack_lm.parsing import random_merges, score_trees
from stack_lm.parsing.significance import compare_f1

RNG = random.Random(0)
GOLD = [random_merges([f"w{i}" for i in range(RNG.randrange(3, 20))], RNG) for _ in range(120)]
WORSE = [random_merges(tree.words, RNG) for tree in GOLD]
BETTER = [tree if number % 3 else other for number, (tree, other) in enumerate(zip(GOLD, WORSE, strict=True))]


@pytest.mark.parametrize("convention", ["prpn", "corpus"])
def test_against_a_loop(convention):
    """By definition: draw sentences with replacement, score both systems on them, take their difference."""
    one, two = score_trees(GOLD, BETTER, convention), score_trees(GOLD, WORSE, convention)
    found = compare_f1(one, two, n_resamples=50, seed=3)
    rng = np.random.default_rng(3)
    differences = []
    for _ in range(50):
        drawn = rng.integers(len(GOLD), size=len(GOLD))
        gold = [GOLD[i] for i in drawn]
        scores = [score_trees(gold, [trees[i] for i in drawn], convention).f1 for trees in (BETTER, WORSE)]
        differences.append(scores[0] - scores[1])
    assert found.difference == pytest.approx(one.f1 - two.f1)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])))
    assert found.p_value == 0
    assert found.first_interval[0] < one.f1 < found.first_interval[1]
    assert (found.n_sentences, found.n_resamples) == (len(GOLD), 50)


def test_a_system_is_no_better_than_itself():
    one = score_trees(GOLD, WORSE, "prpn")
    found = compare_f1(one, one)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_only_sentences_of_both_are_compared():
    holes = [None if number < 20 else tree for number, tree in enumerate(WORSE)]
    one = score_trees(GOLD, BETTER, "prpn")
    two = score_trees(GOLD, holes, "prpn", keep_going=True)
    found = compare_f1(one, two)
    assert found.n_sentences == 100
    same = compare_f1(score_trees(GOLD[20:], BETTER[20:], "prpn"), score_trees(GOLD[20:], WORSE[20:], "prpn"))
    assert found.difference == pytest.approx(same.difference)


def test_bad_input():
    one = score_trees(GOLD, WORSE, "prpn")
    with pytest.raises(InputError, match="scores of two conventions cannot be compared: prpn and corpus"):
        compare_f1(one, score_trees(GOLD, WORSE, "corpus"))
