"""The metric for `evaluate`: `evaluate.load(stack_lm.eval.metric_path("syntactic_agreement"))`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from stack_lm.eval import score_pairs

_DESCRIPTION = """\
How often a language model gives the verb form that agrees with its subject a higher probability than the other
form (Linzen et al. 2016), by the number of attractors and the number of the subject.
"""

_INPUTS = """\
Args:
    predictions: for each item the log-probabilities of the right and of the wrong alternative.
    references: for each item {"attractors": 2, "number": "plural"}: the nouns of the other number between subject and
        verb, and the number of the subject; -1 and "" where they are not known.
    oov: treatment of items with a NaN: "skip" leaves them out, "wrong" counts them as not correct.
Returns:
    accuracy in percent with its exact interval, counts, and the same for each group, under "by".
"""

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
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(
                {
                    "predictions": datasets.Sequence(datasets.Value("float64")),
                    "references": {"attractors": datasets.Value("int64"), "number": datasets.Value("string")},
                }
            ),
        )

    def _compute(self, predictions: Any, references: Any, oov: Any = "skip") -> dict[str, Any]:
        attractors, numbers = ([reference[key] for reference in references] for key in ("attractors", "number"))
        groups: dict[str, Any] = {
            "attractors": [None if k < 0 else k for k in attractors],
            "number": [number or None for number in numbers],
        }
        return score_pairs(predictions, groups, oov)
