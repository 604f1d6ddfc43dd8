"""Trees elected by the values of spans, against all binary trees."""

import numpy as np
import pytest
from conftest import all_binary_trees

from stack_lm.parsing.trees import ConstituencyTree
from stack_lm.scoring.spans import tree_of_spans


def of_words(spans, before):
    """The spans, as the words without punctuation that they cover."""
    return {(before[a], before[b]) for a, b in spans if before[b] - before[a] > 1}


@pytest.mark.parametrize("words", ["a b c d e", "a , b c .", ", a b c , d .", "a b , .", ", .", "` a b c d '"])
@pytest.mark.parametrize("seed", range(4))
def test_trees_are_the_best(words, seed):
    """Best over the words without punctuation; and among the trees that agree with that one, over all words."""
    words = words.split()
    n = len(words)
    values = np.triu(np.random.default_rng(seed).random((n + 1, n + 1)), k=1)
    tree = tree_of_spans(words, values)
    found = {(start, stop) for start, stop, _ in tree.spans}
    before = [sum(word.isalpha() for word in words[:i]) for i in range(n + 1)]
    pairs = [(a, b) for a in range(n + 1) for b in range(a + 2, n + 1)]

    def value(spans):
        return sum(min(1, sum(values[a, b] for a, b in pairs if (before[a], before[b]) == span)) for span in spans)

    trees = list(all_binary_trees(0, n))
    assert found in trees
    assert value(of_words(found, before)) == pytest.approx(max(value(of_words(spans, before)) for spans in trees))
    alike = [spans for spans in trees if of_words(spans, before) == of_words(found, before)]
    assert sum(values[span] for span in found) == pytest.approx(max(sum(values[s] for s in spans) for spans in alike))


def test_punctuation_does_not_divide_the_votes():
    """Half of the voters include the comma in the first phrase, half do not; one in three split the words otherwise."""
    words = "a b , c".split()
    values = np.zeros((5, 5))
    values[0, 2], values[0, 3], values[1, 4] = 0.3, 0.3, 0.4
    assert tree_of_spans(words, values) == ConstituencyTree.unlabelled(words, [(0, 4), (0, 3), (0, 2)])
