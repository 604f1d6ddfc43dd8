import numpy as np
import pytest
from conftest import all_binary_trees
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.parsing import ConstituencyTree, combine_runs, right_branching
from stack_lm.parsing.baselines import left_branching, random_merges
from stack_lm.parsing.distances import spans_by_splitting
from stack_lm.parsing.ensemble import best_existing_tree, count_votes, find_outliers, mutual_f1, vote_tree


def spans(tree):
    return {span[:2] for span in tree.spans}


def score(tree, votes):
    return sum(votes.get(span, 0) for span in spans(tree))


@st.composite
def runs_of_one_sentence(draw, sentences):
    words = draw(sentences)
    rng = draw(st.randoms(use_true_random=False))
    return words, [random_merges(words, rng) for _ in range(draw(st.integers(2, 6)))]


@given(runs_of_one_sentence(st.integers(1, 9).map(lambda n: [f"w{i}" for i in range(n)])))
@settings(max_examples=60, deadline=None)
def test_no_binary_tree_has_more_votes(case):
    words, trees = case
    votes = count_votes(trees)
    tree = vote_tree(words, votes)
    best = max(sum(votes[span] for span in found) for found in all_binary_trees(0, len(words)))
    assert score(tree, votes) == best
    assert len(tree.spans) == len(words) - 1
    assert all(score(tree, votes) >= score(other, votes) for other in trees)
    existing = best_existing_tree(words, trees, votes)
    assert spans(existing) in [spans(other) for other in trees]
    assert score(existing, votes) == max(score(other, votes) for other in trees)


@given(runs_of_one_sentence(st.lists(st.sampled_from("a b c , . ``".split()), min_size=1, max_size=8)))
@settings(max_examples=100, deadline=None)
def test_punctuation_does_not_divide_the_votes(case):
    """The elected tree without its punctuation is the one that the trees without punctuation elect."""
    words, trees = case
    is_word = [word.isalpha() for word in words]
    if sum(is_word) == 0:
        return
    runs = [[tree] for tree in trees]
    (tree,) = combine_runs(runs, outlier_share=0, prior=right_branching, pool_punctuation=True).trees
    alone = [tree.keep(is_word) for tree in [*trees, right_branching(words)]]
    elected = vote_tree([word for word in words if word.isalpha()], count_votes(alone))
    if sum(is_word) > 2:
        assert {span for span in spans(tree.keep(is_word)) if span[1] - span[0] > 1} == spans(elected)
    assert len(tree.spans) == len(words) - 1
    # No other tree that agrees with it has more votes.
    before = [sum(is_word[:i]) for i in range(len(words) + 1)]
    votes = count_votes([*trees, right_branching(words)])

    def of_words(found):
        return {(before[a], before[b]) for a, b in found if before[b] - before[a] > 1}

    alike = [found for found in all_binary_trees(0, len(words)) if of_words(found) == of_words(spans(tree))]
    assert score(tree, votes) == max(sum(votes[span] for span in found) for found in alike)


def test_ties_favour_no_branching():
    words = "a b c d e f g h".split()
    halves = spans_by_splitting(8, lambda start, stop: (start + stop) // 2)
    assert spans(vote_tree(words, {})) == set(halves)
    mirrored = {(8 - stop, 8 - start) for start, stop in halves}
    assert mirrored == set(halves)


def test_agreeing_runs_are_returned_as_they_are():
    words = "the dog that the cats fear barks".split()
    tree = right_branching(words)
    found = combine_runs([[tree], [tree], [left_branching(words)]], outlier_share=0)
    assert spans(found.trees[0]) == spans(tree)
    assert found.mutual_f1[0, 1] == 100
    assert found.mutual_f1[0, 2] == found.mutual_f1[2, 0] == 0
    np.testing.assert_allclose(found.agreement, [50, 50, 0])


def test_a_failed_run_is_found_without_gold_trees():
    # Mutual agreement of five released ON-LSTM runs: the run with 45.4 is the one whose training failed.
    agreement = np.array([45.4, 50.7, 58.0, 60.1, 61.7])
    assert find_outliers(agreement).tolist() == [True, False, False, False, False]
    assert not find_outliers(agreement, 0).any()
    assert find_outliers(np.array([10.0, 90.0])).sum() == 0  # two runs cannot say which failed
    assert find_outliers(np.array([1.0, 2.0, 3.0, 100.0]), 1.0).sum() <= 2


def test_outliers_do_not_vote():
    words = [f"w{i}" for i in range(12)]
    right, left = right_branching(words), left_branching(words)
    found = combine_runs([[right], [right], [right], [left]])
    assert found.voted.tolist() == [True, True, True, False]


def test_right_branching_can_vote():
    words = "a b c d".split()
    one = ConstituencyTree.unlabelled(words, [(0, 4), (0, 3), (0, 2)])
    two = ConstituencyTree.unlabelled(words, [(0, 4), (1, 4), (2, 4)])
    assert spans(combine_runs([[one], [two]], prior=right_branching).trees[0]) == spans(two)


def test_mutual_f1_is_that_of_the_spans_inside_the_sentence():
    words = "a b c d".split()
    one = ConstituencyTree.unlabelled(words, [(0, 4), (0, 2), (2, 4)])
    two = ConstituencyTree.unlabelled(words, [(0, 4), (0, 2), (0, 3)])
    short = ConstituencyTree.unlabelled(["x", "y"], [(0, 2)])
    assert mutual_f1([[one, short], [two, short]])[0, 1] == pytest.approx(50)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "two runs or more; got 0"),
        ([[], []], "run 1 has no trees"),
        ([["a b c"], ["a b c", "d e f"]], "run 2 has 2 trees, but run 1 has 1"),
        ([["a b c"], ["a b d"]], "tree 1 of run 2 has other words than that of run 1: 'a b d', 'a b c'"),
    ],
)
def test_bad_runs(runs, message):
    trees = [[right_branching(text.split()) for text in run] for run in runs]
    with pytest.raises(InputError, match=message):
        combine_runs(trees)
