"""Perplexity from traces."""

import math

import numpy as np
import pytest
from scipy import stats

from stack_lm.core.errors import InputError
from stack_lm.core.trace import Trace
from stack_lm.eval import SentenceLosses, compare_perplexity, compare_seeds, evaluate_perplexity, sentence_losses

NAN = float("nan")


def trace(logprobs, n_tokens=None, unknown=None, end=NAN):
    n = len(logprobs)
    counts = n_tokens if n_tokens is not None else [0 if math.isnan(x) else 1 for x in logprobs]
    flags = np.array(unknown if unknown is not None else [False] * n)
    return Trace(tuple(f"w{i}" for i in range(n)), np.array(logprobs), np.array(counts), flags, end)


def test_all_tokens_weigh_the_same():
    result = evaluate_perplexity([trace([NAN, -1.0]), trace([NAN, -2.0, -3.0, -6.0])])
    assert result.perplexity == pytest.approx(math.exp(3))
    assert (result.n_tokens, result.n_words, result.n_sentences, result.n_all_words) == (4, 4, 2, 6)


def test_words_of_several_tokens_and_ends_of_sentences():
    result = evaluate_perplexity([trace([-1.0, -4.0], n_tokens=[1, 3], unknown=[False, True], end=-1.0)])
    assert result.n_tokens == 5
    assert result.perplexity == pytest.approx(math.exp(6 / 5))
    assert (result.n_words, result.word_perplexity) == (2, pytest.approx(math.exp(3)))
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
        ([], "there are no sentences to score"),
        ([trace([NAN])], "no word was predicted"),
        ([trace([NAN, -1.0], unknown=[True, True])], "every word of the text is unknown to the model.*'w0 w1'"),
        ([trace([NAN, NAN], n_tokens=[0, 1])], "the model gives no finite probability to 'w0 w1'"),
    ],
)
def test_bad_traces(traces, message):
    with pytest.raises(InputError, match=message):
        evaluate_perplexity(traces)


def runs(rng, n_runs, sentences, shift=0.0, tokens=(2, 12)):
    """Losses of several runs on the same sentences, whose difficulty and number of words vary."""
    lengths = np.random.default_rng(7).integers(*tokens, sentences)
    difficulty = np.random.default_rng(8).gamma(4, 1, sentences)
    return [
        sentence_losses(
            trace(-(difficulty[i] + shift + level + rng.normal(0, 1, n)), end=-1.0) for i, n in enumerate(lengths)
        )
        for level in rng.normal(0, 0.01, n_runs)
    ]


def test_two_models_of_equally_long_sentences_are_compared_by_the_paired_t_test():
    rng = np.random.default_rng(0)
    (first,), (second,) = (runs(rng, 1, 60, shift, tokens=(5, 6)) for shift in (0.0, 0.1))
    found = compare_perplexity([first], [second])
    assert list(found) == ["token", "word", "inner_token"]
    test = stats.ttest_rel(first.nats / 6, second.nats / 6)
    interval = test.confidence_interval()
    token = found["token"]
    assert token.difference == pytest.approx(100 * (first.perplexity().perplexity / second.perplexity().perplexity - 1))
    assert (token.low, token.high) == pytest.approx((100 * math.expm1(interval.low), 100 * math.expm1(interval.high)))
    assert (token.p_value, token.degrees) == pytest.approx((test.pvalue, 59))
    assert (token.n, found["word"].n, found["inner_token"].n, token.n_sentences) == (360, 300, 240, 60)
    back = compare_perplexity([second], [first])["token"]
    assert 1 + back.difference / 100 == pytest.approx(1 / (1 + token.difference / 100))


def test_long_sentences_weigh_more():
    """The interval is that of a bootstrap over sentences, in which each token counts."""
    rng = np.random.default_rng(1)
    (first,), (second,) = (runs(rng, 1, 400, shift, tokens=(2, 40)) for shift in (0.0, 0.3))
    found = compare_perplexity([first], [second])["token"]
    draws = rng.integers(400, size=(4000, 400))
    ratios = (first.nats - second.nats)[draws].sum(axis=1) / first.n_tokens[draws].sum(axis=1)
    assert (found.low, found.high) == pytest.approx(100 * np.expm1(np.percentile(ratios, [2.5, 97.5])), abs=0.4)
    assert found.low < found.difference < found.high < 0


def test_sentences_without_a_unit_do_not_count():
    """A sentence of one word has no inner token, and says nothing about their losses."""
    lengths = np.random.default_rng(3).integers(2, 9, 40)

    def losses(scale, *more):
        rng = np.random.default_rng(4)
        return [sentence_losses([*(trace(-scale * rng.gamma(4, 1, n), end=-1.0) for n in lengths), *more])]

    alone = compare_perplexity(losses(1.0), losses(1.1))["inner_token"]
    short = [trace([-1.0], end=-1.0)] * 100
    assert compare_perplexity(losses(1.0, *short), losses(1.1, *short))["inner_token"] == alone
    one = [sentence_losses([trace([-1.0, -2.0, -1.5]), trace([-1.0])])]
    assert list(compare_perplexity(one, one)) == ["token", "word"]


def test_several_runs_are_compared_over_runs_and_sentences():
    rng = np.random.default_rng(2)
    first, second = runs(rng, 3, 50, tokens=(5, 6)), runs(rng, 2, 50, 0.05, tokens=(5, 6))
    found = compare_perplexity(first, second)["token"]
    # Losses per token in place of right and wrong, of which `compare_seeds` takes percentages.
    test = compare_seeds(*(np.array([losses.nats for losses in side]) / 600 for side in (first, second)))
    assert (found.p_value, found.degrees) == pytest.approx((test.p_value, test.degrees))
    assert found.difference == pytest.approx(100 * math.expm1(test.difference))
    assert found.degrees < 49


def test_models_are_compared_in_the_units_that_they_share():
    words = [trace([-1.0, -2.0, -1.5]), trace([-1.0, -0.5])]
    first = sentence_losses(words)
    pieces = sentence_losses([trace([-1.0, -3.0, -1.0], n_tokens=[1, 2, 1]), trace([-2.0, -0.5])])
    inner = sentence_losses([trace([NAN, -2.0, -1.0]), trace([NAN, -0.5])])
    assert list(compare_perplexity([first], [pieces])) == ["word"]
    assert list(compare_perplexity([first], [inner])) == ["inner_token"]
    assert compare_perplexity([first], [first])["token"].p_value == 1
    other = sentence_losses([trace([-1.0, -2.0, -1.5], unknown=[False, True, False]), words[1]])
    with pytest.raises(InputError, match=r"0.0% to 20.0% of the words are unknown .* are not comparable"):
        compare_perplexity([first], [other])
    with pytest.raises(InputError, match="predict different words"):
        compare_perplexity([pieces], [inner])
    with pytest.raises(InputError, match="on the same sentences; these have 1 and 2"):
        compare_perplexity([first], [sentence_losses(words[:1])])
    with pytest.raises(InputError, match="two sentences or more"):
        compare_perplexity(*[[sentence_losses(words[:1])]] * 2)


def test_intervals_are_those_of_other_sentences():
    """Against the perplexities of texts drawn again from the sentences."""
    draw = np.random.default_rng(0)
    sizes = draw.integers(3, 20, 400)
    nats = sizes * draw.gamma(4, 1, 400)
    losses = SentenceLosses(nats, nats, sizes, sizes, sizes, sizes * 5, 0, int(sizes.sum()))
    texts = draw.integers(0, 400, (2000, 400))
    expected = np.exp(np.quantile(nats[texts].sum(1) / sizes[texts].sum(1), [0.025, 0.975]))
    found = losses.perplexity()
    np.testing.assert_allclose(found.intervals["perplexity"], expected, rtol=0.02)
    low, high = found.intervals["bits_per_byte"]
    assert low < found.bits_per_byte < high
    assert np.isnan(SentenceLosses(*(np.ones(1),) * 6, 0, 1).perplexity().intervals["perplexity"]).all()
