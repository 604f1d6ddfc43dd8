"""Counting choices: against counting by hand, for all that can happen to an item."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.eval import score_choices
from stack_lm.eval.choices import correct_codes

ITEM = st.tuples(
    st.sampled_from([-1.0, -2.0, math.nan]),
    st.sampled_from([-1.0, -2.0, -math.inf]),
    st.booleans(),  # the alternatives are the same
    st.booleans(),  # they differ in an unknown word
    st.sampled_from([0, 1, None]),
    st.sampled_from(["singular", "plural"]),
)


def by_hand(item, oov):
    """True, False, or None for what is left out."""
    right, wrong, same, rare, *_ = item
    if same:
        return None
    if rare:
        return False if oov == "wrong" else None
    return None if math.isnan(right) else right > wrong


def score(items, oov):
    columns = list(zip(*items, strict=True))
    groups = {"attractors": columns[4], "number": columns[5]}
    pairs = np.stack(columns[:2], axis=1)
    return score_choices(pairs, groups, identical=columns[2], unknown=columns[3], oov=oov)


@given(items=st.lists(ITEM, min_size=1, max_size=30), oov=st.sampled_from(["skip", "wrong"]), data=st.data())
def test_counts(items, oov, data):
    chosen = [by_hand(item, oov) for item in items]
    if all(choice is None for choice in chosen):
        with pytest.raises(InputError, match="none of the"):
            score(items, oov)
        return
    result = score(items, oov)
    scored = [choice for choice in chosen if choice is not None]
    assert result.n == len(scored)
    assert result.accuracy == pytest.approx(100 * sum(scored) / len(scored))
    assert [None if code < 0 else bool(code) for code in result.correct] == chosen
    for k, accuracy in result.groups.get("attractors", {}).items():
        among = [i for i, item in enumerate(items) if item[4] == k and chosen[i] is not None]
        assert accuracy.n == len(among)
        assert accuracy.accuracy == pytest.approx(100 * sum(chosen[i] for i in among) / len(among))
        plural = sum(items[i][5] == "plural" for i in among)
        assert accuracy.majority == pytest.approx(100 * max(plural, len(among) - plural) / len(among))
        assert accuracy.low <= accuracy.accuracy <= accuracy.high
    assert result.n_skipped == chosen.count(None)
    # The order of the items says nothing, and the outcomes are enough to recompute the score.
    order = data.draw(st.permutations(range(len(items))))
    assert score([items[i] for i in order], oov).record() == result.record()
    assert correct_codes(result.outcomes, oov).tolist() == result.correct.tolist()


def test_groups_are_in_order():
    values = [10, 2, "b", "a", None]
    result = score_choices(np.zeros((5, 2)), {"distance": values})
    assert list(result.groups["distance"]) == [2, 10, "a", "b"]
