"""A scorer under interventions, against models to which the same was done sentence by sentence."""

import numpy as np
import pytest
import torch
from conftest import tiny_config

from stack_lm import ModelScorer, StackRNNForCausalLM, train_word_tokenizer
from stack_lm.core.errors import InputError
from stack_lm.eval import AgreementItem, evaluate_agreement
from stack_lm.scoring.interventions import InterventionScorer

SENTENCES = [
    s.split() for s in ("the dog barks", "dogs that the old dog fears bark", "the dog that cats fear barks", "dogs")
]
ITEMS = [
    AgreementItem(("the", "dog", "that", "cats", "fear"), "barks", "bark", 1),
    AgreementItem(("the", "dog"), "barks", "bark", 0),
    AgreementItem(("dogs",), "bark", "barks", 0),
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_word_tokenizer([(words, None) for words in SENTENCES])


def scorer(tokenizer, cls=InterventionScorer, batch_tokens=2048, **fields):
    torch.manual_seed(1)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), **ids, **fields)).double()
    if model.model.reading_exit is not None:
        torch.nn.init.normal_(model.model.reading_exit.weight)  # it starts at zero
    for parameter in model.parameters():
        parameter.data *= 3
    return cls(model, tokenizer, batch_tokens=batch_tokens)


def logprobs(scored):
    return np.concatenate([[*trace.logprobs, trace.end_logprob] for trace in scored.trace(SENTENCES)])


def test_the_plans_follow_from_the_controls(tokenizer):
    others = ["values-shuffled", "one-element", "reading-mean", "reading-zero"]
    names = {"push_control": 1.0, "pop_control": 0.5}, {"pop_control": "sigmoid"}, {"memory": "superposition"}
    expected = (
        ["read-mean", "read-shuffled"],
        [f"{what}-{how}" for how in ("mean", "shuffled") for what in ("push", "pop", "read", "all")],
        ["operation-mean", "operation-shuffled"],
    )
    for fields, own in zip(names, expected, strict=True):
        under = scorer(tokenizer, **fields)
        assert list(under.plans) == own + others
        plain = scorer(tokenizer, ModelScorer, **fields)
        np.testing.assert_allclose(logprobs(under), logprobs(plain), atol=1e-10)
        under.measure_means(SENTENCES)
        for name in under.plans:
            with under.under(name):
                assert np.abs(logprobs(under) - logprobs(plain)).max() > 1e-6
        np.testing.assert_allclose(logprobs(under), logprobs(plain), atol=1e-10)


def test_means_are_those_of_all_tokens(tokenizer):
    under = scorer(tokenizer, batch_tokens=12, reading_exit="output")
    means = under.measure_means(SENTENCES)
    pushes = []
    for words in SENTENCES:
        ids = [tokenizer.bos_token_id, *tokenizer.convert_tokens_to_ids(words), tokenizer.eos_token_id]
        pushes.append(under.model(torch.tensor([ids]), output_actions=True).actions.push_strength[0])
    torch.testing.assert_close(means["push_strength"], torch.cat(pushes).mean(), atol=1e-10, rtol=0)
    assert means["reading"].shape == (3,)
    assert means["exit"].shape == (6,)
    with under.under("push-mean"):
        for trace in under.trace(SENTENCES):
            np.testing.assert_allclose(trace.signals["push_strength"], means["push_strength"], atol=1e-10)
    with under.under("reading-mean"):
        for trace in under.trace(SENTENCES):
            np.testing.assert_allclose(
                trace.actions[0]["reading"], means["reading"].expand(len(trace.words), -1), atol=1e-10
            )


def test_a_shuffle_keeps_each_sentences_strengths_and_does_not_depend_on_batches(tokenizer):
    under, alone = scorer(tokenizer, pop_control="sigmoid"), scorer(tokenizer, pop_control="sigmoid", batch_tokens=1)
    names = ("push_strength", "pop_strength", "read_strength")
    before = under.trace(SENTENCES)
    found = {}
    for seed in (0, 1):
        with under.under("all-shuffled", seed):
            found[seed] = under.trace(SENTENCES)
        for old, new in zip(before, found[seed], strict=True):
            rows = [np.stack([trace.signals[name] for name in names], -1) for trace in (old, new)]
            np.testing.assert_allclose(*(row[np.lexsort(row.T)] for row in rows), atol=1e-10)
    moved = [[t.signals["push_strength"] for t in traces] for traces in (before, *found.values())]
    assert all(np.abs(moved[a][1] - moved[b][1]).max() > 1e-6 for a, b in ((0, 1), (0, 2), (1, 2)))
    with alone.under("all-shuffled", 1), under.under("all-shuffled", 1):
        np.testing.assert_allclose(logprobs(alone), logprobs(under), atol=1e-10)
    with under.under("push-shuffled"):
        for old, new in zip(before, under.trace(SENTENCES), strict=True):
            assert np.ptp(old.signals["push_strength"]) == pytest.approx(np.ptp(new.signals["push_strength"]))


def test_agreement_is_under_the_intervention_too(tokenizer):
    under, plain = scorer(tokenizer), scorer(tokenizer, ModelScorer)
    expected = evaluate_agreement(plain, ITEMS).logprobs
    np.testing.assert_allclose(evaluate_agreement(under, ITEMS).logprobs, expected, atol=1e-10)
    with under.under("reading-zero"):
        found = evaluate_agreement(under, ITEMS).logprobs
        whole = under.trace([[*item.prefix, form] for item in ITEMS for form in (item.correct, item.wrong)])
    np.testing.assert_allclose(found.ravel(), [trace.logprobs[-1] for trace in whole], atol=1e-10)
    assert np.abs(found - expected).max() > 1e-6


def test_wrong_use(tokenizer):
    under = scorer(tokenizer)
    for name, message in (("push-men", "must be one of push-mean, "), ("all-mean", "call measure_means")):
        with pytest.raises(InputError, match=message), under.under(name):
            pass
    with pytest.raises(InputError, match=r"has no memory \(memory='none'\) to intervene on"):
        scorer(tokenizer, memory="none")
