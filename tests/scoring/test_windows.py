"""Sentences in their context: carried states, running texts, windows."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import byte_level_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from scoring_models import gpt2, word_scorer

from stack_lm import ModelScorer, surprisal
from stack_lm.core.errors import InputError
from stack_lm.scoring.windows import windows

TEXTS = ["the dog barks", "cats fear old bridges", "the cats bark loudly", "that dog"]
CONTEXTS = ["a", "b", "a", "b"]


def logprobs(model, ids):
    """Log-probabilities of tokens given those before, NaN for the first."""
    with torch.no_grad():
        scores = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return np.array([np.nan, *(float(scores[i, token]) for i, token in enumerate(ids[1:]))])


@given(st.lists(st.integers(1, 60), max_size=4), st.integers(2, 20))
def test_windows_keep_each_token_once(lengths, size):
    found = windows(lengths, size)
    for number, length in enumerate(lengths):
        own = [each for each in found if each.sequence == number]
        assert [i for each in own for i in range(each.keep, each.stop)] == list(range(length))
        assert all(each.stop - each.start <= size for each in own)
        assert all(each.keep - each.start >= size // 2 for each in own[1:])  # context
    assert windows(lengths, None) == [(i, 0, length, 0) for i, length in enumerate(lengths)]


def test_a_state_is_carried_over_the_marks_of_sentences():
    scorer = word_scorer(special=True)
    tokenizer, words = scorer.tokenizer, [text.split() for text in TEXTS]
    traces = scorer.trace(words, contexts=CONTEXTS)
    for name in "ab":
        members = [i for i, context in enumerate(CONTEXTS) if context == name]
        ids = []
        for i in members:
            ids += [
                tokenizer.bos_token_id,
                *tokenizer(TEXTS[i], add_special_tokens=False).input_ids,
                tokenizer.eos_token_id,
            ]
        expected = logprobs(scorer.model, ids)
        start = 0
        for i in members:
            n = len(words[i])
            np.testing.assert_allclose(traces[i].logprobs, expected[start + 1 : start + n + 1], rtol=1e-4)
            assert traces[i].end_logprob == pytest.approx(expected[start + n + 1], rel=1e-4)
            start += n + 2
    alone = scorer.trace(words)
    np.testing.assert_allclose(alone[0].logprobs, traces[0].logprobs, rtol=1e-5)
    assert not np.allclose(alone[2].logprobs, traces[2].logprobs)
    # Recurrent models read a sequence as a whole.
    narrow = ModelScorer(scorer.model, tokenizer, window=3).trace(words, contexts=CONTEXTS)
    for one, other in zip(traces, narrow, strict=True):
        np.testing.assert_array_equal(one.logprobs, other.logprobs)
        np.testing.assert_array_equal(one.signals["push_strength"], other.signals["push_strength"])


@pytest.mark.parametrize("punctuation", ["attach", "split"])
@pytest.mark.parametrize("begin", [True, False])
def test_a_running_text(begin, punctuation):
    """A model that does not mark ends reads the texts as one."""
    model, tokenizer = gpt2(128, 3, **({"bos_token": "<|end|>"} if begin else {}))
    texts = ["the (dog) barks, no", "cats", "old."]
    scorer = ModelScorer(model, tokenizer)
    parts = scorer.trace(
        [text.split() for text in texts], contexts=[1, 1, 1], punctuation=punctuation, uncertainty=True
    )
    (whole,) = scorer.trace([" ".join(texts).split()], punctuation=punctuation, uncertainty=True)
    assert sum((part.words for part in parts), ()) == whole.words
    np.testing.assert_allclose(np.concatenate([part.logprobs for part in parts]), whole.logprobs, rtol=1e-5)
    np.testing.assert_allclose(np.concatenate([part.entropies[:-1] for part in parts]), whole.entropies[:-1], rtol=1e-5)
    np.testing.assert_allclose(np.concatenate([part.word_ends[:-1] for part in parts]), whole.word_ends[:-1], rtol=1e-5)
    for one, other in pairwise(parts):
        assert one.entropies[-1] == other.entropies[0]
    assert np.isnan(parts[1].logprobs).sum() == 0


def test_windows_by_hand():
    tokenizer = byte_level_tokenizer(bos_token="<|end|>")
    model, _ = gpt2(16, 3, bos_token="<|end|>")
    words = ["a", "dog", "b", "cat", "old"] * 6
    ids = [tokenizer.bos_token_id, *tokenizer(" ".join(words), add_special_tokens=False).input_ids]
    expected = logprobs(model, ids[:16])
    for stop in range(24, len(ids) + 8, 8):
        new = logprobs(model, ids[max(0, min(stop, len(ids)) - 16) : stop])
        expected = np.append(expected, new[len(expected) - len(ids[:stop]) :] if stop > len(expected) else [])
    (trace,) = ModelScorer(model, tokenizer).trace([words])
    assert trace.logprobs.sum() == pytest.approx(expected[1:].sum(), rel=1e-4)
    whole = ModelScorer(model, tokenizer, window=16, batch_tokens=1).trace([words])[0]
    np.testing.assert_allclose(whole.logprobs, trace.logprobs, rtol=1e-4)


def test_a_window_has_a_size():
    model, tokenizer = gpt2(16)
    for window in (1, 17):
        with pytest.raises(InputError, match=f"window must be 2 to 16 tokens; got {window}"):
            surprisal(model, ["a"], tokenizer, window=window)
