"""Minimal pairs: a model's preference for the acceptable sentence over the unacceptable one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stack_lm.core.trace import SentenceModel

from .choices import ChoiceResult, OutOfVocabulary, begun, score_in_blocks


@dataclass(frozen=True)
class MinimalPair:
    """An acceptable and an unacceptable sentence, or two ends of sentences.

    Attributes:
        good, bad: the words compared.
        prefix_good, prefix_bad: the given words before them. Without these, whole sentences are compared.
        properties: properties to group by, such as {"construction": "simple_agrmt", "distance": 5}.
    """

    good: tuple[str, ...]
    bad: tuple[str, ...]
    prefix_good: tuple[str, ...] = ()
    prefix_bad: tuple[str, ...] = ()
    properties: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def differing_words(self) -> list[tuple[str, bool]]:
        """The words that are only, or more often, on one side, and whether each begins its side.

        Empty if the sides differ only in word order.
        """
        good, bad = self.prefix_good + self.good, self.prefix_bad + self.bad
        return [
            (word, side[0] == word)
            for side, other in ((good, bad), (bad, good))
            for word in Counter(side) - Counter(other)
        ]

    @property
    def shared_words(self) -> list[tuple[str, bool]]:
        """The words of both sides, and whether each begins the good side."""
        good = self.prefix_good + self.good
        bad = {*self.prefix_bad, *self.bad}
        return [word for word in begun(good) if word[0] in bad]

    @property
    def begins_differently(self) -> bool:
        """True if the sides differ in their first word."""
        return (self.prefix_good + self.good)[:1] != (self.prefix_bad + self.bad)[:1]


def evaluate_minimal_pairs(
    model: SentenceModel,
    pairs: Sequence[MinimalPair],
    *,
    oov: OutOfVocabulary = "skip",
    groups: Mapping[str, Sequence[str | int | None]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ChoiceResult:
    """Score pairs: correct means that the good side's log-probability is strictly greater.

    A sentence's log-probability is the sum over its tokens, with the end if the tokenizer marks it. If the tokenizer
    does not mark beginnings, the first token is given; sides that begin differently are then compared by the rest.

    Args:
        model: a `SentenceModel`.
        pairs: see `read_minimal_pairs`.
        oov: treatment of pairs that differ in a word outside the model's vocabulary: "skip" leaves them out, "wrong"
            counts them as incorrect.
        groups: more properties to group by, in addition to the pairs' own.
        progress: called with the number of pairs left out, if there are any, and with that of each block once it is
            scored.

    Raises:
        InputError: if no pair is left to score.
    """

    def logprobs_of(block: list[int]) -> np.ndarray:
        chosen = [pairs[i] for i in block]
        ends = np.array([bool(pair.prefix_good or pair.prefix_bad) for pair in chosen])
        logprobs = np.empty((len(block), 2))
        if not ends.all():
            whole = [pair for pair, is_end in zip(chosen, ends, strict=True) if not is_end]
            logprobs[~ends] = model.sentence_logprobs([(pair.good, pair.bad) for pair in whole])
        if ends.any():
            halves = [pair for pair, is_end in zip(chosen, ends, strict=True) if is_end]
            prefixes = [prefix for pair in halves for prefix in (pair.prefix_good, pair.prefix_bad)]
            words = [[" ".join(side)] for pair in halves for side in (pair.good, pair.bad)]
            logprobs[ends] = np.reshape(model.continuation_logprobs(prefixes, words), (-1, 2))
        return logprobs

    return score_in_blocks(
        model,
        [pair.differing_words for pair in pairs],
        [pair.good == pair.bad and pair.prefix_good == pair.prefix_bad for pair in pairs],
        logprobs_of,
        pair_properties(pairs) | dict(groups or {}),
        oov,
        progress,
    )


def pair_properties(pairs: Sequence[MinimalPair]) -> dict[str, Sequence[str | int | None]]:
    """The properties for grouping pairs: for each pair a value, or None."""
    names = dict.fromkeys(name for pair in pairs for name in pair.properties)
    return {name: _as_one_type([pair.properties.get(name) for pair in pairs]) for name in names}


def _as_one_type(values: list[str | int | None]) -> list[str | int | None]:
    """The same, as text if some are text: JSON may have both 1 and "1"."""
    if not any(isinstance(value, str) for value in values):
        return values
    return [None if value is None else str(value) for value in values]
