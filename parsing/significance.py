"""The paired bootstrap: a test whether one parser is better than another, beyond the choice of sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stack_lm.core.errors import InputError

from .averages import corpus_scores
from .f1 import F1Score

# Draws of sentence numbers held in memory at a time.
_BLOCK = 2_000_000
LEVEL = 95.0


@dataclass(frozen=True)
class F1Comparison:
    """Two systems on the same sentences. F1 in percent.

    Attributes:
        difference: F1 of the first system minus that of the second.
        low, high: the interval that contains the difference in `level` percent of the resamples.
        first_interval, second_interval: the same of each system's F1.
        p_value: twice the share of resamples in which the difference has the other sign or is 0 (Koehn 2004); at most
            1.
        level: the level of the intervals, in percent.
        n_resamples, n_sentences: the number of resamples, and of sentences in each.
    """

    difference: float
    low: float
    high: float
    first_interval: tuple[float, float]
    second_interval: tuple[float, float]
    p_value: float
    level: float
    n_resamples: int
    n_sentences: int


def compare_f1(first: F1Score, second: F1Score, *, n_resamples: int = 10_000, seed: int = 0) -> F1Comparison:
    """Compare two systems by the paired bootstrap: sentences are drawn with replacement, the same for both.

    Args:
        first: scores of the first system. Only sentences that both systems have are used.
        second: scores of the second system, on the same gold trees by the same convention.
        n_resamples: number of bootstrap resamples.
        seed: the seed of the draws.

    Raises:
        InputError: if the conventions differ, or the scores have no sentence in common.
    """
    if first.convention != second.convention:
        raise InputError(
            f"scores of two conventions cannot be compared: {first.convention.name} and {second.convention.name}"
        )
    shared, rows, other_rows = np.intersect1d(first.numbers, second.numbers, return_indices=True)
    if not len(shared):
        raise InputError("the two scores have no sentence in common")
    sides = [_resampled(first, rows), _resampled(second, other_rows)]
    rng = np.random.default_rng(seed)
    n = len(shared)
    drawn: list[np.ndarray] = []
    block = max(1, _BLOCK // n)
    for start in range(0, n_resamples, block):
        draws = rng.integers(n, size=(min(block, n_resamples - start), n))
        drawn.append(np.stack([f1_of(draws) for f1_of in sides], axis=1))
    f1 = np.concatenate(drawn)
    whole = [float(f1_of(np.arange(n)[None])[0]) for f1_of in sides]
    difference = whole[0] - whole[1]
    sign = f1[:, 0] - f1[:, 1]
    against = (sign <= 0).mean() if difference > 0 else (sign >= 0).mean()
    tails = [(100 - LEVEL) / 2, (100 + LEVEL) / 2]
    low, high = np.percentile(sign, tails).tolist()
    intervals = np.percentile(f1, tails, axis=0).T.tolist()
    return F1Comparison(
        difference=difference,
        low=low,
        high=high,
        first_interval=(intervals[0][0], intervals[0][1]),
        second_interval=(intervals[1][0], intervals[1][1]),
        p_value=min(1.0, 2 * float(against)),
        level=LEVEL,
        n_resamples=n_resamples,
        n_sentences=n,
    )


def f1_interval(score: F1Score) -> tuple[float, float]:
    """The bootstrap interval of a system's F1 over its sentences, as in `compare_f1`."""
    return compare_f1(score, score).first_interval


def _resampled(score: F1Score, rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """F1 of a system, in percent, in each of some samples [R, n] of its sentences in `rows`."""
    if score.convention.average == "sentence":
        values = score.per_sentence[rows, 2]
        return lambda draws: values[draws].mean(axis=1)
    counts = score.counts[rows]
    return lambda draws: 100 * corpus_scores(counts[draws].sum(axis=1))[:, 2]
