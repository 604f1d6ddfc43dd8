"""Scores of answers: each is defined once, for the outputs of any program and for models trained here.

A score gives the points of the answers to one example, and the possible points. Over several examples it is the ratio
of the two sums; if nothing is asked, it is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import fsum, inf, isfinite
from typing import Any, NamedTuple

from ..core.errors import InputError
from ..core.labels import IGNORED
from .formats import Transduction, TransductionFormat


class Answers(NamedTuple):
    """The answers to one example.

    Attributes:
        right: for each scored label, whether it is the answer.
        surprisals: if the cross-entropy is a score, -log of each label's probability, in nats.
    """

    right: Sequence[bool]
    surprisals: Sequence[float] = ()


Score = Callable[[Answers], tuple[float, int]]


def of_symbols(answers: Answers) -> tuple[float, int]:
    """Right symbols."""
    return sum(answers.right), len(answers.right)


def of_strings(answers: Answers) -> tuple[float, int]:
    """Strings whose symbols are all right."""
    return all(answers.right), 1


def of_first(answers: Answers) -> tuple[float, int]:
    """Strings whose first symbol is right."""
    return answers.right[0], 1


def before_the_first_error(answers: Answers) -> tuple[float, int]:
    """The share of a string's symbols before the first wrong one, for a mean over strings."""
    right = list(answers.right)
    return (right.index(False) / len(right) if False in right else 1.0), 1


def cross_entropy(answers: Answers) -> tuple[float, int]:
    """Nats of symbols. NaN becomes infinity, so that a table's statistics can order it."""
    nats = fsum(value if isfinite(value) else inf for value in answers.surprisals)
    return nats, len(answers.surprisals)


def over(score: Score, answers: Iterable[Answers]) -> float:
    """A score over several examples."""
    got, owed = zip(*map(score, answers), strict=True)
    return fsum(got) / sum(owed) if any(owed) else 1.0


def summarize(
    scores: Mapping[str, Score], answers: Sequence[Answers], sizes: Sequence[int], edits: Sequence[int | None] = ()
) -> dict[str, Any]:
    """Scores by name over all examples, and over parts of them: {number: [score, number of examples]}.

    Args:
        scores: the scores, by name.
        answers: the answers to each example.
        sizes: the sizes of the examples; scores by size are under "by_length".
        edits: see `Example`; scores by edits are under "by_edits", if any are known.
    """
    summary: dict[str, Any] = {name: over(score, answers) for name, score in scores.items()}
    summary["by_length"] = _by(scores, answers, sizes)
    if any(number is not None for number in edits):
        summary["by_edits"] = _by(scores, answers, edits)
    return summary


def _by(scores: Mapping[str, Score], answers: Sequence[Answers], numbers: Sequence[int | None]) -> dict[str, Any]:
    parts: dict[int, list[Answers]] = {number: [] for number in sorted({n for n in numbers if n is not None})}
    for of, number in zip(answers, numbers, strict=True):
        if number is not None:
            parts[number].append(of)
    return {
        name: {str(number): [over(score, of), len(of)] for number, of in parts.items()}
        for name, score in scores.items()
    }


def overall(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return a summary's scores over all examples."""
    return {name: value for name, value in scores.items() if not isinstance(value, Mapping)}


@dataclass(frozen=True)
class TransductionScores:
    """Scores of a model's own outputs, each a fraction.

    Attributes:
        exact_match: share of outputs that equal their target: the coarse accuracy of Grefenstette et al. (2015),
            section 4.3.
        prefix_accuracy: share of a target before the first error, mean over targets: the fine accuracy of Grefenstette
            et al. (2015). NOTE: ends are not counted as symbols.
        symbol_accuracy: share of target symbols at their position in the output (Hao et al. 2018).
        number: the number of transductions.
    """

    exact_match: float
    prefix_accuracy: float
    symbol_accuracy: float
    number: int


def score_outputs(outputs: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> TransductionScores:
    """Compare outputs with targets; target symbols of -100 are ignored.

    Raises:
        InputError: if there are none, or the numbers of outputs and targets differ.
    """
    if len(outputs) != len(targets) or not targets:
        raise InputError(f"each target, at least one, must have an output; got {len(outputs)} and {len(targets)}")
    symbols, ends = [], []
    for output, target in zip(outputs, targets, strict=True):
        places = [place for place, symbol in enumerate(target) if symbol != IGNORED]
        symbols.append(Answers([place < len(output) and output[place] == target[place] for place in places]))
        ends.append(Answers([*symbols[-1].right, len(output) == len(target)]))
    return TransductionScores(
        over(of_strings, ends), over(before_the_first_error, symbols), over(of_symbols, symbols), len(targets)
    )


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode while the context is open."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def evaluate_transduction(
    model: Any, format: TransductionFormat, pairs: Sequence[Transduction], *, batch_size: int = 100
) -> TransductionScores:
    """Score a model's own greedy outputs.

    Args:
        model: a model of the format's kind; it runs in evaluation mode.
        format: the format of the model's inputs and labels.
        pairs: any number of transductions.
        batch_size: transductions at a time.

    Raises:
        InputError: for no pairs, or one that the format cannot represent.
    """
    import torch

    pairs = [Transduction(*pair) for pair in pairs]
    for pair in pairs:
        format.row(pair)  # finds an invalid pair before the model runs
    outputs = []
    with torch.no_grad(), evaluation_mode(model):
        for start in range(0, len(pairs), batch_size):
            outputs += format.outputs(model, pairs[start : start + batch_size])
    return score_outputs(outputs, [list(pair.target) for pair in pairs])
