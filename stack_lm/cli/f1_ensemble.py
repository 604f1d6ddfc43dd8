"""`stack-lm parse-f1 --ensemble`: one tree from the trees of all systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import InputError
from ..eval.seeds import Spread
from ..hub.evaluations import name_with_prior
from ..parsing.baselines import PRIORS
from ..parsing.conventions import Convention
from ..parsing.ensemble import Ensemble, combine_runs
from ..parsing.f1 import F1Score, GoldTree, score_trees
from ..parsing.trees import ConstituencyTree
from .f1_report import describe
from .printing import PrintedTable

Trees = Sequence[ConstituencyTree | None]


def score_ensemble(
    gold: Sequence[GoldTree],
    systems: Sequence[tuple[str, Trees]],
    convention: Convention,
    *,
    outlier_share: float,
    prior: tuple[str, int] | None,
) -> tuple[dict[str, Any], list[ConstituencyTree | None]]:
    """Score the trees that the systems vote for, and the best system's own.

    Votes are for spans of the words that count. If one system has no tree for a sentence, the ensemble has none either.

    Returns:
        A record for JSON, and the ensemble's trees.

    Raises:
        InputError: for fewer than two systems, or trees whose words differ from the gold trees'.
    """
    names = [name for name, _ in systems]
    aligned = [[_align(item, tree, name) for item, tree in zip(gold, trees, strict=True)] for name, trees in systems]
    together = [i for i in range(len(gold)) if all(run[i] is not None for run in aligned)]
    runs = [[tree for i in together if (tree := run[i]) is not None] for run in aligned]

    def combined(**settings: Any) -> tuple[Ensemble, F1Score, list[ConstituencyTree | None]]:
        ensemble = combine_runs(runs, names=names, outlier_share=outlier_share, **settings)
        trees: list[ConstituencyTree | None] = [None] * len(gold)
        for i, tree in zip(together, ensemble.trees, strict=True):
            trees[i] = tree
        return ensemble, score_trees(gold, trees, convention, keep_going=len(together) < len(gold)), trees

    ensemble, score, voted = combined()
    record: dict[str, Any] = {
        "runs": names,
        "mutual_f1": ensemble.mutual_f1.tolist(),
        "agreement": ensemble.agreement.tolist(),
        "outliers": [name for name, votes in zip(names, ensemble.voted, strict=True) if not votes],
        "outlier_share": outlier_share,
        "votes": describe(score),
        "best_existing": describe(combined(existing=True)[1]),
    }
    if prior is not None:
        name, votes = prior
        record |= {"prior": name, "prior_votes": votes}
        record["votes_with_prior"] = describe(combined(prior=PRIORS[name], prior_votes=votes)[1])
    return record, voted


def _align(item: GoldTree, tree: ConstituencyTree | None, name: str) -> ConstituencyTree | None:
    """A tree over the words that count, or over all words if none counts."""
    if tree is None:
        return None
    try:
        return item.align(tree) or tree
    except InputError as error:
        raise InputError(f"{name}: {tree.origin or 'a tree'} cannot vote: {error}") from error


def ensemble_table(record: dict[str, Any], scores: Sequence[float]) -> PrintedTable:
    """The runs with their agreement and spread, and the ensemble's scores."""
    rows: list[tuple[Any, ...]] = []
    for name, agreement, f1 in zip(record["runs"], record["agreement"], scores, strict=True):
        rows.append((name + (" (outlier: no vote)" if name in record["outliers"] else ""), f1, agreement))
    spread = Spread.of(scores)
    numbers = {
        f"mean of {len(scores)} runs": spread.mean,
        "standard deviation": spread.sd,
        "minimum, of runs": spread.min,
        "median, of runs": spread.median,
        "maximum, of runs": spread.max,
        "the run that agrees most with the others": scores[int(np.argmax(record["agreement"]))],
        "ensemble: spans with the most votes": record["votes"]["f1"],
        "the run's tree with the most votes": record["best_existing"]["f1"],
    }
    if "prior" in record:
        numbers[name_with_prior(record)] = record["votes_with_prior"]["f1"]
    return PrintedTable(
        "ensemble, F1 in %",
        ["trees", "F1", "mean F1 with the other runs"],
        [*rows, *((name, number, None) for name, number in numbers.items())],
        note=f"a run below {record['outlier_share']:g} of the median F1 with the others does not vote",
    )
