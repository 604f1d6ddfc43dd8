"""Choices between a right and a wrong alternative: accuracies by group, with ties, baselines and intervals.

Agreement and minimal pairs are both such choices; they differ in their files and in their queries to the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from stack_lm.core.errors import InputError
from stack_lm.core.messages import check_name
from stack_lm.core.trace import ContinuationModel

from .significance import binomial_interval, stratified_interval

BLOCK = 4000  # items scored at a time: enough to form batches of similar length
OutOfVocabulary = Literal["skip", "wrong"]
Outcome = Literal["correct", "wrong", "tie", "oov", "identical", "unpredicted"]


@dataclass(frozen=True)
class Accuracy:
    """The share of correct choices, in percent.

    Attributes:
        accuracy: correct items among those scored.
        low, high: its exact binomial interval of 95%.
        n: items scored.
        majority: accuracy of always choosing the number that is more frequent among these items; None if items have no
            number.
    """

    accuracy: float
    low: float
    high: float
    n: int
    majority: float | None

    def record(self) -> dict[str, Any]:
        """The accuracy for JSON; without a majority if there is none."""
        values = {"accuracy": self.accuracy, "interval": [self.low, self.high], "n": self.n}
        return values if self.majority is None else values | {"majority": self.majority}


def mean_of(accuracies: Sequence[Accuracy]) -> Accuracy:
    """The mean of accuracies, each with the same weight, with the interval of `stratified_interval`."""
    mean = sum(each.accuracy for each in accuracies) / len(accuracies)
    n_correct, n = [round(each.accuracy * each.n / 100) for each in accuracies], [each.n for each in accuracies]
    return Accuracy(mean, *stratified_interval(n_correct, n), sum(n), None)


@dataclass(frozen=True, eq=False)
class ChoiceResult:
    """A model's choices: accuracies, and the counts behind them.

    Attributes:
        overall: over all scored items.
        groups: accuracies by a property of the items and its value, such as `groups["attractors"][2]`.
        n_items: all items, scored or not.
        n_identical: items whose alternatives are the same; never scored.
        n_unpredicted: items without a probability from the model, such as a verb that begins a sentence; never scored.
        n_oov: items whose alternatives differ in a word outside the vocabulary.
        oov: treatment of those: "skip" leaves them out, "wrong" counts them as incorrect.
        n_ties: items whose alternatives were equally probable; a tie is incorrect.
        properties: for grouping, a value for each item, in order, or None.
        outcomes: the outcomes of each item, in order; "oov" for items out of vocabulary, whatever their treatment.
        logprobs: log-probabilities of each item's right and wrong alternative [items, 2], in nats; NaN if unknown.
    """

    overall: Accuracy
    groups: dict[str, dict[str | int, Accuracy]]
    n_items: int
    n_identical: int
    n_unpredicted: int
    n_oov: int
    oov: OutOfVocabulary
    n_ties: int
    properties: dict[str, Sequence[str | int | None]]
    outcomes: tuple[Outcome, ...]
    logprobs: np.ndarray

    @property
    def accuracy(self) -> float:
        """Accuracy over all scored items, in percent."""
        return self.overall.accuracy

    @property
    def n(self) -> int:
        """The number of scored items."""
        return self.overall.n

    @property
    def n_skipped(self) -> int:
        """The number of items left out."""
        return self.n_items - self.n

    def mean_over(self, name: str) -> Accuracy | None:
        """The mean of the accuracies by a property, each value with the same weight, as papers report suites of sets.

        Its interval is `stratified_interval`'s, its n that of all these items. None if the property has fewer than two
        values.
        """
        groups = self.groups.get(name, {}).values()
        if len(groups) < 2:
            return None
        return mean_of(list(groups))

    @property
    def correct(self) -> np.ndarray:
        """The code of each item, in order: 1 correct, 0 wrong, -1 left out."""
        return correct_codes(self.outcomes, self.oov)

    def record(self) -> dict[str, Any]:
        """The result without its items, for JSON."""

        counts = ("n_items", "n_skipped", "n_identical", "n_unpredicted", "n_oov", "oov", "n_ties")
        by = {name: {str(key): value for key, value in group.items()} for name, group in self.groups.items()}
        return (
            self.overall.record()
            | {name: getattr(self, name) for name in counts}
            # Only accuracies, as tables show them; "by" has the rest.
            | {f"by_{name}": {key: value.accuracy for key, value in group.items()} for name, group in by.items()}
            | {"by": {name: {key: value.record() for key, value in group.items()} for name, group in by.items()}}
            | {"mean_over": {name: mean.record() for name in by if (mean := self.mean_over(name)) is not None}}
        )


def begun(words: Sequence[str]) -> list[tuple[str, bool]]:
    """Words of a sentence, each with True if it begins the sentence."""
    return [(word, i == 0) for i, word in enumerate(words)]


def with_unknown_words(model: ContinuationModel, words: Sequence[Sequence[tuple[str, bool]]]) -> np.ndarray:
    """Find the items with a word that a model does not know: [N], bool.

    Args:
        model: asked once for each different word.
        words: the words of each item, and whether each begins a sentence.
    """
    known = {word: model.knows(word[0], begins=word[1]) for word in set(chain.from_iterable(words))}
    return np.array([not all(known[word] for word in item) for item in words], dtype=bool)


def score_in_blocks(
    model: ContinuationModel,
    words: Sequence[Sequence[tuple[str, bool]]],
    identical: Sequence[bool],
    logprobs_of: Callable[[list[int]], Any],
    groups: Mapping[str, Sequence[str | int | None]],
    oov: OutOfVocabulary,
    progress: Callable[[int], None] | None,
) -> ChoiceResult:
    """Ask a model for the log-probabilities of the items that can be scored, and count its choices.

    Args:
        model: tells which words it knows.
        words: the words in which the alternatives of each item differ; see `with_unknown_words`.
        identical: whether an item's alternatives are the same.
        logprobs_of: the log-probabilities of some items [n, 2], given their numbers.
        groups: see `score_choices`.
        oov: see `score_choices`.
        progress: called with the number of items left out, if there are any, and with that of each block once it is
            scored.

    Raises:
        InputError: as `score_choices`.
    """
    unknown = with_unknown_words(model, words)
    logprobs = np.full((len(words), 2), np.nan)
    scored = np.flatnonzero(~np.array(identical, dtype=bool) & ~unknown).tolist()
    if progress is not None and len(scored) < len(words):
        progress(len(words) - len(scored))
    for start in range(0, len(scored), BLOCK):
        block = scored[start : start + BLOCK]
        logprobs[block] = logprobs_of(block)
        if progress is not None:
            progress(len(block))
    return score_choices(logprobs, groups, identical=identical, unknown=unknown, oov=oov)


def correct_codes(outcomes: Sequence[str], oov: OutOfVocabulary) -> np.ndarray:
    """Return a code for each outcome: 1 correct, 0 wrong, -1 left out.

    Raises:
        InputError: for an unknown outcome.
    """
    codes = {"correct": 1, "wrong": 0, "tie": 0, "oov": 0 if oov == "wrong" else -1, "identical": -1, "unpredicted": -1}
    for outcome in outcomes:
        check_name("an outcome", outcome, codes)
    return np.array([codes[outcome] for outcome in outcomes], dtype=np.int64)


def score_choices(
    logprobs: np.ndarray,
    groups: Mapping[str, Sequence[str | int | None]],
    *,
    identical: Sequence[bool] | np.ndarray | None = None,
    unknown: Sequence[bool] | np.ndarray | None = None,
    oov: OutOfVocabulary = "skip",
) -> ChoiceResult:
    """Count choices: correct means that the right alternative is strictly more probable than the wrong one.

    Args:
        logprobs: log-probabilities of each item's right and wrong alternative [items, 2], in nats; NaN where the model
            gives none.
        groups: properties of the items by name, each with a value for every item, or None for items without one. The
            property "number" gives the majority baselines.
        identical: whether an item's alternatives are the same; those are left out.
        unknown: whether an item's alternatives differ in a word outside the vocabulary.
        oov: treatment of such items: "skip" leaves them out, "wrong" counts them as incorrect.

    Raises:
        InputError: if no item is left to score, or a property does not have one value for each item.
    """
    check_name("oov", oov, get_args(OutOfVocabulary))
    logprobs = np.asarray(logprobs, dtype=np.float64).reshape(-1, 2)
    n = len(logprobs)
    for name, values in groups.items():
        if len(values) != n:
            raise InputError(f"there are {n} items, but {len(values)} values of {name}")
    same = np.zeros(n, dtype=bool) if identical is None else np.asarray(identical, dtype=bool)
    rare = (np.zeros(n, dtype=bool) if unknown is None else np.asarray(unknown, dtype=bool)) & ~same
    right, wrong = logprobs.T
    predicted = ~np.isnan(logprobs).any(axis=1)
    conditions = [same, rare, ~predicted, right > wrong, right == wrong]
    outcomes = np.select(conditions, ["identical", "oov", "unpredicted", "correct", "tie"], default="wrong")
    counted = ~same & (predicted | rare) & ~(rare & (oov == "skip"))
    if not counted.any():
        raise InputError(
            f"none of the {n} items can be scored: {int(rare.sum())} differ in a word outside the model's vocabulary, "
            f"{int(same.sum())} do not differ, {int((~predicted & ~same & ~rare).sum())} get no probability"
        )
    correct = outcomes == "correct"
    scored = np.flatnonzero(counted).tolist()
    return ChoiceResult(
        overall=_accuracy(correct, scored, groups.get("number")),
        groups=_accuracies_by_value(correct, scored, groups),
        n_items=n,
        n_identical=int(same.sum()),
        n_unpredicted=int((outcomes == "unpredicted").sum()),
        n_oov=int(rare.sum()),
        oov=oov,
        n_ties=int((outcomes == "tie").sum()),
        properties={name: values for name, values in groups.items() if any(value is not None for value in values)},
        outcomes=tuple(outcomes.tolist()),
        logprobs=logprobs,
    )


def _accuracy(correct: np.ndarray, among: list[int], numbers: Sequence[str | int | None] | None) -> Accuracy:
    """The accuracy on some items [n], with the baseline of the more frequent number if all items have one."""
    n, n_correct = len(among), int(correct[among].sum())
    counts = Counter(numbers[i] for i in among) if numbers is not None else Counter()
    majority = None if numbers is None or None in counts else 100 * max(counts.values()) / n
    return Accuracy(100 * n_correct / n, *binomial_interval(n_correct, n), n, majority)


def _accuracies_by_value(
    correct: np.ndarray, scored: list[int], groups: Mapping[str, Sequence[str | int | None]]
) -> dict[str, dict[str | int, Accuracy]]:
    """The accuracies by property and value, in order."""
    by: dict[str, dict[str | int, Accuracy]] = {}
    for name, values in groups.items():
        places: dict[str | int, list[int]] = {}
        for i in scored:
            value = values[i]
            if value is not None:
                places.setdefault(value, []).append(i)
        if places:
            # Within one number, the baseline is always right.
            numbers = groups.get("number") if name != "number" else None
            by[name] = {value: _accuracy(correct, places[value], numbers) for value in sorted(places, key=in_order)}
    return by


def in_order(value: str | int) -> tuple[bool, int, str]:
    """The sorting key for the values of a property: numbers first."""
    return (isinstance(value, str), value if isinstance(value, int) else 0, str(value))


def score_pairs(
    predictions: Any, groups: Mapping[str, Sequence[str | int | None]], oov: OutOfVocabulary
) -> dict[str, Any]:
    """Score choices given as pairs of log-probabilities, the input of the metrics for `evaluate`.

    Args:
        predictions: for each item the log-probabilities of the right and the wrong alternative; NaN for unknown words.
        groups: see `score_choices`.
        oov: see `score_choices`.

    Returns:
        A `ChoiceResult.record`, without the counts of identical and unpredicted items, which are unknown here.

    Raises:
        ValueError: if a prediction is not a pair.
        InputError: as `score_choices`.
    """
    logprobs = np.array([list(pair) for pair in predictions], dtype=np.float64)
    if logprobs.ndim != 2 or logprobs.shape[1] != 2:
        raise ValueError("each prediction must be two log-probabilities: of the right and of the wrong alternative")
    unknown = np.asarray(np.isnan(logprobs).any(axis=1))
    record = score_choices(logprobs, groups, unknown=unknown, oov=oov).record()
    return {key: value for key, value in record.items() if key not in ("n_identical", "n_unpredicted")}
