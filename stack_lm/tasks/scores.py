"""Scores of a model's own outputs against their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InputError
from ..labels import IGNORED
from .formats import Transduction, TransductionFormat


@dataclass(frozen=True)
class TransductionScores:
    """How good a model's own outputs are, each a fraction.

    Attributes:
        exact_match: of the outputs, those that are the target from its beginning to its end: the coarse accuracy of
            Grefenstette et al. (2015), section 4.3.
        prefix_accuracy: how much of a target comes before the first error, a mean over targets: the fine accuracy of
            Grefenstette et al. (2015). NOTE: ends are not counted as symbols.
        symbol_accuracy: share of target symbols at their position in the output (Hao et al. 2018).
        number: of transductions.
    """

    exact_match: float
    prefix_accuracy: float
    symbol_accuracy: float
    number: int


def score_outputs(outputs: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> TransductionScores:
    """Compare outputs with targets; target symbols of -100 count nowhere.

    Raises:
        InputError: if there are none, or the numbers of outputs and targets differ.
    """
    if len(outputs) != len(targets) or not targets:
        raise InputError(
            f"there must be one output for each target, and at least one; got {len(outputs)} and {len(targets)}"
        )
    exact, prefixes, right, owed = 0, 0.0, 0, 0
    for output, target in zip(outputs, targets, strict=True):
        hits = [
            place < len(output) and output[place] == symbol for place, symbol in enumerate(target) if symbol != IGNORED
        ]
        exact += all(hits) and len(output) == len(target)
        prefixes += (hits.index(False) if False in hits else len(hits)) / len(hits) if hits else float(not output)
        right, owed = right + sum(hits), owed + len(hits)
    return TransductionScores(
        exact / len(targets), prefixes / len(targets), right / owed if owed else 1.0, len(targets)
    )


@torch.no_grad()
def evaluate_transduction(
    model: Any, format: TransductionFormat, pairs: Sequence[Transduction], *, batch_size: int = 100
) -> TransductionScores:
    """Score a model's own greedy outputs.

    Args:
        model: of the kind that the format is for; it runs in evaluation mode.
        format: how it meets source and target.
        pairs: any number of transductions.
        batch_size: transductions at a time.

    Raises:
        InputError: for no pairs at all, or one that the format cannot hold.
    """
    pairs = [Transduction(*pair) for pair in pairs]
    for pair in pairs:
        format.check(pair)
    training = model.training
    model.eval()
    try:
        outputs = []
        for start in range(0, len(pairs), batch_size):
            outputs += format.outputs(model, pairs[start : start + batch_size])
    finally:
        model.train(training)
    return score_outputs(outputs, [list(pair.target) for pair in pairs])
