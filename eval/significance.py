"""Significance: exact binomial intervals, and McNemar's test of two models on the same items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, betaincinv, ndtri

from stack_lm.core.errors import InputError


def binomial_interval(n_correct: int, n: int, level: float = 95.0) -> tuple[float, float]:
    """The exact confidence interval of a proportion (Clopper and Pearson 1934), in percent.

    Args:
        n_correct: successes.
        n: trials, at least 1.
        level: the level of the interval, in percent.
    """
    tail = (1 - level / 100) / 2
    low = betaincinv(n_correct, n - n_correct + 1, tail) if n_correct else 0.0
    high = betaincinv(n_correct + 1, n - n_correct, 1 - tail) if n_correct < n else 1.0
    return 100 * float(low), 100 * float(high)


def stratified_interval(n_correct: Sequence[int], n: Sequence[int], level: float = 95.0) -> tuple[float, float]:
    """A confidence interval of the unweighted mean of several proportions, in percent: for other trials of the same
    strata (stratified sampling; Cochran 1977, section 5.3), by the normal distribution.

    Each stratum's variance is that of (correct + 1) / (n + 2), so that one without errors, or with a single trial, is
    not without variance.

    Args:
        n_correct: the successes of each stratum.
        n: its trials, at least 1.
        level: the level of the interval, in percent.
    """
    correct, trials = np.asarray(n_correct, dtype=np.float64), np.asarray(n, dtype=np.float64)
    shrunk = (correct + 1) / (trials + 2)
    error = float(np.sqrt((shrunk * (1 - shrunk) / trials).sum())) / len(trials)
    mean, margin = float((correct / trials).mean()), float(ndtri(0.5 + level / 200)) * error
    return 100 * max(0.0, mean - margin), 100 * min(1.0, mean + margin)


@dataclass(frozen=True)
class McNemar:
    """McNemar's test on the items that two models both scored.

    Attributes:
        only_first, only_second: items that only one model has right.
        n: items that both scored.
        statistic: (only_first - only_second)^2 / (only_first + only_second), without a correction for continuity, as in
            the comparison "mcnemar" of `evaluate`; 0 if the models never differ.
        p_value: p-value of the statistic, by the chi-square distribution with one degree of freedom.
        exact_p_value: two-sided, by the binomial distribution; use this one if the models differ in few items.
    """

    only_first: int
    only_second: int
    n: int
    statistic: float
    p_value: float
    exact_p_value: float


def mcnemar(first: Sequence[int] | np.ndarray, second: Sequence[int] | np.ndarray) -> McNemar:
    """Compare two models on the same items (McNemar 1947).

    Args:
        first: for each item, 1 if the first model is correct, 0 if not, -1 if not scored.
        second: likewise for the second model.

    Raises:
        InputError: if no item was scored by both.
    """
    a, b = np.asarray(first), np.asarray(second)
    both = (a >= 0) & (b >= 0)
    if not both.any():
        raise InputError("the two models have no scored item in common")
    only_first = int((both & (a == 1) & (b == 0)).sum())
    only_second = int((both & (a == 0) & (b == 1)).sum())
    differ = only_first + only_second
    statistic = (only_first - only_second) ** 2 / differ if differ else 0.0
    # The probability above x of chi-square with one degree of freedom is that of a normal beyond sqrt(x), twice.
    p_value = math.erfc(math.sqrt(statistic / 2))
    exact = min(1.0, 2 * float(bdtr(min(only_first, only_second), differ, 0.5))) if differ else 1.0
    return McNemar(only_first, only_second, int(both.sum()), statistic, p_value, exact)
