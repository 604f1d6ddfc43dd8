"""`Trace` and `SentenceModel`: the view of a model that parsing, evaluation and plots share. Needs numpy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

MOVES = ("push", "replace", "pop")
"""The moves of a nondeterministic stack at a step."""


@dataclass(frozen=True, eq=False)
class StackRun:
    """The most probable run of a nondeterministic stack over a sentence, with the stack after each word's last token.

    Attributes:
        moves: the move at each word's last token, "push", "replace" or "pop" [n].
        states: numbers from 0 [n].
        symbols: the top symbol, from 0 [n].
        elements: the word that pushed the top, from 0; -1 for the bottom, or a token before the words [n].
        depths: elements on the stack, without the bottom [n].
        stacks: the symbols on the stack, from the bottom, which is included, to the top [n].
        weight: the logarithm of the run's weight, up to the last word.
    """

    moves: tuple[str, ...]
    states: np.ndarray
    symbols: np.ndarray
    elements: np.ndarray
    depths: np.ndarray
    stacks: Sequence[tuple[int, ...]]
    weight: float


@dataclass(frozen=True, eq=False)
class Trace:
    """A model's computation over one sentence, word by word.

    Attributes:
        words: the sentence, n words.
        logprobs: log-probability of each word given those before it [n], in nats; NaN if the model gives none (the
            first word, unless the tokenizer adds a token that begins sentences).
        n_tokens: number of scored tokens of each word [n]; 0 where logprobs is NaN.
        unknown: whether a word is outside the model's vocabulary [n].
        end_logprob: log-probability that the sentence ends there, in nats; NaN if the tokenizer has no end token.
        actions: for each memory layer of the model, in order, all reported values after each word, by name [n, ...].
        layer: the number of the layer of `signals`, `distributions` and `operations`; None for no layer.
        find_run: finds the most probable run of that layer, if it is a nondeterministic stack; see `run`.
        entropies: the entropy of the next token before each word and after the last [n + 1], in nats, NaN where nothing
            comes before; None if it was not requested.
        word_ends: where tokens begin with spaces, the log-probability of such a token, or of the end, at the same
            places [n + 1], in nats; 0 before a word that does not begin with a space. Otherwise None.
    """

    words: tuple[str, ...]
    logprobs: np.ndarray
    n_tokens: np.ndarray
    unknown: np.ndarray
    end_logprob: float = float("nan")
    actions: tuple[Mapping[str, np.ndarray], ...] = ()
    layer: int | None = 0
    find_run: Callable[[], StackRun] | None = None
    entropies: np.ndarray | None = None
    word_ends: np.ndarray | None = None

    @cached_property
    def run(self) -> StackRun | None:
        """The most probable run of a nondeterministic stack, found on first use; None for other memories.

        Raises:
            InputError: if no run is possible.
        """
        return None if self.find_run is None else self.find_run()

    @property
    def signals(self) -> dict[str, np.ndarray]:
        """One number for each word, by name, each [n]: push_strength, pop_strength, read_strength and total_strength
        for a stack, in elements; run_depth for a nondeterministic one, the elements on the stack of its best run."""
        run_signals = {} if self.run is None else {"run_depth": self.run.depths.astype(float)}
        return self._with_dimensions(1) | run_signals

    @property
    def distributions(self) -> dict[str, np.ndarray]:
        """Distributions of expected-value strengths over 0, 1, ... K elements, by name, each [n, K + 1]."""
        return self._with_dimensions(2)

    @property
    def operations(self) -> dict[str, np.ndarray]:
        """The weights of the operations on S memories in superposition, by name, each [n, S, O]."""
        return self._with_dimensions(3)

    def _with_dimensions(self, number: int) -> dict[str, np.ndarray]:
        if self.layer is None or not self.actions:
            return {}
        return {name: values for name, values in self.actions[self.layer].items() if values.ndim == number}


class ContinuationModel(Protocol):
    """The methods of a model that choices need."""

    def continuation_logprobs(
        self, prefixes: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Log-probabilities of the candidate continuations of each prefix, [number of candidates], in nats.

        A prefix is a list of words, a candidate one or more words. NaN: the model gives none, as after an empty prefix.
        """

    def knows(self, text: str, *, begins: bool = False) -> bool:
        """True if all words of a text, inside a sentence or at its beginning, are in the vocabulary."""


class SentenceModel(ContinuationModel, Protocol):
    """The interface of a language model for evaluation."""

    def trace(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]] | None = None) -> list[Trace]:
        """A trace of each sentence, given as words and, optionally, their part-of-speech tags."""

    def sentence_logprobs(self, groups: Sequence[Sequence[Sequence[str]]]) -> list[np.ndarray]:
        """Log-probabilities of the sentences (words) of each group, [number of sentences], in nats.

        The first token counts only if `predicts_first_word`.
        """

    @property
    def predicts_first_word(self) -> bool:
        """True if the model gives a probability to the first word of a sentence."""
