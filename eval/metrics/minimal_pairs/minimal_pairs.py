"""The metric for `evaluate`: `evaluate.load(stack_lm.eval.metric_path("minimal_pairs"))`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from stack_lm.eval import score_pairs
from stack_lm.eval.choice_metric import choice_metric_info

_DESCRIPTION = """\
How often a language model gives the acceptable sentence of a minimal pair a higher probability than the unacceptable
one (Marvin and Linzen 2018; Warstadt et al. 2020), by construction.
"""

_REFERENCES = 'for each pair the name of its construction; "" where it has none.'

_CITATION = """\
@article{warstadt2020blimp,
    title = {{BLiMP}: The Benchmark of Linguistic Minimal Pairs for {English}},
    author = {Warstadt, Alex and Parrish, Alicia and Liu, Haokun and Mohananey, Anhad and Peng, Wei and
              Wang, Sheng-Fu and Bowman, Samuel R.},
    journal = {Transactions of the Association for Computational Linguistics},
    volume = {8},
    pages = {377--392},
    year = {2020}
}
"""


class MinimalPairs(evaluate.Metric):
    """Accuracy of choices between two sentences, by construction."""

    def _info(self) -> evaluate.MetricInfo:
        return choice_metric_info(_DESCRIPTION, _REFERENCES, datasets.Value("string"), _CITATION)

    def _compute(self, predictions: Any, references: Any, oov: Any = "skip") -> dict[str, Any]:
        return score_pairs(predictions, {"construction": [name or None for name in references]}, oov)
