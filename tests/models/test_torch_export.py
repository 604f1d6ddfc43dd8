"""Caches as trees of tensors, torch.export of whole sequences, and what a state is like after a scan."""

import io

import pytest
import torch
from conftest import MEMORIES, tiny_config
from torch import nn
from torch.utils import _pytree as pytree
from transformers import AutoModelForCausalLM

from stack_lm import DeepStackRNNConfig, StackRNNForCausalLM, StackTransformerConfig
from stack_lm.memory import leaves, make_memory
from stack_lm.models.cache import MemoryCache

BATCH, LENGTH = torch.export.Dim("batch"), torch.export.Dim("length")


def make(**fields):
    torch.manual_seed(0)
    return StackRNNForCausalLM(tiny_config(**fields)).eval()


class WithActions(nn.Module):
    """torch.export wants arguments of one kind for tensors: the options are given here."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids, attention_mask, output_actions=True, use_cache=True)


def exported(model):
    """With a dynamic batch and length, written and read again."""
    example = (torch.zeros(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.long))
    program = torch.export.export(WithActions(model).eval(), example, dynamic_shapes=({0: BATCH, 1: LENGTH},) * 2)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file).module()


def check_equal(model, program):
    for shape in ((3, 7), (1, 1), (1, 4), (4, 2)):
        ids, mask = torch.randint(0, 23, shape), torch.ones(shape, dtype=torch.long)
        mask[-1, : shape[1] // 2] = 0
        with torch.no_grad():
            expected = model(ids, attention_mask=mask, output_actions=True, use_cache=True)
        got = program(ids, mask)
        torch.testing.assert_close(got.logits, expected.logits, atol=1e-5, rtol=0)
        for one, other in zip(*(leaves(each.past_key_values.state()) for each in (got, expected)), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
        for name, action in expected.actions.items():
            torch.testing.assert_close(got.actions[name], action, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("controller", ["lstm", "gru", "direct"])
@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_every_memory_is_exported_whole(fields, controller):
    model = make(controller=controller, **fields)
    check_equal(model, exported(model))


@pytest.mark.slow
@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_every_memory_is_exported_step_by_step_with_a_dynamic_batch(fields):
    model, ids = make(**fields), torch.randint(0, 23, (3, 4))
    model.set_scan_backend("reference")
    mask = torch.ones_like(ids)
    example, mask[-1, :2] = (ids[:2].clone(), mask[:2].clone()), 0
    program = torch.export.export(WithActions(model), example, dynamic_shapes=({0: BATCH},) * 2).module()
    torch.testing.assert_close(program(ids, mask).logits, model(ids, mask).logits, atol=1e-5, rtol=0)


def test_an_exported_model_takes_any_batch_and_length_and_is_for_inference():
    model, ids = make(memory_size=4, num_heads=2, pop_control="expected_value"), torch.randint(0, 23, (3, 9))
    shapes = {"input_ids": {0: BATCH, 1: LENGTH}}
    program = torch.export.export(model, (ids[:2, :4].clone(),), dynamic_shapes=shapes).module()
    torch.testing.assert_close(program(ids).logits, model(ids).logits, atol=1e-5, rtol=0)
    with pytest.raises(RuntimeError, match="an exported scan has no gradients"):
        program(ids).logits.sum().backward()


RECURRENT = {"controller": "lstm", "hidden_size": 8, "memory_size": 3}
NETWORKS = {
    "deep": DeepStackRNNConfig(layers=[{"memory_size": 3}, {"memory": "none"}], auxiliary_losses=[{"layer": 0}]),
    "attention": StackTransformerConfig(layers=["attention", "stack"], hidden_size=16),
    "heads": StackTransformerConfig(layers=["attention", {"memory": "stack", "num_heads": 2}], hidden_size=16),
    "recurrent": StackTransformerConfig(layers=[RECURRENT, "attention"], hidden_size=16, position_encoding="rotary"),
    "learned": StackTransformerConfig(layers=["attention"], hidden_size=16, position_encoding="learned"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_layers_are_exported_with_a_dynamic_batch_and_length(name):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(NETWORKS[name]).eval()
    length = torch.export.Dim("length", max=1024) if name == "learned" else LENGTH  # max_position_embeddings
    example = (torch.zeros(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.long))
    program = torch.export.export(model, example, dynamic_shapes=({0: BATCH, 1: length},) * 2).module()
    for shape in ((3, 7), (1, 1), (4, 2)):
        ids, mask = torch.randint(0, 23, shape), torch.ones(shape, dtype=torch.long)
        mask[-1, : shape[1] // 2] = 0
        torch.testing.assert_close(program(ids, mask).logits, model(ids, mask).logits, atol=1e-5, rtol=0)


def test_a_cache_is_a_tree_of_its_states():
    model = make()
    cache = model(torch.ones(2, 5, dtype=torch.long), use_cache=True).past_key_values
    double = pytree.tree_map(lambda part: torch.cat((part, part)), cache)
    assert type(double) is MemoryCache
    assert double.get_seq_length() == 5
    assert double.state(batch_size=4)._fields == cache.state()._fields
    flat, form = pytree.tree_flatten(cache)
    assert len(flat) == len(list(leaves(cache.state())))
    # The number of tokens is no part of its form, or an exported program would take caches of one age alone.
    longer = model(torch.ones(2, 1, dtype=torch.long), past_key_values=cache.clone()).past_key_values
    assert pytree.tree_structure(longer) == form
    assert pytree.treespec_loads(pytree.treespec_dumps(form)) == form
    names = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(cache)[0]]
    assert "[0].memory.strengths" in names


@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_a_memory_says_how_large_it_is_after_a_scan(fields):
    memory = make_memory(tiny_config(**fields))
    if not memory.actions:
        pytest.skip("it has no steps")
    first = memory.initial_state(2)
    steps = memory.action_type(*(torch.rand(2, 6, *field.shape) for field in memory.actions))
    for one, other in zip(leaves(memory.after(first, 6)), leaves(memory.scan(first, steps).state), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
