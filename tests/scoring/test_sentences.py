"""ModelScorer: log-probabilities and strengths, aligned to words, for ours and for other models."""

import subprocess
import sys
from functools import lru_cache

import numpy as np
import pytest
import torch
from conftest import byte_level_tokenizer, tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_models import WORDS, gpt2, word_scorer
from transformers import MambaConfig, MambaForCausalLM

from stack_lm import ModelScorer, StackRNNForCausalLM, train_word_tokenizer
from stack_lm.core.errors import InputError
from stack_lm.core.trace import Trace
from stack_lm.eval import evaluate_perplexity
from stack_lm.nn import operation_labels
from stack_lm.scoring import reading
from stack_lm.scoring.encoding import words_of_tokens

SENTENCES = ["the dog barks".split(), "the old dog that cats fear barks".split(), ["dog"], "the xyz barks".split()]


def gpt2_scorer():
    return ModelScorer(*gpt2())


def mamba_scorer():
    tokenizer = byte_level_tokenizer()
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, state_size=4)
    return ModelScorer(MambaForCausalLM(config), tokenizer)


def token_logprobs(scorer, ids):
    logits = scorer.model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    return logits.gather(-1, torch.tensor(ids[1:]).unsqueeze(-1)).squeeze(-1).detach().numpy()


@pytest.mark.parametrize("batch_tokens", [1, 8, 2048])
def test_word_level_trace(batch_tokens):
    scorer = word_scorer(batch_tokens)
    for words, trace in zip(SENTENCES, scorer.trace(SENTENCES), strict=True):
        ids = scorer.tokenizer(" ".join(words)).input_ids
        assert trace.words == tuple(words)
        assert np.isnan(trace.logprobs[0])
        assert trace.n_tokens.tolist() == [0] + [1] * (len(words) - 1)
        np.testing.assert_allclose(trace.logprobs[1:], token_logprobs(scorer, ids), atol=1e-6)
        assert trace.unknown.tolist() == [word == "xyz" for word in words]
        assert np.isnan(trace.end_logprob)
        actions = scorer.model(torch.tensor([ids]), output_actions=True).actions
        for name in ("push_strength", "pop_strength", "read_strength", "total_strength"):
            np.testing.assert_allclose(trace.signals[name], actions[name][0].detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("fields", [{"num_stacks": 2}, {"memory": "baby_ntm", "memory_depth": 4}], ids=str)
def test_a_trace_has_the_operations_on_a_memory_in_superposition(fields):
    scorer = word_scorer(**{"memory": "superposition"} | fields)
    (trace,) = scorer.trace([SENTENCES[1]])
    ids = torch.tensor([scorer.tokenizer(" ".join(SENTENCES[1])).input_ids])
    expected = scorer.model(ids, output_actions=True).actions
    assert set(trace.actions[0]) == set(expected)
    assert trace.operations["operation"].shape == (len(SENTENCES[1]), *expected.operation.shape[2:])
    np.testing.assert_allclose(trace.operations["operation"], expected.operation[0].detach(), atol=1e-6)
    labels = operation_labels(scorer.memories[0])["operation"]
    assert len(set(labels)) == len(labels) == np.prod(expected.operation.shape[2:])


def test_begin_and_end_tokens_are_scored():
    scorer = word_scorer(special=True)
    (trace,) = scorer.trace([["the", "dog"]])
    expected = token_logprobs(scorer, [*scorer.tokenizer("the dog").input_ids, scorer.tokenizer.eos_token_id])
    np.testing.assert_allclose([*trace.logprobs, trace.end_logprob], expected, atol=1e-6)
    assert trace.n_tokens.tolist() == [1, 1]
    assert trace.signals["push_strength"].shape == (2,)


def test_a_beginning_token_comes_first_where_tokenizer_and_model_have_one():
    """Also where the tokenizer does not add it, as GPT-2's; the end only where a stack RNN was trained with it."""
    model, tokenizer = gpt2(bos_token="<|end|>")
    scorer = ModelScorer(model, tokenizer)
    ids = [tokenizer.bos_token_id, *tokenizer("the dog").input_ids]
    expected = token_logprobs(scorer, ids)
    (trace,) = scorer.trace([["the", "dog"]])
    assert trace.logprobs.sum() == pytest.approx(expected.sum(), abs=1e-5)
    assert np.isnan(trace.end_logprob)
    assert scorer.sentence_logprobs([[["the", "dog"]]])[0] == pytest.approx(expected.sum(), abs=1e-5)
    model.config.bos_token_id = None
    without = ModelScorer(model, tokenizer)
    assert (scorer.predicts_first_word, without.predicts_first_word) == (True, False)
    assert np.isnan(without.trace([["the", "dog"]])[0].logprobs[0])


@pytest.mark.parametrize(
    "make", [gpt2_scorer, mamba_scorer, lambda: ModelScorer(gpt2_scorer().model, byte_level_tokenizer())]
)
def test_subwords_are_summed_to_words(make):
    scorer = make()
    words = "the naïve dog barks 12345".split()
    (trace,) = scorer.trace([words])
    ids = scorer.tokenizer(" ".join(words)).input_ids
    pieces = [len(scorer.tokenizer((" " if i else "") + word).input_ids) for i, word in enumerate(words)]
    assert sum(pieces) == len(ids)
    assert max(pieces) > 1
    scores = np.concatenate(([np.nan], token_logprobs(scorer, ids)))
    sums = [part.sum() for part in np.split(scores, np.cumsum(pieces)[:-1])]
    np.testing.assert_allclose(trace.logprobs, sums, atol=1e-5)
    assert trace.n_tokens.tolist() == [0, *pieces[1:]]
    assert trace.signals == {}


def test_words_of_tokens():
    """By the last character; a token that is a space alone belongs to the word behind it."""
    offsets = [(0, 2), (2, 3), (3, 4), (4, 6), (6, 9), (0, 0)]  # "ab", " "?, "c", ...
    assert words_of_tokens(["ab", "cde", "fg"], offsets).tolist() == [0, 1, 1, 1, 2, 0]


def test_a_continuation_of_nothing_needs_a_begin_token():
    assert np.isnan(word_scorer().continuation_logprobs([[]], [["dog", "the"]])[0]).all()
    scorer = word_scorer(special=True)
    (scores,) = scorer.continuation_logprobs([[]], [["dog", "the"]])
    ids = scorer.tokenizer("dog").input_ids
    assert scores[0] == pytest.approx(token_logprobs(scorer, ids)[0], abs=1e-5)


@lru_cache
def made(make):
    """One scorer for all examples, with batches so small that there are several."""
    scorer = make()
    scorer.batch_tokens = 12
    return scorer


def naive(scorer, ids, start):
    """The definition: the whole sequence alone, tokens before `start` given."""
    return token_logprobs(scorer, ids)[start - 1 :].sum() if 0 < start < len(ids) else np.nan


@pytest.mark.parametrize("make", [word_scorer, lambda: word_scorer(special=True), gpt2_scorer, mamba_scorer])
@settings(max_examples=10, deadline=None)
@given(
    groups=st.lists(
        st.lists(st.lists(st.sampled_from([*WORDS, "xyz"]), min_size=1, max_size=6), max_size=4), max_size=5
    )
)
def test_sentences_are_scored_as_if_each_ran_alone(make, groups):
    scorer = made(make)
    results = scorer.sentence_logprobs(groups)
    begin = len(scorer.tokenizer("a").input_ids) > 1 and scorer.tokenizer.bos_token is not None
    assert scorer.predicts_first_word == begin
    for group, result in zip(groups, results, strict=True):
        expected = [naive(scorer, scorer.tokenizer(" ".join(words)).input_ids, 1) for words in group]
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [word_scorer, gpt2_scorer, mamba_scorer])
@settings(max_examples=10, deadline=None)
@given(
    groups=st.lists(
        st.tuples(
            st.lists(st.sampled_from(WORDS), max_size=4),
            st.lists(st.sampled_from(["dog", "barks", "barks loudly near", "xyz the", "cats"]), max_size=3),
        ),
        max_size=5,
    )
)
def test_continuations_are_scored_as_if_each_ran_alone(make, groups):
    scorer = made(make)
    results = scorer.continuation_logprobs([prefix for prefix, _ in groups], [some for _, some in groups])
    for (prefix, some), result in zip(groups, results, strict=True):
        start = len(scorer.tokenizer(" ".join(prefix)).input_ids) if prefix else 0
        expected = [naive(scorer, scorer.tokenizer(" ".join([*prefix, text])).input_ids, start) for text in some]
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_sums_from_any_place_on(data):
    """Also where the sequences of a group part before the place that their scores begin at."""
    scorer = made(word_scorer)
    tokens = st.lists(st.integers(2, len(scorer.tokenizer) - 1), min_size=1, max_size=6)
    groups = [
        [(ids, data.draw(st.integers(0, len(ids)))) for ids in data.draw(st.lists(tokens, max_size=4))]
        for _ in range(2)
    ]
    for group, result in zip(groups, scorer._sums(groups), strict=True):
        expected = [naive(scorer, ids, start) for ids, start in group]
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_sentences_that_differ_in_the_last_word_run_once():
    scorer = word_scorer()
    seen = []
    forward = scorer.model.model.forward

    def counted(input_ids, **arguments):
        seen.append(input_ids.numel())
        return forward(input_ids, **arguments)

    scorer.model.model.forward = counted
    pair = ["the dog near old bridges barks".split(), "the dog near old bridges fear".split()]
    scorer.sentence_logprobs([pair, pair])
    assert sum(seen) == 5  # and the last words are only predicted


def test_knows():
    scorer = word_scorer()
    assert scorer.knows("dog")
    assert not scorer.knows("the xyz")
    scorer = ModelScorer(scorer.model, train_word_tokenizer([(WORDS, None)], lowercase="all"))
    assert scorer.knows("Dog")
    scorer = ModelScorer(scorer.model, train_word_tokenizer([(WORDS, None)], lowercase="first_word"))
    assert scorer.knows("Dog", begins=True)
    assert not scorer.knows("Dog")
    assert not scorer.knows("Xyz", begins=True)
    assert gpt2_scorer().knows("xyz")  # without an unknown token nothing is unknown


def test_parsing_signal():
    assert word_scorer().parsing_signal == "push_strength"
    assert word_scorer(push_control=1.0, pop_control="expected_value").parsing_signal == "pop_strength"
    with pytest.raises(InputError, match=r"the model has no memory \(memory='none'\)"):
        _ = word_scorer(memory="none").parsing_signal
    with pytest.raises(InputError, match=r"the model has no memory \(a GPT2Config\)"):
        _ = gpt2_scorer().parsing_signal
    with pytest.raises(InputError, match="both fixed"):
        _ = word_scorer(push_control=1.0, pop_control=1.0).parsing_signal
    for memory in ("deque", "baby_ntm"):
        with pytest.raises(InputError, match=f"memory='{memory}' has no single push and pop strength"):
            _ = word_scorer(memory=memory).parsing_signal


def test_from_pretrained(tmp_path):
    scorer = word_scorer()
    scorer.model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="cannot load a language model from"):
        ModelScorer.from_pretrained(str(tmp_path))  # no tokenizer
    scorer.tokenizer.save_pretrained(tmp_path)
    loaded = ModelScorer.from_pretrained(str(tmp_path), device="cpu")
    np.testing.assert_allclose(loaded.trace(SENTENCES)[1].logprobs, scorer.trace(SENTENCES)[1].logprobs)
    with pytest.raises(InputError, match="cannot use the device 'warp:3'"):
        ModelScorer.from_pretrained(str(tmp_path), device="warp:3")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(InputError, match="cannot load a language model from"):
        ModelScorer.from_pretrained(str(tmp_path))


def test_an_incomplete_model_is_refused(tmp_path):
    scorer = word_scorer()
    scorer.model.model.save_pretrained(tmp_path)
    scorer.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="its weights lack lm_head.bias, lm_head.weight"):
        ModelScorer.from_pretrained(str(tmp_path))


def test_a_broken_model_is_not_taken_for_one_that_scores_nothing():
    scorer = word_scorer()
    scorer.model.lm_head.bias.data[:] = float("nan")
    for score in (lambda: scorer.trace([["the", "dog"]]), lambda: scorer.sentence_logprobs([[["the", "dog"]]])):
        with pytest.raises(InputError, match="the log-probability of the model is not finite: its weights are broken"):
            score()
    scorer = word_scorer()
    for parameter in scorer.model.parameters():
        parameter.data.fill_(3e38)
    with pytest.raises(InputError, match="of the model is not finite"):
        scorer.trace([["the", "dog"]], logprobs=False)
    with pytest.raises(InputError, match="gives no finite probability to 'the dog'"):
        evaluate_perplexity([Trace(("the", "dog"), np.array([0, np.nan]), np.ones(2), np.zeros(2, dtype=bool))])


def test_long_sentences_in_parts(monkeypatch):
    """The logits of a few steps at a time are those of all."""
    scorer, words = word_scorer(), ["the", "dog", "that", "cats", "fear"] * 8
    whole, sums = scorer.trace([words, words[:3]]), scorer.sentence_logprobs([[words, words[1:]]])
    monkeypatch.setattr(reading, "_LOGITS", 3 * len(scorer.tokenizer))
    for one, other in zip(whole, scorer.trace([words, words[:3]]), strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-6)
    np.testing.assert_allclose(sums, scorer.sentence_logprobs([[words, words[1:]]]), atol=1e-5)


def test_sentences_that_are_no_sentences(monkeypatch):
    with pytest.raises(InputError, match="sentence 2 has no words"):
        word_scorer().trace([["the"], []])
    with pytest.raises(InputError, match="sentence 2 has 262,145 tokens to read; 262,144 can be read at most"):
        word_scorer().trace([["the"], ["the"] * (2**18 + 1)])
    with pytest.raises(InputError, match="a sentence has 262,145 tokens to read; 262,144 can be read at most"):
        word_scorer().sentence_logprobs([[["the"] * (2**18 + 2)]])
    monkeypatch.setattr(reading, "_MOST_LOGITS", 4000)
    scorer = made(gpt2_scorer)
    size = scorer.model.config.vocab_size
    with pytest.raises(InputError, match=f"{4000 // size} fit into memory"):
        scorer.trace([["the", "dog", "barks"] * 5])


def test_sentences_longer_than_the_model():
    scorer, words = made(gpt2_scorer), ["the"] * 64
    length = len(scorer.tokenizer(" ".join(words)).input_ids)
    assert length >= scorer.model.config.max_position_embeddings == 64
    assert np.isfinite(scorer.trace([["a"], words * 2])[1].logprobs[1:]).all()  # in windows
    with pytest.raises(InputError, match="the model has 64 positions"):
        scorer.sentence_logprobs([[words * 2, words]])


def test_tags_take_the_place_of_rare_words():
    tokenizer = train_word_tokenizer(
        [("a dog".split(), ["DT", "NN"]), ("a cat".split(), ["DT", "NN"])], vocab_size=1, tag_rare_words=True
    )
    scorer = ModelScorer(StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer))), tokenizer)
    with_tag, without = scorer.trace([["a", "xyz"]], [["DT", "NN"]])[0], scorer.trace([["a", "xyz"]])[0]
    assert with_tag.unknown.tolist() == [False, False]
    assert without.unknown.tolist() == [False, True]


@pytest.mark.slow
def test_a_model_is_loaded_where_standard_output_is_closed(tmp_path):
    """As in some services; run in a process of its own, whose output it closes."""
    tokenizer = train_word_tokenizer([(["a", "b"], None)])
    config = tiny_config(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    StackRNNForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    script = "import os, sys; os.close(1); from stack_lm import ModelScorer; ModelScorer.from_pretrained(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
