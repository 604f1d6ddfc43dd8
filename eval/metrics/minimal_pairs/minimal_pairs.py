"""The metric for `evaluate`: `evaluate.load(stack_lm.eval.metric_path("minimal_pairs"))`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from stack_lm.eval import score_pairs
from stack_lm.eval.metric_info import metric_info


class MinimalPairs(evaluate.Metric):
    """Accuracy of choices between two sentences, by construction."""

    def _info(self) -> evaluate.MetricInfo:
        types = {"predictions": datasets.Sequence(datasets.Value("float64")), "references": datasets.Value("string")}
        return metric_info("minimal_pairs", datasets.Features(types))

    def _compute(self, predictions: Any, references: Any, oov: Any = "skip") -> dict[str, Any]:
        return score_pairs(predictions, {"construction": [name or None for name in references]}, oov)
