"""Scores of a classifier: accuracy, macro F1, and precision and recall of each label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stack_lm.core.errors import InputError


@dataclass(frozen=True)
class LabelScores:
    """Scores of one label; all but `n` in percent.

    Attributes:
        label: its name.
        n: number of texts with this label.
        precision: of the texts predicted to have it, those that do; 0 if there are none.
        recall: of the texts that have it, those predicted to; 0 if there are none.
        f1: the harmonic mean of both.
    """

    label: str
    n: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class ClassificationResult:
    """A classifier's scores on some texts, in percent.

    Attributes:
        n: number of texts.
        accuracy: texts whose label was predicted.
        macro_f1: the mean F1 over all labels of texts or predictions.
        majority: the accuracy of always predicting the most frequent label of these texts.
        labels: the scores of each of these labels, by name.
    """

    n: int
    accuracy: float
    macro_f1: float
    majority: float
    labels: tuple[LabelScores, ...]

    def record(self) -> dict[str, Any]:
        """The scores for JSON."""
        return asdict(self)


def score_labels(gold: Sequence[str], predicted: Sequence[str]) -> ClassificationResult:
    """Compare the predicted labels of texts with their true ones.

    Raises:
        InputError: if there are none, or their numbers differ.
    """
    if len(gold) != len(predicted) or not gold:
        raise InputError(f"there must be a prediction for each text, and at least one; got {len(predicted)}")
    have, given = Counter(gold), Counter(predicted)
    right = Counter(label for label, other in zip(gold, predicted, strict=True) if label == other)
    labels = []
    for label in sorted(have | given):
        precision = right[label] / given[label] if given[label] else 0.0
        recall = right[label] / have[label] if have[label] else 0.0
        f1 = 2 * right[label] / (have[label] + given[label])
        labels.append(LabelScores(label, have[label], 100 * precision, 100 * recall, 100 * f1))
    return ClassificationResult(
        n=len(gold),
        accuracy=100 * right.total() / len(gold),
        macro_f1=sum(scores.f1 for scores in labels) / len(labels),
        majority=100 * max(have.values()) / len(gold),
        labels=tuple(labels),
    )
