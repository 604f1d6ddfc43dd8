"""From counts of spans to precision, recall and F1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .conventions import Convention

_TINY = 1e-8


class Score(NamedTuple):
    """A score in percent; NaN without any sentence."""

    f1: float
    precision: float
    recall: float
    n_sentences: int


def sentence_scores(counts: np.ndarray) -> np.ndarray:
    """Precision, recall and F1 of each sentence [n, 3], as fractions, as in PRPN, including its empty cases.

    Args:
        counts: spans in both trees, in the prediction and in the gold tree [n, 3].
    """
    both, predicted, gold = counts.T.astype(float)
    precision, recall = both / (predicted + _TINY), both / (gold + _TINY)
    recall[gold == 0] = 1.0
    precision[(gold == 0) & (predicted == 0)] = 1.0
    f1 = 2 * precision * recall / (precision + recall + _TINY)
    return np.stack((precision, recall, f1), axis=1)


def corpus_scores(totals: np.ndarray) -> np.ndarray:
    """Precision, recall and F1 of all spans together [..., 3], as fractions; 0 if nothing is right.

    Args:
        totals: sums of spans in both trees, in the predictions and in the gold trees [..., 3].
    """
    both, predicted, gold = np.moveaxis(np.asarray(totals, dtype=float), -1, 0)
    precision, recall = both / np.maximum(predicted, 1), both / np.maximum(gold, 1)
    f1 = 2 * both / np.maximum(predicted + gold, 1)
    return np.stack((precision, recall, f1), axis=-1)


def summarize(counts: np.ndarray, convention: Convention) -> Score:
    """The score of some sentences, from their counts [n, 3], averaged by the convention."""
    if not len(counts):
        return Score(float("nan"), float("nan"), float("nan"), 0)
    if convention.average == "sentence":
        precision, recall, f1 = 100 * sentence_scores(counts).mean(axis=0)
    else:
        precision, recall, f1 = 100 * corpus_scores(counts.sum(axis=0))
    return Score(float(f1), float(precision), float(recall), len(counts))
