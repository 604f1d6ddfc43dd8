"""The metric for `evaluate`: `evaluate.load(stack_lm.eval.metric_path("syntactic_agreement"))`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from stack_lm.eval import score_pairs
from stack_lm.eval.metric_info import metric_info


class SyntacticAgreement(evaluate.Metric):
    """Accuracy of choices between two forms of a verb, by attractors and number."""

    def _info(self) -> evaluate.MetricInfo:
        reference = {"attractors": datasets.Value("int64"), "number": datasets.Value("string")}
        types = {"predictions": datasets.Sequence(datasets.Value("float64")), "references": reference}
        return metric_info("syntactic_agreement", datasets.Features(types))

    def _compute(self, predictions: Any, references: Any, oov: Any = "skip") -> dict[str, Any]:
        groups: dict[str, Any] = {
            "attractors": [None if item["attractors"] < 0 else item["attractors"] for item in references],
            "number": [item["number"] or None for item in references],
        }
        return score_pairs(predictions, groups, oov)
