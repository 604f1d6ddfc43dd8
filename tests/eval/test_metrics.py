"""The metrics for `evaluate`: they load without a network, and count as the evaluation does."""

import math

import pytest

from stack_lm.eval import metric_path

evaluate = pytest.importorskip("evaluate")
pytestmark = pytest.mark.usefixtures("evaluate_cache")
PREDICTIONS = [[-1.0, -2.0], [-2.0, -1.0], [-3.0, -3.0], [math.nan, math.nan], [-5.0, -6.0]]


def load(name, tmp_path):
    return evaluate.load(metric_path(name), cache_dir=str(tmp_path / "cache"))


def test_minimal_pairs(tmp_path):
    metric = load("minimal_pairs", tmp_path)
    names = ["a", "a", "b", "b", ""]
    result = metric.compute(predictions=PREDICTIONS, references=names)
    assert (result["accuracy"], result["n"], result["n_items"], result["n_oov"], result["n_ties"]) == (50, 4, 5, 1, 1)
    assert {name: group["accuracy"] for name, group in result["by"]["construction"].items()} == {"a": 50, "b": 0}
    wrong = metric.compute(predictions=PREDICTIONS, references=names, oov="wrong")
    assert (wrong["accuracy"], wrong["n"]) == (40, 5)
    for pair, name in zip(PREDICTIONS, names, strict=True):
        metric.add(prediction=pair, reference=name)
    assert metric.compute() == result
    with pytest.raises(ValueError, match="each prediction must be two log-probabilities"):
        metric.compute(predictions=[[1.0]], references=["a"])


def test_syntactic_agreement(tmp_path):
    metric = load("syntactic_agreement", tmp_path)
    references = [
        {"attractors": k, "number": number}
        for k, number in [(0, "plural"), (0, "singular"), (1, "plural"), (1, "plural"), (-1, "plural")]
    ]
    result = metric.compute(predictions=PREDICTIONS, references=references)
    assert (result["accuracy"], result["majority"]) == (50, 75)
    by = result["by"]
    assert {k: (a["accuracy"], a["n"], a["majority"]) for k, a in by["attractors"].items()} == {
        "0": (50, 2, 50), "1": (0, 1, 100),
    }  # fmt: skip
    assert {k: a["n"] for k, a in by["number"].items()} == {"plural": 3, "singular": 1}


@pytest.mark.parametrize("name", ["minimal_pairs", "syntactic_agreement"])
def test_the_example_on_the_card_runs(name):
    with open(f"{metric_path(name)}/README.md", encoding="utf-8") as file:
        code = file.read().split("```python\n")[1].split("```")[0]
    names = {}
    exec(code.replace("metric.compute(", "result = metric.compute(", 1), names)
    assert names["result"]["n"] == 2
