"""F1 of constituency trees under a named convention, as a module of Hugging Face's `evaluate`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import datasets
import evaluate

from stack_lm.errors import InputError
from stack_lm.parsing import ConstituencyTree, get_convention, score_trees, tree_from_distances

_DESCRIPTION = """
Unlabelled F1 of constituency trees (EVALB's labelled F1 with convention="evalb"), under one of the conventions that
papers on unsupervised parsing use. The convention has to be named: the same trees score differently under each.
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: for each sentence a tree in brackets, "(X (X the) (X cat))", or syntactic distances, one for each word
        of the gold tree or one for each but the first.
    references: for each sentence the gold tree in brackets, such as a tree of the Penn Treebank.
    convention: "prpn", "compound-pcfg", "htut", "merrill", "corpus" or "evalb".
    decoder: from distances to trees: "algorithm1" or "gap".
    **rules: changes to the convention, such as removed="nothing", gold="right", whole_sentence="counted",
        average="corpus" or min_words=2; see stack_lm.parsing.Convention.
Returns:
    f1, precision, recall: in percent.
    n_sentences: number of scored sentences.
    label_recall: by label of the gold phrases, in percent; empty with convention="evalb".
    by_length: f1, precision, recall and n_sentences of sentences of 1 to 10 words, 11 to 20 and so on.
    convention: all rules, by name.
Examples:
    >>> import evaluate, stack_lm.eval
    >>> parse_f1 = evaluate.load(stack_lm.eval.metric_path("parse_f1"))
    >>> gold = ["(S (NP (DT the) (NN cat)) (VP (VBD sat) (ADVP (RB right) (RB there))))"]
    >>> results = parse_f1.compute(predictions=[[0, 1, 3, 2, 1]], references=gold, convention="prpn")
    >>> print(round(results["f1"], 2))
    100.0
"""

_CITATION = """
@inproceedings{shen2018neural,
  title = {Neural Language Modeling by Jointly Learning Syntax and Lexicon},
  author = {Shen, Yikang and Lin, Zhouhan and Huang, Chin-Wei and Courville, Aaron},
  booktitle = {International Conference on Learning Representations},
  year = {2018}
}
@inproceedings{merrill2019finding,
  title = {Finding Hierarchical Structure in Neural Stacks Using Unsupervised Parsing},
  author = {Merrill, William and Khazan, Lenny and Amsel, Noah and Hao, Yiding and Mendelsohn, Simon and Frank, Robert},
  booktitle = {Proceedings of the 2019 ACL Workshop BlackboxNLP},
  year = {2019}
}
"""

_TREES = datasets.Features({"predictions": datasets.Value("string"), "references": datasets.Value("string")})
_DISTANCES = datasets.Features(
    {"predictions": datasets.Sequence(datasets.Value("float64")), "references": datasets.Value("string")}
)


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class ParseF1(evaluate.Metric):
    """The metric; its own documentation is what `evaluate` shows."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=[_TREES, _DISTANCES],
        )

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
        unknown = sorted(set(rules) - set(allowed))
        if unknown:
            raise InputError(f"a rule must be one of {', '.join(allowed)}; got {unknown[0]!r}")
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
