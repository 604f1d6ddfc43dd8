"""Perplexity, per token and per word, and bits per byte."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stack_lm.errors import InputError
from stack_lm.messages import shortened
from stack_lm.trace import Trace


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of a text. "Token" means a token of the model; "word" means a word of the text.

    Attributes:
        perplexity: exp of the mean loss per token.
        nats_per_token, bits_per_token: mean loss per token.
        n_tokens: number of predicted tokens. The first token of a sentence is predicted only after a beginning token;
            the end of a sentence counts if the tokenizer marks it.
        word_perplexity: exp of the mean loss per word, comparable between tokenizers. It includes the loss of the ends
            of sentences, which are not counted as words.
        nats_per_word, bits_per_word: mean loss per word.
        n_words: number of predicted words.
        bits_per_byte: mean loss per byte of the predicted text, comparable between tokenizers if no word is unknown: an
            unknown word counts with all its bytes, but only the probability of being unknown.
        n_bytes: of that text in UTF-8: the predicted words, the spaces before them, and a line end for each predicted
            end of a sentence.
        inner_perplexity: exp of the mean loss per token of the words that have a word before them, without the ends
            of sentences. It compares models with and without beginning and end tokens.
        nats_per_inner_token: that loss.
        n_inner_tokens: those tokens.
        n_sentences: of the text.
        n_unknown: words outside the vocabulary, among all words.
        n_all_words: all words.
    """

    perplexity: float
    nats_per_token: float
    bits_per_token: float
    n_tokens: int
    word_perplexity: float
    nats_per_word: float
    bits_per_word: float
    n_words: int
    bits_per_byte: float
    n_bytes: int
    inner_perplexity: float
    nats_per_inner_token: float
    n_inner_tokens: int
    n_sentences: int
    n_unknown: int
    n_all_words: int


def evaluate_perplexity(traces: Iterable[Trace]) -> Perplexity:
    """Perplexity of the traced sentences, with equal weight for all tokens. Each trace is read once.

    Raises:
        InputError: if no token was predicted, every word is unknown, or a log-probability is NaN or +inf.
    """
    n_sentences = n_tokens = n_words = n_inner = n_unknown = n_all = n_bytes = 0
    nats = inner_nats = 0.0
    first: tuple[str, ...] = ()
    for trace in traces:
        n_sentences += 1
        first = first or trace.words
        scored = trace.n_tokens > 0
        if not np.isfinite(trace.logprobs[scored]).all():
            raise InputError(
                f"the model gives no finite probability to {' '.join(trace.words)!r}: its weights are broken"
            )
        nats -= float(trace.logprobs[scored].sum())
        n_tokens += int(trace.n_tokens.sum())
        n_words += int(scored.sum())
        n_bytes += _bytes(trace.words, scored)
        inner_nats -= float(trace.logprobs[1:][scored[1:]].sum())
        n_inner += int(trace.n_tokens[1:].sum())
        n_unknown += int(trace.unknown.sum())
        n_all += len(trace.words)
        if not math.isnan(trace.end_logprob):
            nats -= trace.end_logprob
            n_tokens += 1
            n_bytes += 1
    if not n_words:
        raise InputError("no word was predicted: every sentence has one word only, and the model needs one before it")
    if n_unknown == n_all:
        words = shortened(" ".join(first), 80)
        raise InputError(f"every word of the text is unknown to the model; the first sentence is {words!r}")
    per_token, per_word = nats / n_tokens, nats / n_words
    return Perplexity(
        perplexity=_exp(per_token),
        nats_per_token=per_token,
        bits_per_token=per_token / math.log(2),
        n_tokens=n_tokens,
        word_perplexity=_exp(per_word),
        nats_per_word=per_word,
        bits_per_word=per_word / math.log(2),
        n_words=n_words,
        bits_per_byte=nats / math.log(2) / n_bytes,
        n_bytes=n_bytes,
        inner_perplexity=_exp(inner_nats / n_inner) if n_inner else math.nan,
        nats_per_inner_token=inner_nats / n_inner if n_inner else math.nan,
        n_inner_tokens=n_inner,
        n_sentences=n_sentences,
        n_unknown=n_unknown,
        n_all_words=n_all,
    )


def _bytes(words: Sequence[str], scored: np.ndarray) -> int:
    """The number of bytes of the scored words in UTF-8, with a space before each but the sentence's first."""
    return sum(len(word.encode()) + (i > 0) for i, word in enumerate(words) if scored[i])


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf
