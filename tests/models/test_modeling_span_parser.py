"""The span parser's scores from their definition, padding, the loss, saving, and what is refused."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import AutoConfig, AutoModel

from stack_lm import SpanParserConfig, SpanParserModel
from stack_lm.models.modeling_span_parser import spans_that_count

SIZES = {"vocab_size": 17, "embedding_size": 4, "hidden_size": 5, "span_size": 6, "pad_token_id": 0}


@pytest.fixture(scope="module", params=[1, 2])
def model(request):
    torch.manual_seed(3)
    model = SpanParserModel(SpanParserConfig(**SIZES, num_layers=request.param)).double().eval()
    nn.init.normal_(model.span_bias)
    return model


# <s> and </s> around words of one or more tokens: their ids, and the last token before each fence.
ONE = [1, 5, 6, 7, 8, 9, 2], [0, 1, 3, 5]
OTHER = [1, 4, 11, 2], [0, 1, 2]


def defined(model, ids, fences):
    """Each span from the LSTM's states at its ends, one at a time."""
    outputs, _ = model.lstm(model.embed_tokens(torch.tensor([ids])))
    forward, backward = outputs[0].chunk(2, dim=-1)
    n = len(fences)
    logits = torch.zeros(n, n, dtype=outputs.dtype)
    for start in range(n):
        for stop in range(start + 1, n):
            before = forward[fences[stop]] - forward[fences[start]]
            behind = backward[fences[start] + 1] - backward[fences[stop] + 1]
            hidden = torch.relu(model.ends(torch.cat((before, behind))) + model.span_bias)
            logits[start, stop] = model.score(hidden)[0]
    return logits


def padded(*sentences):
    ids = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids, _ in sentences], batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones(len(ids), dtype=torch.long) for ids, _ in sentences], batch_first=True)
    fences = nn.utils.rnn.pad_sequence(
        [torch.tensor(fences) for _, fences in sentences], batch_first=True, padding_value=-1
    )
    return {"input_ids": ids, "attention_mask": mask, "fences": fences}


def test_scores_are_those_of_the_definition_whatever_is_beside_them(model):
    logits = model(**padded(ONE, OTHER)).logits
    torch.testing.assert_close(logits[0], defined(model, *ONE), rtol=0, atol=1e-12)
    torch.testing.assert_close(logits[1, :3, :3], defined(model, *OTHER), rtol=0, atol=1e-12)
    assert not logits[1, 3].any()
    assert not logits[1, :, 3].any()
    alone = {name: value[:1] for name, value in padded(ONE).items() if name != "attention_mask"}
    torch.testing.assert_close(model(**alone).logits, logits[:1], rtol=0, atol=1e-12)


def test_the_loss_is_the_mean_cross_entropy_of_the_spans_that_trees_differ_in(model):
    votes = torch.rand(2, 4, 4, dtype=torch.float64)
    inputs = padded(ONE, OTHER)
    logits = model(**inputs).logits
    counted = [(0, 0, 2), (0, 1, 3)]  # of three words the two pairs; of two words none
    probabilities = torch.stack([logits[span].sigmoid() for span in counted])
    targets = torch.stack([votes[span] for span in counted])
    expected = -(targets * probabilities.log() + (1 - targets) * (1 - probabilities).log())
    torch.testing.assert_close(model(**inputs, votes=votes).loss, expected.mean(), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        model(**inputs, votes=votes, num_items_in_batch=5).loss, expected.sum() / 5, rtol=0, atol=1e-12
    )


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_spans_that_count(lengths):
    size = max(lengths) + 1
    real = torch.arange(size) < torch.tensor(lengths)[:, None] + 1
    counted = spans_that_count(real)
    for row, n in enumerate(lengths):
        expected = {(i, j) for i in range(n + 1) for j in range(i + 2, n + 1) if j - i < n}
        assert {tuple(span) for span in counted[row].nonzero().tolist()} == expected


def test_gradients(model):
    """Of the loss, by finite differences, for every weight that it has."""
    inputs, votes = padded(ONE, OTHER), torch.rand(2, 4, 4, dtype=torch.float64)
    names, weights = zip(*model.named_parameters(), strict=True)

    def loss(*values):
        return torch.func.functional_call(
            model, dict(zip(names, values, strict=True)), (), inputs | {"votes": votes}
        ).loss

    assert torch.autograd.gradcheck(loss, weights, fast_mode=True)


def test_a_part_of_the_starts_at_a_time(model, monkeypatch):
    expected = model(**padded(ONE, OTHER)).logits
    monkeypatch.setattr("stack_lm.models.modeling_span_parser._MOST_UNITS", 100)
    torch.testing.assert_close(model(**padded(ONE, OTHER)).logits, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(model, dtype):
    half = copy.deepcopy(model).to(dtype)
    inputs = padded(ONE, OTHER)
    torch.testing.assert_close(half(**inputs).logits.double(), model(**inputs).logits, rtol=0, atol=0.05)
    assert half(**inputs, votes=torch.rand(2, 4, 4)).loss.isfinite()


def test_saving_and_loading(tmp_path, model):
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, dtype=torch.float64)
    assert isinstance(loaded, SpanParserModel)
    torch.testing.assert_close(loaded(**padded(ONE)).logits, model(**padded(ONE)).logits, rtol=0, atol=0)
    assert AutoConfig.from_pretrained(tmp_path).to_dict()["span_size"] == SIZES["span_size"]


def test_what_is_refused(model):
    with pytest.raises(ValueError, match="hidden_size"):
        SpanParserConfig(hidden_size=0)
    with pytest.raises(ValueError, match="SpanParserConfig has no field 'hiden_size'.*hidden_size"):
        SpanParserConfig(hiden_size=3)
    with pytest.raises(TypeError, match="speed"):
        model(**padded(ONE), speed=3)
    assert np.isfinite(model(**padded(ONE)).logits.detach().numpy()).all()
