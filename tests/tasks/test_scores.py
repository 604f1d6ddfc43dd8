"""The scores of transductions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.tasks.scores import score_outputs


def test_scores_by_hand():
    """Right in whole; a wrong symbol; too short; too long. Grefenstette et al. (2015), section 4.3."""
    targets = [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2]]
    scores = score_outputs([[1, 2], [1, 9, 3, 4], [1, 2], [1, 2, 2]], targets)
    assert scores.exact_match == 1 / 4
    assert scores.prefix_accuracy == (1 + 1 / 4 + 2 / 4 + 1) / 4
    assert scores.symbol_accuracy == (2 + 3 + 2 + 2) / 12
    assert scores.number == 4


def test_symbols_that_are_not_owed_count_nowhere():
    scores = score_outputs([[7, 1, 2], [7, 7, 7]], [[-100, 1, 2], [-100, 1, 7]])
    assert (scores.exact_match, scores.prefix_accuracy, scores.symbol_accuracy) == (1 / 2, 1 / 2, 3 / 4)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=4), st.lists(st.integers(0, 2), max_size=4)), min_size=1)
)
@settings(max_examples=100, deadline=None)
def test_scores_are_ordered(pairs):
    outputs, targets = zip(*pairs, strict=True)
    scores = score_outputs(outputs, targets)
    assert 0 <= scores.exact_match <= scores.prefix_accuracy <= 1
    assert scores.exact_match == sum(output == target for output, target in pairs) / len(pairs)
    perfect = score_outputs(targets, targets)
    assert perfect.exact_match == perfect.prefix_accuracy == perfect.symbol_accuracy == 1


def test_as_many_outputs_as_targets():
    with pytest.raises(InputError, match="got 1 and 2"):
        score_outputs([[1]], [[1], [2]])
