"""The metric for `evaluate`: `evaluate.load(stack_lm.eval.metric_path("syntactic_agreement"))`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from stack_lm.eval import score_pairs
from stack_lm.eval.choice_metric import choice_metric_info

_DESCRIPTION = """\
How often a language model gives the verb form that agrees with its subject a higher probability than the other
form (Linzen et al. 2016), by the number of attractors and the number of the subject.
"""

_REFERENCES = """\
for each item {"attractors": 2, "number": "plural"}: the nouns of the other number between subject and
        verb, and the number of the subject; -1 and "" where they are not known."""

_CITATION = """\
@article{linzen2016assessing,
    title = {Assessing the Ability of {LSTMs} to Learn Syntax-Sensitive Dependencies},
    author = {Linzen, Tal and Dupoux, Emmanuel and Goldberg, Yoav},
    journal = {Transactions of the Association for Computational Linguistics},
    volume = {4},
    pages = {521--535},
    year = {2016}
}
"""


class SyntacticAgreement(evaluate.Metric):
    """Accuracy of choices between two forms of a verb, by attractors and number."""

    def _info(self) -> evaluate.MetricInfo:
        feature = {"attractors": datasets.Value("int64"), "number": datasets.Value("string")}
        return choice_metric_info(_DESCRIPTION, _REFERENCES, feature, _CITATION)

    def _compute(self, predictions: Any, references: Any, oov: Any = "skip") -> dict[str, Any]:
        attractors, numbers = ([reference[key] for reference in references] for key in ("attractors", "number"))
        groups: dict[str, Any] = {
            "attractors": [None if k < 0 else k for k in attractors],
            "number": [number or None for number in numbers],
        }
        return score_pairs(predictions, groups, oov)
