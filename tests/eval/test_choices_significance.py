"""Intervals and tests, against their definitions and published values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.eval import binomial_interval, mcnemar, stratified_interval


def tail(k, n, p):
    """P(X >= k) for X ~ Binomial(n, p)."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@given(data=st.data())
def test_the_interval_by_its_definition(data):
    """At the lower end, k or more successes have a probability of 2.5%; at the upper end, k or fewer."""
    n = data.draw(st.integers(1, 60))
    k = data.draw(st.integers(0, n))
    low, high = (x / 100 for x in binomial_interval(k, n))
    assert low <= k / n <= high
    assert low == 0 if k == 0 else tail(k, n, low) == pytest.approx(0.025)
    assert high == 1 if k == n else 1 - tail(k + 1, n, high) == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 25.27, 36.76), (15, 148, 5.78, 16.17), (0, 20, 0, 16.84), (1, 29, 0.09, 17.76)],
)
def test_published_intervals(k, n, low, high):
    """Newcombe (1998), table I, method 5 (Clopper and Pearson)."""
    assert tuple(round(x, 2) for x in binomial_interval(k, n)) == (low, high)


def test_the_interval_of_a_mean_of_proportions_covers_it():
    """Of the intervals of 2,000 samples, some 95% have the mean of the strata's probabilities; sizes do not matter."""
    generator = np.random.default_rng(0)
    probabilities, sizes = np.array([0.02, 0.3, 0.5, 0.7, 0.9, 0.99]), np.array([20, 40, 100, 15, 60, 80])
    samples = generator.binomial(sizes, probabilities, size=(2000, 6))
    bounds = np.array([stratified_interval(sample, sizes) for sample in samples]) / 100
    covered = (bounds[:, 0] <= probabilities.mean()) & (probabilities.mean() <= bounds[:, 1])
    assert 0.93 < covered.mean() < 0.98


def test_the_interval_of_a_mean_of_proportions_within_its_range():
    low, high = stratified_interval([10, 1], [10, 1])
    assert 0 < low < high == 100
    assert stratified_interval([50], [100]) == pytest.approx((40.2, 59.8), abs=0.01)  # 50 -+ 1.96 * sqrt(0.25 / 100)
    low, high = stratified_interval([5, 9], [10, 10], level=50)
    wide = stratified_interval([5, 9], [10, 10])
    assert wide[0] < low < 70 < high < wide[1]


def test_mcnemar_as_evaluate_has_it():
    """The example on the card of the comparison "mcnemar" of `evaluate`: stat 1.0, p 0.31731050786291115."""
    truth = np.array([1, 0, 1])
    first, second = np.array([1, 1, 1]) == truth, np.array([1, 0, 1]) == truth
    result = mcnemar(first.astype(int), second.astype(int))
    assert (result.statistic, result.only_first, result.only_second, result.n) == (1.0, 0, 1, 3)
    assert result.p_value == pytest.approx(0.31731050786291115)
    assert result.exact_p_value == 1.0


@given(
    first=st.lists(st.sampled_from([-1, 0, 1]), min_size=30, max_size=30),
    second=st.lists(st.sampled_from([-1, 0, 1]), min_size=30, max_size=30),
)
def test_mcnemar_by_its_definition(first, second):
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a >= 0 and b >= 0]
    if not pairs:
        return
    result, other = mcnemar(first, second), mcnemar(second, first)
    b, c = pairs.count((1, 0)), pairs.count((0, 1))
    assert (result.only_first, result.only_second, result.n) == (b, c, len(pairs))
    assert result.exact_p_value == pytest.approx(min(1, 2 * tail(max(b, c), b + c, 0.5)) if b + c else 1)
    assert (result.statistic, result.exact_p_value) == (other.statistic, other.exact_p_value)


def test_bad_input():
    with pytest.raises(InputError, match="no scored item in common"):
        mcnemar([1, -1], [-1, 0])
