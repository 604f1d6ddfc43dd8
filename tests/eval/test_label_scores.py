"""Scores of classifiers, against their definitions."""

import random

import pytest

from stack_lm.core.errors import InputError
from stack_lm.eval.classification import score_labels


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_their_definitions(seed):
    rng = random.Random(seed)
    gold, predicted = (rng.choices("abcd"[: 2 + seed % 3], k=30) for _ in range(2))
    result = score_labels(gold, predicted)
    pairs = list(zip(gold, predicted, strict=True))
    assert result.accuracy == pytest.approx(100 * sum(one == other for one, other in pairs) / 30)
    assert result.majority == pytest.approx(100 * max(map(gold.count, gold)) / 30)
    scores = []
    for label in sorted({*gold, *predicted}):
        right = pairs.count((label, label))
        precision, recall = right / max(1, predicted.count(label)), right / max(1, gold.count(label))
        scores.append(2 * precision * recall / (precision + recall) if right else 0)
        own = next(one for one in result.labels if one.label == label)
        assert (own.n, own.precision, own.recall) == (gold.count(label), 100 * precision, 100 * recall)
        assert own.f1 == pytest.approx(100 * scores[-1])
    assert result.macro_f1 == pytest.approx(100 * sum(scores) / len(scores))


def test_labels_that_nothing_has_or_gets():
    result = score_labels(["a", "a"], ["b", "a"])
    assert [(one.label, one.precision, one.recall, one.f1) for one in result.labels] == [
        ("a", 100, 50, pytest.approx(200 / 3)),
        ("b", 0, 0, 0),
    ]
    assert result.record()["labels"][1] == {"label": "b", "n": 0, "precision": 0, "recall": 0, "f1": 0}
    for gold, predicted in (([], []), (["a"], [])):
        with pytest.raises(InputError, match="a prediction for each text"):
            score_labels(gold, predicted)
