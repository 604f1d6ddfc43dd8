"""Perplexity, per token and per word, and bits per byte; and the difference of two models on the same text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stack_lm.core.errors import InputError
from stack_lm.core.messages import shortened
from stack_lm.core.trace import Trace

from .seeds import MeanDifference, quasi_f


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of a text. "Token" means a token of the model; "word" means a word of the text.

    Attributes:
        perplexity: exp of the mean loss per token.
        n_tokens: number of predicted tokens. The first token of a sentence is predicted only after a beginning token;
            the end of a sentence counts if the tokenizer marks it.
        word_perplexity: exp of the mean loss per word, comparable between tokenizers. It includes the loss of the ends
            of sentences, which are not counted as words.
        n_words: number of predicted words.
        bits_per_byte: mean loss per byte of the predicted text, comparable between tokenizers if no word is unknown: an
            unknown word counts with all its bytes, but only the probability of being unknown.
        n_bytes: size of that text in UTF-8: the predicted words, the spaces before them, and a line end for each
            predicted end of a sentence.
        inner_perplexity: exp of the mean loss per token of the words that have a word before them, without the ends
            of sentences. It compares models with and without beginning and end tokens.
        n_inner_tokens: number of those tokens.
        n_sentences: number of sentences in the text.
        n_unknown: words outside the vocabulary, among all words.
        n_all_words: all words.
        intervals: of `perplexity`, `word_perplexity`, `bits_per_byte` and `inner_perplexity`, at 95%, for other
            sentences (a ratio of means, by the normal distribution); NaN for one sentence.
    """

    perplexity: float
    n_tokens: int
    word_perplexity: float
    n_words: int
    bits_per_byte: float
    n_bytes: int
    inner_perplexity: float
    n_inner_tokens: int
    n_sentences: int
    n_unknown: int
    n_all_words: int
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SentenceLosses:
    """The losses of a text, sentence by sentence. `Perplexity` explains the units.

    Attributes:
        nats: the loss of each sentence [sentences], its end included where it is predicted.
        inner_nats: the loss of its words that have a word before them [sentences].
        n_tokens, n_words, n_inner_tokens, n_bytes: what was predicted [sentences].
        n_unknown: words outside the vocabulary, in all sentences.
        n_all_words: all words.
    """

    nats: np.ndarray
    inner_nats: np.ndarray
    n_tokens: np.ndarray
    n_words: np.ndarray
    n_inner_tokens: np.ndarray
    n_bytes: np.ndarray
    n_unknown: int
    n_all_words: int

    def perplexity(self) -> Perplexity:
        """Compute the perplexity of the text, with equal weight for all tokens."""
        ratios = {
            "perplexity": (self.nats, self.n_tokens),
            "word_perplexity": (self.nats, self.n_words),
            "bits_per_byte": (self.nats / math.log(2), self.n_bytes),
            "inner_perplexity": (self.inner_nats, self.n_inner_tokens),
        }
        values, intervals = {}, {}
        for name, (losses, sizes) in ratios.items():
            numbers = _ratio(losses, sizes)
            values[name], *bounds = numbers if name == "bits_per_byte" else map(_exp, numbers)
            intervals[name] = (bounds[0], bounds[1])
        return Perplexity(
            **values,
            n_tokens=int(self.n_tokens.sum()),
            n_words=int(self.n_words.sum()),
            n_bytes=int(self.n_bytes.sum()),
            n_inner_tokens=int(self.n_inner_tokens.sum()),
            n_sentences=len(self.nats),
            n_unknown=self.n_unknown,
            n_all_words=self.n_all_words,
            intervals=intervals,
        )


def _ratio(losses: np.ndarray, sizes: np.ndarray) -> tuple[float, float, float]:
    """The ratio of two means over sentences, and its interval at 95%."""
    n, total = len(losses), float(sizes.sum())
    mean = float(losses.sum()) / total if total else math.nan
    if n == 1:
        return mean, math.nan, math.nan
    margin = 1.959964 * math.sqrt(n / (n - 1) * float(((losses - mean * sizes) ** 2).sum())) / (total or math.nan)
    return mean, mean - margin, mean + margin


def evaluate_perplexity(traces: Iterable[Trace]) -> Perplexity:
    """Perplexity of the traced sentences, with equal weight for all tokens. Each trace is read once.

    Raises:
        InputError: as `sentence_losses`.
    """
    return sentence_losses(traces).perplexity()


def sentence_losses(traces: Iterable[Trace]) -> SentenceLosses:
    """The losses of the traced sentences. Each trace is read once.

    Raises:
        InputError: if there are no traces, no word was predicted, every word is unknown, or a log-probability is NaN or
            +inf.
    """
    rows: list[tuple[float, ...]] = []
    n_unknown = n_all = 0
    first: tuple[str, ...] = ()
    for trace in traces:
        first = first or trace.words
        scored = trace.n_tokens > 0
        if not np.isfinite(trace.logprobs[scored]).all():
            raise InputError(
                f"the model gives no finite probability to {' '.join(trace.words)!r}: its weights are broken"
            )
        inner = trace.logprobs[1:][scored[1:]].sum()
        # The end of a sentence is a token, and a byte.
        end, n_ends = (0.0, 0) if math.isnan(trace.end_logprob) else (trace.end_logprob, 1)
        nats = trace.logprobs[scored].sum() + end
        counts = trace.n_tokens.sum() + n_ends, scored.sum(), trace.n_tokens[1:].sum()
        rows.append((-nats, -inner, *counts, _bytes(trace.words, scored) + n_ends))
        n_unknown += int(trace.unknown.sum())
        n_all += len(trace.words)
    if not rows:
        raise InputError("there are no sentences to score")
    columns = np.array(rows, dtype=float).T
    n_tokens, n_words, n_inner, n_bytes = columns[2:].astype(np.int64)
    if not n_words.sum():
        raise InputError("no word was predicted: every sentence has one word only, and the model needs one before it")
    if n_unknown == n_all:
        words = shortened(" ".join(first), 80)
        raise InputError(f"every word of the text is unknown to the model; the first sentence is {words!r}")
    return SentenceLosses(columns[0], columns[1], n_tokens, n_words, n_inner, n_bytes, n_unknown, n_all)


@dataclass(frozen=True)
class PerplexityComparison(MeanDifference):
    """The perplexities of two models, or of several runs of each, on the same sentences.

    The difference is in percent of the second model's perplexity. With several runs it is that of geometric means.

    Attributes:
        n: number of predicted tokens, words or inner tokens.
        n_sentences: number of sentences that contain them.
    """

    n: int
    n_sentences: int


def compare_perplexity(
    first: Sequence[SentenceLosses], second: Sequence[SentenceLosses]
) -> dict[str, PerplexityComparison]:
    """Compare two models' perplexities per "token", "word" and "inner_token".

    A unit is left out if the runs predict different numbers of it in any sentence, or if fewer than two sentences have
    it: models with different tokenizers
    compare by words, those with and without a beginning token by inner tokens. The difference of the losses per unit is
    tested over sentences (the paired t-test of a ratio of means) if each model has one run, and over runs and sentences
    (`compare_seeds`) if one has several.

    Args:
        first: losses of the first model's runs, on the same sentences.
        second: losses of the second model's runs.

    Raises:
        InputError: if the runs have different numbers of sentences or of unknown words, fewer than two sentences, or no
            unit in common.
    """
    runs = [*first, *second]
    sizes = {len(run.nats) for run in runs}
    if len(sizes) > 1:
        raise InputError(
            f"models are compared on the same sentences; these have {' and '.join(map(str, sorted(sizes)))}"
        )
    if sizes == {1}:
        raise InputError("a comparison needs two sentences or more")
    if len({run.n_unknown for run in runs}) > 1:
        unknown = [run.n_unknown / run.n_all_words for run in runs]
        raise InputError(
            f"{min(unknown):.1%} to {max(unknown):.1%} of the words are unknown to these models, so their perplexities "
            "are not comparable; a test needs models with the same vocabulary, or without unknown words"
        )
    comparisons = {}
    for unit, losses, counts in (
        ("token", "nats", "n_tokens"),
        ("word", "nats", "n_words"),
        ("inner_token", "inner_nats", "n_inner_tokens"),
    ):
        weights = getattr(runs[0], counts)
        among = weights > 0  # a sentence without the unit says nothing about its loss
        if among.sum() > 1 and all(np.array_equal(getattr(run, counts), weights) for run in runs[1:]):
            sides = [[getattr(run, losses)[among] for run in side] for side in (first, second)]
            comparisons[unit] = _compare(sides, weights[among])
    if not comparisons:
        raise InputError(
            "the models predict different words in these sentences, so their perplexities are not comparable; text "
            "whose punctuation is split off has the same words for all models"
        )
    return comparisons


def _compare(sides: Sequence[Sequence[np.ndarray]], weights: np.ndarray) -> PerplexityComparison:
    """Compare the losses of two models' runs [sentences] per unit; each sentence has `weights` units, at least one."""
    total = weights.sum()
    by_run = [np.array([losses.sum() / total for losses in side]) for side in sides]
    differences = np.mean(sides[0], axis=0) - np.mean(sides[1], axis=0)
    mean = differences.sum() / total
    # A ratio of means varies as its residuals do.
    by_sentence = mean + (differences - mean * weights) * len(weights) / total
    test = quasi_f(by_run, by_sentence)
    with np.errstate(over="ignore"):
        difference, low, high = (100 * np.expm1([test.difference, test.low, test.high])).tolist()
    return PerplexityComparison(difference, low, high, test.p_value, test.degrees, int(total), len(weights))


def _bytes(words: Sequence[str], scored: np.ndarray) -> int:
    """The number of bytes of the scored words in UTF-8, with a space before each but the sentence's first."""
    return sum(len(word.encode()) + (i > 0) for i, word in enumerate(words) if scored[i])


def _exp(nats: float) -> float:
    return math.inf if nats >= 700 else math.exp(nats)
