"""The common part of the metrics of choices for `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

_INPUTS = """\
Args:
    predictions: for each item the log-probabilities of the right and of the wrong alternative.
    references: {}
    oov: treatment of items with a NaN: "skip" leaves them out, "wrong" counts them as not correct.
Returns:
    accuracy in percent with its exact interval, counts, and the same for each group, under "by", and the
    unweighted means over groups, under "mean_over".
"""


def choice_metric_info(description: str, references: str, feature: Any, citation: str) -> evaluate.MetricInfo:
    """The description of a metric whose predictions are pairs of log-probabilities; see `score_pairs`.

    Args:
        description, citation: the description and citation of the metric.
        references: a description of them.
        feature: the type of a reference in `datasets`.
    """
    pair = datasets.Sequence(datasets.Value("float64"))
    return evaluate.MetricInfo(
        description=description,
        citation=citation,
        inputs_description=_INPUTS.format(references),
        features=datasets.Features({"predictions": pair, "references": feature}),
    )
