"""F1 of constituency trees under a named convention, as a module of Hugging Face's `evaluate`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import datasets
import evaluate

from stack_lm.core.messages import check_name
from stack_lm.eval.metric_info import metric_info
from stack_lm.parsing import ConstituencyTree, get_convention, score_trees, tree_from_distances

_TREES = datasets.Features({"predictions": datasets.Value("string"), "references": datasets.Value("string")})
_DISTANCES = datasets.Features(
    {"predictions": datasets.Sequence(datasets.Value("float64")), "references": datasets.Value("string")}
)


class ParseF1(evaluate.Metric):
    """The metric; `README.md` describes its inputs and outputs."""

    def _info(self) -> evaluate.MetricInfo:
        return metric_info("parse_f1", [_TREES, _DISTANCES])

    def _compute(
        self,
        predictions: Sequence[str | Sequence[float]],
        references: Sequence[str],
        convention: str,
        decoder: str = "algorithm1",
        **rules: Any,
    ) -> dict[str, Any]:
        base = get_convention(convention)
        allowed = [field.name for field in dataclasses.fields(base) if field.name not in ("name", "source")]
        for rule in rules:
            check_name("a rule", rule, allowed)
        gold = [
            ConstituencyTree.from_brackets(text, f"reference {number}")
            for number, text in enumerate(references, start=1)
        ]
        trees = [
            ConstituencyTree.from_brackets(prediction, f"prediction {number}")
            if isinstance(prediction, str)
            else tree_from_distances(tree.words, prediction, decoder)
            for number, (prediction, tree) in enumerate(zip(predictions, gold, strict=True), start=1)
        ]
        score = score_trees(gold, trees, dataclasses.replace(base, **rules))
        return {
            "f1": score.f1,
            "precision": score.precision,
            "recall": score.recall,
            "n_sentences": score.n_sentences,
            "label_recall": score.label_recall,
            "by_length": {name: part._asdict() for name, part in score.by_length.items()},
            "convention": dataclasses.asdict(score.convention),
        }
