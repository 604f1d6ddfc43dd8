"""What every memory with every controller owes a user of transformers: saving, generation, padding, bfloat16."""

import pytest
import torch
from conftest import CONTROLLERS, MEMORIES, thinned, tiny_config

from stack_lm import (
    DeepStackRNNConfig,
    DeepStackRNNForCausalLM,
    StackRNNForCausalLM,
    StackTransformerConfig,
    StackTransformerForCausalLM,
)
from stack_lm.nn import actions_by_layer
from stack_lm.testing import MODEL_CHECKS

STACK_RNNS = thinned([{"controller": controller} for controller in CONTROLLERS], MEMORIES)
STACK_RNNS += thinned([{"reading_entry": "hidden_state", "controller": "rnn"}], MEMORIES[1:])
STACK_RNNS += [
    {"memory": "nondeterministic", "memory_size": 2, "bottom_vector": "learned"},
    {"input_encoding": "one_hot", "embedding_size": None},
    {"reading_exit": "output", "output_size": 4},
]
TRANSFORMERS = [
    {"layers": ["attention", "attention"], "position_encoding": "rotary"},
    {"layers": ["stack", "attention"], "position_encoding": "learned"},
    {"layers": ["attention", "superposition", "attention"]},
    {"layers": ["attention", {"memory": "nondeterministic", "memory_symbols": 2, "memory_size": 2}]},
    {"layers": ["queue", "superposition"], "position_encoding": "none", "tie_word_embeddings": True},
    {"layers": [{"controller": "lstm", "detach": True}, "attention"], "auxiliary_losses": [{"layer": 0}]},
]
TOP = {"memory": "none", "hidden_size": 9, "inputs": [0, "embedding"]}
DEEP = thinned(
    [{"layers": [{"hidden_size": 7, "memory_size": 3} | memory, TOP], "embedding_size": 5} for memory in MEMORIES[1:]],
    every=2,
)
MODELS = STACK_RNNS + TRANSFORMERS + DEEP


def tiny_model(fields):
    """A small model: of a deep network's fields, a transformer's or a stack RNN's."""
    if "layers" not in fields:
        return StackRNNForCausalLM(tiny_config(**fields))
    sizes = {"vocab_size": 23, "pad_token_id": 0}
    if "embedding_size" in fields:
        return DeepStackRNNForCausalLM(DeepStackRNNConfig(**sizes, **fields))
    sizes |= {"hidden_size": 8, "num_attention_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    return StackTransformerForCausalLM(StackTransformerConfig(**sizes, initialization="torch", **fields))


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_it_keeps_the_rules(fields, check):
    check(tiny_model(fields))


@pytest.mark.parametrize("fields", [{"controller": "lstm", **memory} for memory in MEMORIES] + TRANSFORMERS, ids=str)
def test_strengths_are_precise_in_half_precision(fields):
    batch = torch.randint(1, 23, (2, 6))
    actions = tiny_model(fields).to(torch.bfloat16)(batch, output_actions=True).actions
    for layer in actions_by_layer(actions):
        for name in {"operation", "depth", "total_strength", "push_strength"} & set(layer):
            assert layer[name].dtype == torch.float32
