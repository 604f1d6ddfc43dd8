"""Distances and the trees they make."""

import json
import math

import numpy as np
import pytest
from conftest import REAL_DATA, needs_real_data
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.core.trace import Trace
from stack_lm.parsing import distances_from_trace, tree_from_distances

# The decoders' definitions worked out by hand.
GOLDEN = [
    ([1, 1, 1, 1], "(0 (1 (2 3)))", "(0 (1 (2 3)))"),
    ([4, 3, 2, 1], "(0 (1 (2 3)))", "(0 (1 (2 3)))"),
    ([1, 2, 3, 4], "(((0 1) 2) 3)", "(((0 1) 2) 3)"),
    ([0.5, 2.5, 0.4, 0.5, 3.1, 0.3], "((0 (1 (2 3))) (4 5))", "((0 ((1 2) 3)) (4 5))"),
    ([2, 1, 3, 1, 2], "((0 1) (2 (3 4)))", "((0 1) ((2 3) 4))"),
    ([9, 1, 3, 2, 1], "(0 (1 (2 (3 4))))", "((0 1) (2 (3 4)))"),
    ([7], "0", "0"),
]


def decode(distances, decoder):
    return str(tree_from_distances([str(i) for i in range(len(distances))], distances, decoder))


@pytest.mark.parametrize(("distances", "algorithm1", "gap"), GOLDEN)
def test_decoders(distances, algorithm1, gap):
    assert decode(distances, "algorithm1") == algorithm1
    assert decode(distances, "gap") == gap


@needs_real_data
def test_decoders_on_the_reference_file():
    reference = json.loads((REAL_DATA / "parsing" / "reference_wsj_sample.json").read_text())["decoder_golden"]
    assert len(reference) >= 8
    for distances, trees in reference.items():
        assert decode(json.loads(distances), "algorithm1") == trees["alg1"]
        assert decode(json.loads(distances), "gap") == trees["gap"]


def make_tree(words, distances):
    """Algorithm 1 of Merrill et al. (2019), as printed."""
    if len(words) <= 1:
        return words[0] if words else None
    i = max(range(len(words)), key=lambda j: (distances[j], -j))
    left, right = make_tree(words[:i], distances[:i]), make_tree(words[i + 1 :], distances[i + 1 :])
    if left is not None and right is not None:
        return f"({left} ({words[i]} {right}))"
    return f"({words[i]} {right})" if left is None else f"({left} {words[i]})"


@given(st.lists(st.integers(0, 6), min_size=1, max_size=14))
def test_algorithm1_equals_the_printed_one(distances):
    assert decode(distances, "algorithm1") == make_tree([str(i) for i in range(len(distances))], distances)


def split_at_gaps(words, distances):
    """Dyer et al. (2019): the phrase splits before the leftmost greatest distance inside it."""
    if len(words) == 1:
        return words[0]
    i = max(range(1, len(words)), key=lambda j: (distances[j], -j))
    return f"({split_at_gaps(words[:i], distances[:i])} {split_at_gaps(words[i:], distances[i:])})"


@given(st.lists(st.integers(0, 6), min_size=1, max_size=14))
def test_gap_equals_its_definition(distances):
    assert decode(distances, "gap") == split_at_gaps([str(i) for i in range(len(distances))], distances)


@given(st.lists(st.floats(0, 3), min_size=1, max_size=14), st.sampled_from(["algorithm1", "gap"]))
def test_trees_are_binary_and_keep_the_words(distances, decoder):
    words = [f"w{i}" for i in range(len(distances))]
    tree = tree_from_distances(words, distances, decoder)
    assert list(tree.words) == words
    assert len(set(tree.spans)) == len(words) - 1
    assert all(len(children) == 2 for children in tree.children())


@given(st.lists(st.floats(0, 3), min_size=1, max_size=14), st.sampled_from(["algorithm1", "gap"]))
def test_without_the_first_distance_it_counts_as_the_least(distances, decoder):
    words = [str(i) for i in range(len(distances))]
    assert tree_from_distances(words, distances[1:], decoder) == tree_from_distances(
        words, [-1, *distances[1:]], decoder
    )


# How many trees Algorithm 1 can make of n words.
REACHABLE = {1: 1, 2: 1, 3: 2, 4: 5, 5: 13, 6: 35, 7: 97, 8: 275, 9: 794}


@pytest.mark.parametrize(
    ("n", "reachable"), [(n, m) if n < 8 else pytest.param(n, m, marks=pytest.mark.slow) for n, m in REACHABLE.items()]
)
def test_algorithm1_cannot_make_every_tree(n, reachable):
    """Dyer et al. (2019): of the 14 trees over five words ((A B) ((C D) E)) cannot be made."""
    import itertools

    trees = {decode(order, "algorithm1") for order in itertools.permutations(range(n))}
    assert len(trees) == reachable
    if n <= 6:
        every = {decode(order, "gap") for order in itertools.permutations(range(n))}
        assert len(every) == math.comb(2 * n - 2, n - 1) // n  # all binary trees
        assert trees <= every
    if n == 5:
        assert every - trees == {"((0 1) ((2 3) 4))"}


def test_a_long_sentence_does_not_exhaust_the_stack():
    n = 100_000  # as many steps, and no more: each split must not look at the whole rest
    tree = tree_from_distances([str(i) for i in range(n)], list(range(n)))
    assert [stop for start, stop, _ in tree.spans if start == 0] == list(range(n, 1, -1))


def trace(**signals):
    n = len(next(iter(signals.values())))
    return Trace(tuple("abcdef"[:n]), np.zeros(n), np.ones(n), np.zeros(n, dtype=bool), actions=(signals,))


def test_push_strengths_stand_at_their_word_and_pop_strengths_behind_it():
    signals = {"push_strength": np.array([0.5, 2.0, 1.0]), "pop_strength": np.array([1.0, 3.0, 2.0])}
    assert distances_from_trace(trace(**signals), "push_strength").tolist() == [0.5, 2.0, 1.0]
    assert distances_from_trace(trace(**signals), "pop_strength").tolist() == [0.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("signals", "signal", "message"),
    [
        ({"push_strength": np.ones(2)}, "pop_strength", "no signal 'pop_strength'.*there are: push_strength"),
        ({"other": np.ones(2)}, "push_strength", "there are: none, as the model has no memory"),
        ({"push_strength": np.array([1.0, np.nan])}, "push_strength", "the push_strength of 'a b' is not finite"),
    ],
)
def test_bad_traces(signals, signal, message):
    with pytest.raises(InputError, match=message):
        distances_from_trace(trace(**signals), signal)


@pytest.mark.parametrize(
    ("words", "distances", "decoder", "message"),
    [
        (["a", "b", "c"], [1], "gap", "got 1 distances and 3 words"),
        ([], [], "gap", "got 0 distances and 0 words"),
        (["a", "b"], [1, math.nan], "gap", "a distance of 'a b' is not a number"),
    ],
)
def test_bad_input(words, distances, decoder, message):
    with pytest.raises(InputError, match=message):
        tree_from_distances(words, distances, decoder)
