"""Perplexity from traces."""

import math

import numpy as np
import pytest

from stack_lm.errors import InputError
from stack_lm.eval import evaluate_perplexity
from stack_lm.trace import Trace

NAN = float("nan")


def trace(logprobs, n_tokens=None, unknown=None, end=NAN):
    n = len(logprobs)
    counts = n_tokens if n_tokens is not None else [0 if math.isnan(x) else 1 for x in logprobs]
    flags = np.array(unknown if unknown is not None else [False] * n)
    return Trace(tuple(f"w{i}" for i in range(n)), np.array(logprobs), np.array(counts), flags, end)


def test_all_tokens_weigh_the_same():
    result = evaluate_perplexity([trace([NAN, -1.0]), trace([NAN, -2.0, -3.0, -6.0])])
    assert result.nats_per_token == pytest.approx(3)
    assert result.perplexity == pytest.approx(math.exp(3))
    assert result.bits_per_token == pytest.approx(3 / math.log(2))
    assert (result.n_tokens, result.n_words, result.n_sentences, result.n_all_words) == (4, 4, 2, 6)


def test_words_of_several_tokens_and_ends_of_sentences():
    result = evaluate_perplexity([trace([-1.0, -4.0], n_tokens=[1, 3], unknown=[False, True], end=-1.0)])
    assert result.n_tokens == 5
    assert result.nats_per_token == pytest.approx(6 / 5)
    assert (result.n_words, result.nats_per_word) == (2, pytest.approx(3))
    assert result.n_unknown == 1


def test_bits_per_byte_are_of_the_predicted_text():
    """Words in UTF-8, the space before each but the first, and the end of the line where it is predicted."""
    bits = math.log(2)
    words = ("w0", "Grüße", "🐶")
    text = Trace(words, np.array([NAN, -bits, -2 * bits]), np.array([0, 1, 2]), np.zeros(3, bool), -3 * bits)
    whole = Trace(words, np.array([-bits, -bits, -bits]), np.array([1, 1, 1]), np.zeros(3, bool))
    result = evaluate_perplexity([text, whole])
    assert result.n_bytes == len(" Grüße 🐶\n".encode()) + len("w0 Grüße 🐶".encode())
    assert result.bits_per_byte == pytest.approx((6 + 3) / result.n_bytes)


def test_a_hopeless_model_has_an_infinite_perplexity():
    assert evaluate_perplexity([trace([NAN, -1e4])]).perplexity == math.inf


@pytest.mark.parametrize(
    ("traces", "message"),
    [
        ([trace([NAN])], "no word was predicted"),
        ([trace([NAN, -1.0], unknown=[True, True])], "every word of the text is unknown to the model.*'w0 w1'"),
        ([trace([NAN, NAN], n_tokens=[0, 1])], "the model gives no finite probability to 'w0 w1'"),
    ],
)
def test_bad_traces(traces, message):
    with pytest.raises(InputError, match=message):
        evaluate_perplexity(traces)
