"""Languages with an exact lower bound on the cross-entropy (DuSell and Chiang 2020, section 5; 2022, section 4).

A length is drawn uniformly from the possible ones in a window, then a string of that length: p(w) = p(length) p(w |
length), which for a probabilistic grammar is p(length) p_G(w) / p_G(length). No model has a lower expected
cross-entropy than this distribution itself.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from math import inf, log
from typing import Any, ClassVar

from ..core.errors import InputError
from .base import Example, Language, Split
from .grammars import ByLength


class BoundedLanguage(Language):
    """Strings by length, with known probabilities.

    A subclass defines the possible lengths, draws strings of a length, recognises its strings, and gives log p(w |
    length).

    NOTE: the released networks predict the first symbol from their initial state and never read a `<s>`; each of their
        batches has a single length.

    Args:
        symbols: the symbols of the strings.
        splits: changes of the plan (see `Task`), by keyword.
    """

    further_scores = ("difference",)
    default_plan: ClassVar = {
        "train": Split(10_000, 40, 80),
        "validation": Split(1_000, 40, 80),
        "test": Split(100, 40, 100, balanced=True),
    }

    @abstractmethod
    def possible(self, length: int) -> bool:
        """Return True if the language has strings of the length."""

    @abstractmethod
    def string(self, rng: random.Random, length: int) -> Sequence[str]:
        """Draw the symbols of a string of a possible length."""

    @abstractmethod
    def contains(self, string: Sequence[str]) -> bool:
        """Return True if the symbols are a string of the language."""

    @abstractmethod
    def log_given_length(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """Log p(w | length) of each string, in nats.

        It is -inf for a string that is not in the language, or less likely than float64 can represent.
        """

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The possible lengths, with equal weights."""
        return {length: 1.0 for length in range(shortest, longest + 1) if self.possible(length)}

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a string of a length."""
        return super().example(self.read(" ".join(self.string(rng, length))))

    def example(self, string: Sequence[int]) -> Example:
        """A string of the language."""
        if not self.contains(self.write(string).split()):
            raise InputError(f"not a string of {self}: {self.write(string)}")
        return super().example(string)

    def log_probabilities(self, examples: Sequence[Example], split: str) -> list[float]:
        """The logarithm of p(w) of each string, in nats, with the lengths of a split.

        Args:
            examples: their strings must lie in the split's window.
            split: the name of a split of the plan.

        Raises:
            InputError: for a string of another length, or one that is not in the language or less likely than float64
                can represent.
        """
        plan = self.planned(split)
        possible = self.length_weights(plan.shortest, plan.longest)
        strings = [[self.vocabulary[symbol] for symbol in example.source[1:]] for example in examples]
        for string in strings:
            if len(string) not in possible:
                raise InputError(f"{split} of {self} has no strings of length {len(string)}: {' '.join(string)}")
        logs = self.log_given_length(strings)
        for string, value in zip(strings, logs, strict=True):
            if value == -inf:
                raise InputError(f"not a string of {self}, or one with too small a probability: {' '.join(string)}")
        return [value - log(len(possible)) for value in logs]

    def lower_bound(self, examples: Sequence[Example], split: str) -> float:
        """The cross-entropy of the true distribution on given strings, in nats per symbol, counting their ends.

        Args:
            examples: at least one; their strings must lie in the split's window.
            split: the name of a split of the plan, for its lengths.

        Raises:
            InputError: as `log_probabilities` does, and for no examples.
        """
        if not examples:
            raise InputError("a lower bound needs at least one string")
        return -sum(self.log_probabilities(examples, split)) / sum(len(example.target) for example in examples)

    def add_scores(self, scores: dict[str, Any], examples: Sequence[Example], split: str) -> dict[str, Any]:
        """Add the score `difference`: `nats` minus the lower bound.

        NOTE: for the overall difference, the released code counts all of a test set's lengths as possible, but for its
            figures by length only the strings' own, where p(length) is 1. That is `difference_given_length`. It exceeds
            `difference` of the same length by -log p(length) for each string; the mean of `difference` over symbols is
            the overall difference.
        """
        plan = self.planned(split)
        choice = log(len(self.length_weights(plan.shortest, plan.longest)))
        bounds: dict[str, float] = {}
        for example, value in zip(examples, self.log_probabilities(examples, split), strict=True):
            size = str(len(example.target))
            bounds[size] = bounds.get(size, 0.0) - value
        nats, symbols = scores["by_length"]["nats"], sum(len(example.target) for example in examples)
        above = {size: [of - bounds[size] / (number * int(size)), number] for size, (of, number) in nats.items()}
        given = {size: [of + choice / int(size), number] for size, (of, number) in above.items()}
        by_length = {**scores["by_length"], "difference": above, "difference_given_length": given}
        return scores | {"difference": scores["nats"] - sum(bounds.values()) / symbols, "by_length": by_length}


def log_given_length(lengths: ByLength, strings: Sequence[Sequence[str]]) -> list[float]:
    """Log p(w | length) of strings of a grammar, in nats; -inf for a string that it does not derive."""
    from .inside import log_string_weights

    logs = log_string_weights(lengths, strings)
    return [
        value if value == -inf else value - lengths.log_weight(len(string))
        for string, value in zip(strings, logs, strict=True)
    ]
