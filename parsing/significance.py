"""The paired bootstrap: a test whether one parser is better than another, beyond the choice of sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stack_lm.core.errors import InputError

from .averages import corpus_scores
from .f1 import F1Score

# Draws of sentence numbers held in memory at a time.
_BLOCK = 2_000_000


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


def compare_f1(
    first: F1Score, second: F1Score, *, n_resamples: int = 10_000, level: float = 95.0, seed: int = 0
) -> F1Comparison:
    """Compare two systems by the paired bootstrap: sentences are drawn with replacement, the same for both.

    Args:
        first: scores of the first system. Only sentences that both systems have are used.
        second: scores of the second system, on the same gold trees by the same convention.
        n_resamples: number of bootstrap resamples.
        level: the level of the intervals, in percent.
        seed: the seed of the draws.

    Raises:
        InputError: if the conventions differ, the scores have no sentence in common, or a number is out of range.
    """
    if first.convention != second.convention:
        raise InputError(
            f"scores of two conventions cannot be compared: {first.convention.name} and {second.convention.name}"
        )
    if n_resamples < 1 or not 0 < level < 100:
        raise InputError(
            f"at least one resample and a level between 0 and 100 are needed; got {n_resamples} and {level:g}"
        )
    shared, rows, other_rows = np.intersect1d(first.numbers, second.numbers, return_indices=True)
    if not len(shared):
        raise InputError("the two scores have no sentence in common")
    sides = [_Resampled(first, rows), _Resampled(second, other_rows)]
    rng = np.random.default_rng(seed)
    n = len(shared)
    drawn: list[np.ndarray] = []
    block = max(1, _BLOCK // n)
    for start in range(0, n_resamples, block):
        draws = rng.integers(n, size=(min(block, n_resamples - start), n))
        drawn.append(np.stack([side.f1(draws) for side in sides], axis=1))
    f1 = np.concatenate(drawn)
    difference = sides[0].whole - sides[1].whole
    sign = f1[:, 0] - f1[:, 1]
    against = (sign <= 0).mean() if difference > 0 else (sign >= 0).mean()
    tails = [(100 - level) / 2, (100 + level) / 2]
    low, high = np.percentile(sign, tails).tolist()
    intervals = np.percentile(f1, tails, axis=0).T.tolist()
    return F1Comparison(
        difference=difference,
        low=low,
        high=high,
        first_interval=(intervals[0][0], intervals[0][1]),
        second_interval=(intervals[1][0], intervals[1][1]),
        p_value=min(1.0, 2 * float(against)),
        level=level,
        n_resamples=n_resamples,
        n_sentences=n,
    )


def f1_interval(
    score: F1Score, *, n_resamples: int = 10_000, level: float = 95.0, seed: int = 0
) -> tuple[float, float]:
    """Return the bootstrap interval of a system's F1 over its sentences, in percent, at `level` percent.

    Args, Raises: as `compare_f1`.
    """
    return compare_f1(score, score, n_resamples=n_resamples, level=level, seed=seed).first_interval


class _Resampled:
    """F1 of one system on sentences drawn from those that both systems have."""

    def __init__(self, score: F1Score, rows: np.ndarray) -> None:
        self.by_sentence = score.convention.average == "sentence"
        self.values = score.per_sentence[rows, 2] if self.by_sentence else score.counts[rows]
        self.whole = float(self.f1(np.arange(len(rows))[None])[0])

    def f1(self, draws: np.ndarray) -> np.ndarray:
        """F1 of each row of sentence numbers [R, n], in percent."""
        if self.by_sentence:
            return self.values[draws].mean(axis=1)
        return 100 * corpus_scores(self.values[draws].sum(axis=1))[:, 2]
