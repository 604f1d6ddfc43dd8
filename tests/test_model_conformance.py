"""What every memory with every controller owes a user of transformers: saving, generation, padding, bfloat16."""

import pytest
import torch
from conftest import CONTROLLERS, MEMORIES, thinned, tiny_config
from transformers import AutoModelForCausalLM

from stack_lm import StackRNNForCausalLM, StackTransformerConfig, StackTransformerForCausalLM
from stack_lm.layers import actions_by_layer

STACK_RNNS = thinned([{"controller": controller} for controller in CONTROLLERS], MEMORIES)
STACK_RNNS += thinned([{"reading_entry": "hidden_state", "controller": "rnn"}], MEMORIES[1:])
TRANSFORMERS = [
    {"layers": ["attention", "attention"], "position_encoding": "rotary"},
    {"layers": ["stack", "attention"], "position_encoding": "learned"},
    {"layers": ["attention", "superposition", "attention"]},
    {"layers": ["attention", {"memory": "nondeterministic", "memory_symbols": 2, "memory_size": 2}]},
    {"layers": ["queue", "superposition"], "position_encoding": "none", "tie_word_embeddings": True},
    {"layers": [{"controller": "lstm", "detach": True}, "attention"], "auxiliary_losses": [{"layer": 0}]},
]
MODELS = STACK_RNNS + TRANSFORMERS


def tiny_model(fields):
    """A small model: of a transformer's fields or a stack RNN's."""
    if "layers" not in fields:
        return StackRNNForCausalLM(tiny_config(**fields))
    sizes = {"vocab_size": 23, "hidden_size": 8, "num_attention_heads": 2, "pad_token_id": 0, "dropout": 0.0}
    config = StackTransformerConfig(**sizes, attention_dropout=0.0, initialization="torch", **fields)
    return StackTransformerForCausalLM(config)


def make_lm(fields):
    """A model with large random weights, whose continuations differ from state to state."""
    model = tiny_model(fields)
    for parameter in model.parameters():
        parameter.data *= 3
    return model.eval()


@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_saved_and_loaded_it_computes_the_same(fields, tmp_path):
    model = make_lm(fields)
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    batch = torch.randint(1, 23, (2, 6))
    assert torch.equal(loaded(batch).logits, model(batch).logits)


@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_generation_carries_the_state(fields):
    model = make_lm(fields)
    prompts = [torch.randint(1, 23, (1, n)) for n in (4, 2)]
    batch = torch.cat((prompts[0], torch.nn.functional.pad(prompts[1], (2, 0))))
    generated = model.generate(batch, attention_mask=(batch != 0).long(), max_new_tokens=4, do_sample=False)
    for row, prompt in zip(generated, prompts, strict=True):
        for _ in range(4):
            prompt = torch.cat((prompt, model(prompt).logits[:, -1:].argmax(-1)), dim=1)
        assert row[4:].tolist() == prompt[0, -4:].tolist()


@pytest.mark.parametrize("fields", [{"controller": "lstm", **memory} for memory in MEMORIES] + TRANSFORMERS, ids=str)
def test_bfloat16_and_autocast(fields):
    model = tiny_model(fields)
    batch = torch.randint(1, 23, (2, 6))
    exact = model(batch, labels=batch).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(batch, labels=batch, output_actions=True)
    torch.testing.assert_close(outputs.loss, exact, rtol=0.03, atol=0)
    outputs.loss.backward()
    outputs = model.to(torch.bfloat16)(batch, labels=batch, output_actions=True)
    torch.testing.assert_close(outputs.loss.float(), exact, rtol=0.03, atol=0)
    outputs.loss.backward()
    for actions in actions_by_layer(outputs.actions):
        for name in {"operation", "depth", "total_strength", "push_strength"} & set(actions):
            assert actions[name].dtype == torch.float32
