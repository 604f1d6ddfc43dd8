"""The cache, and generation with it: greedy, by beams, of batches, in a pipeline."""

import itertools

import pytest
import torch
from test_modeling import D1, EXIT, ids, make_lm, tiny_config, tokenizer_of
from transformers import TextIteratorStreamer, pipeline

from stack_lm import (
    MemoryCache,
    StackRNNForCausalLM,
    StackRNNForTokenClassification,
    StackTransformerConfig,
    StackTransformerForCausalLM,
    train_subword_tokenizer,
)

# --- cache


def test_cache():
    model = make_lm()
    prefix = ids(2, 4)
    cache = model(prefix, use_cache=True).past_key_values
    assert isinstance(cache, MemoryCache)
    assert cache.get_seq_length() == 4
    one, two = ids(2, 1), ids(2, 1)
    copy = cache.clone()
    first = model(one, past_key_values=cache).logits
    assert (cache.get_seq_length(), copy.get_seq_length()) == (5, 4)
    # The copy is not contaminated: scoring a second continuation starts from the prefix again.
    torch.testing.assert_close(
        model(two, past_key_values=copy).logits, model(torch.cat((prefix, two), 1)).logits[:, -1:]
    )
    torch.testing.assert_close(first, model(torch.cat((prefix, one), 1)).logits[:, -1:])
    cache.reorder_cache(torch.tensor([1, 0]))
    again = torch.cat((prefix, one), 1)[[1, 0]]
    follow = ids(2, 1)
    torch.testing.assert_close(
        model(follow, past_key_values=cache).logits, model(torch.cat((again, follow), 1)).logits[:, -1:]
    )
    with pytest.raises(ValueError, match="cannot be cropped"):
        cache.crop(-1)
    cache.reset()
    assert cache.get_seq_length() == 0
    assert cache.state() is None
    assert "MemoryCache" in repr(cache)


@pytest.mark.parametrize("cls", [StackRNNForCausalLM, StackRNNForTokenClassification])
def test_the_cache_has_two_names(cls):
    """transformers renamed `past_key_values` to `cache` in version 5.24; both work with all versions."""
    model = cls(tiny_config(**D1)).eval()
    prefix, rest = ids(2, 4), ids(2, 3)
    first = model(prefix, use_cache=True)
    assert first.past_key_values is first.cache
    expected = model(torch.cat((prefix, rest), 1)).logits[:, -3:]
    for name in ("cache", "past_key_values"):
        again = model(rest, **{name: first.cache.clone()})
        torch.testing.assert_close(again.logits, expected)
        assert again.past_key_values.get_seq_length() == again.cache.get_seq_length() == 7
        body = model.model(rest, **{name: first.cache.clone()})
        assert body.past_key_values is body.cache
    given = {"cache": first.cache.clone(), "past_key_values": first.cache.clone()}
    with pytest.raises(TypeError, match="^cache and past_key_values are two names of one argument; give one of them$"):
        model(rest, **given)


def test_detach_truncates_backpropagation():
    model = make_lm().train()
    embeds = torch.randn(1, 3, 5, requires_grad=True)
    cache = model(inputs_embeds=embeds, use_cache=True).past_key_values
    follow = ids(1, 2)
    grads = torch.autograd.grad(model(follow, past_key_values=cache.clone()).logits.sum(), embeds, retain_graph=True)
    assert grads[0].abs().sum() > 0
    loss = model(follow, past_key_values=cache.detach()).logits.sum()
    assert torch.autograd.grad(loss, embeds, allow_unused=True) == (None,)


# --- generation


def greedy(model, prompt, steps):
    for _ in range(steps):
        prompt = torch.cat((prompt, model(prompt).logits[:, -1:].argmax(-1)), dim=1)
    return prompt


@pytest.mark.parametrize("fields", [{}, D1, EXIT, {"memory": "none", "controller": "gru"}], ids=str)
def test_greedy_generation_equals_running_the_whole_each_time(fields):
    model = make_lm(**fields)
    prompt = ids(3, 4)
    options = {"max_new_tokens": 6, "do_sample": False}
    expected = greedy(model, prompt, 6)
    assert torch.equal(model.generate(prompt, **options), expected)
    assert torch.equal(model.generate(prompt, use_cache=False, **options), expected)
    assert torch.equal(model.generate(prompt, prefill_chunk_size=3, **options), expected)


def test_left_padded_batch_generates_as_each_alone():
    model = make_lm()
    prompts = [ids(1, n) for n in (2, 5, 3)]
    batch = torch.cat([torch.nn.functional.pad(prompt, (5 - prompt.shape[1], 0)) for prompt in prompts])
    mask = (batch != 0).long()
    generated = model.generate(batch, attention_mask=mask, max_new_tokens=5, do_sample=False)
    for row, prompt in zip(generated, prompts, strict=True):
        assert row[5:].tolist() == greedy(model, prompt, 5)[0, prompt.shape[1] :].tolist()


def best_continuation(model, prompt, steps):
    """The most probable continuation of all there are."""
    vocab_size = model.config.vocab_size
    continuations = torch.tensor(list(itertools.product(range(vocab_size), repeat=steps)))
    whole = torch.cat((prompt.expand(len(continuations), -1), continuations), dim=1)
    logprobs = model(whole).logits[:, prompt.shape[1] - 1 : -1].log_softmax(-1)
    scores = logprobs.gather(-1, continuations.unsqueeze(-1)).sum((1, 2))
    return continuations[scores.argmax()].tolist()


def test_beam_search_reorders_the_state(monkeypatch):
    model = make_lm(scale=3.0, vocab_size=8)
    prompts = torch.randint(1, 8, (4, 3))
    # A beam of 8 * 8 loses nothing in three steps.
    options = {"num_beams": 64, "max_new_tokens": 3, "do_sample": False, "length_penalty": 0.0}
    expected = [best_continuation(model, prompts[i : i + 1], 3) for i in range(4)]
    assert model.generate(prompts, **options)[:, 3:].tolist() == expected
    monkeypatch.setattr(MemoryCache, "reorder_cache", lambda self, beam_idx: None)
    assert model.generate(prompts, **options)[:, 3:].tolist() != expected  # or this test would prove nothing


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_users_cache_is_continued_and_expanded(name):
    model = make_lm()
    prompt = ids(1, 4)
    cache = model(prompt[:, :-1], use_cache=True).cache
    torch.manual_seed(3)
    continued = model.generate(prompt, do_sample=True, max_new_tokens=4, num_return_sequences=3, **{name: cache})
    assert cache.get_seq_length() > 4  # the cache given was the one used
    torch.manual_seed(3)
    assert torch.equal(continued, model.generate(prompt, do_sample=True, max_new_tokens=4, num_return_sequences=3))


def test_a_reader_of_a_stream_does_not_wait_for_a_generation_that_has_failed():
    streamer = TextIteratorStreamer(tokenizer_of(), timeout=5)
    with pytest.raises(IndexError, match="input_ids must be in"):
        make_lm().generate(torch.tensor([[10_000]]), max_new_tokens=3, streamer=streamer)
    list(streamer)


def test_a_memorys_temperature_is_not_generations(tmp_path):
    model = make_lm(memory="baby_ntm", memory_depth=4, operation_control="softmax_temperature", temperature=2.0)
    assert model.generation_config.temperature is None
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert (loaded.generation_config.temperature, loaded.config.temperature) == (None, 2.0)


def test_text_generation_pipeline(tmp_path):
    tokenizer = tokenizer_of()
    model = make_lm(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generate = pipeline("text-generation", model=str(tmp_path))
    (result,) = generate("w1 w2 w3", max_new_tokens=4, do_sample=False)
    expected = greedy(model, tokenizer("w1 w2 w3", return_tensors="pt").input_ids, 4)
    assert result["generated_text"].split() == tokenizer.decode(expected[0], skip_special_tokens=True).split()
    prompts = ["w1", "w2 w3 w4"]
    batch = generate(prompts, max_new_tokens=4, do_sample=False, batch_size=2)
    assert batch == [generate(prompt, max_new_tokens=4, do_sample=False) for prompt in prompts]


def test_what_is_refused():
    model, cache = make_lm(), MemoryCache()
    with pytest.raises(ValueError, match="a recurrent state cannot be cropped; clone"):
        cache.crop(-1)
    with pytest.raises(ValueError, match="cache_implementation must be None; got 'static'"):
        model.generate(ids(1, 2), max_new_tokens=2, cache_implementation="static")
    with pytest.raises(ValueError, match=r"has no continuous batching \(generate_batch\); call generate"):
        model.generate_batch([[1, 2, 3]])
    with pytest.raises(ValueError, match="be cropped"):
        model.generate(ids(1, 4), max_new_tokens=2, do_sample=False, prompt_lookup_num_tokens=2)


# --- batches of other programs


@pytest.mark.parametrize("layers", [None, ["attention", "stack"]])
def test_positions_of_other_programs(layers):
    """Of a later part of a text, and of left padding in both forms of transformers; only self-attention uses them."""
    if layers is None:
        model = make_lm()
    else:
        config = StackTransformerConfig(vocab_size=50, hidden_size=8, num_attention_heads=2, layers=layers)
        model = StackTransformerForCausalLM(config).eval()
    tokens, alone = ids(1, 5), torch.arange(5)[None]
    expected = model(tokens).logits
    torch.testing.assert_close(model(tokens, position_ids=alone).logits, expected)
    assert torch.equal(model(tokens, position_ids=alone + 3).logits, expected) == (layers is None)
    mask = torch.tensor([[0, 0, 1, 1, 1]])
    padded = model(tokens, mask).logits[:, 2:]
    for positions in ([[1, 1, 0, 1, 2]], [[0, 0, 0, 1, 2]]):
        found = model(tokens, mask, position_ids=torch.tensor(positions)).logits[:, 2:]
        torch.testing.assert_close(found, padded)
    with pytest.raises(ValueError, match="not used by the model"):
        model.generate(tokens, max_new_tokens=2, cu_seqlens=torch.tensor([0, 3, 5]))


def test_stop_strings():
    tokenizer = train_subword_tokenizer([(["dogs", "bark"], None)], 300)
    model = make_lm(vocab_size=len(tokenizer))
    begun = tokenizer("dogs", return_tensors="pt").input_ids
    whole = model.generate(begun, max_new_tokens=8, do_sample=False, eos_token_id=None)
    stop = tokenizer.decode(whole[0, begun.shape[1] : begun.shape[1] + 3])[-1]
    options = {"stop_strings": [stop], "tokenizer": tokenizer, "eos_token_id": None}
    stopped = model.generate(begun, max_new_tokens=8, do_sample=False, **options)
    assert begun.shape[1] < stopped.shape[1] <= begun.shape[1] + 3
    assert stopped.tolist() == whole[:, : stopped.shape[1]].tolist()
