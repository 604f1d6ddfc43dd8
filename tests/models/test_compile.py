"""torch.compile of models and layers: one graph, the same numbers, and nothing left behind."""

import copy
import gc

import pytest
import torch
from conftest import MEMORIES, tiny_config
from torch import nn

from stack_lm import StackRNN, StackRNNConfig, StackRNNForCausalLM
from stack_lm.kernels import dispatch
from stack_lm.memory import leaves
from stack_lm.nn import operator
from stack_lm.nn.memory_layer import MemoryLayer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv(dispatch.VARIABLE, raising=False)
    torch._dynamo.reset()
    yield
    gc.collect()
    assert not operator._SHELF


def compiled(module, backend="aot_eager"):
    return torch.compile(module, fullgraph=True, backend=backend)


def check_equal(got, expected):
    for one, other in zip(leaves(got), leaves(expected), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def check_training(model, backend="aot_eager", **inputs):
    twin = copy.deepcopy(model)
    losses = []
    for run in (model, compiled(twin, backend)):
        output = run(**inputs, use_cache=True)
        losses.append(output.loss)
        (output.loss + sum(part.sum() for part in leaves(output.past_key_values.state()))).backward()
    torch.testing.assert_close(losses[1], losses[0])
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert (parameter.grad is None) == (other.grad is None)
        if parameter.grad is not None:
            torch.testing.assert_close(other.grad, parameter.grad, atol=1e-5, rtol=1e-5)


IDS = torch.tensor([[3, 4, 5, 6, 7, 8], [9, 3, 4, 5, 0, 0], [0, 0, 6, 7, 8, 9]])


@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_every_memory_is_one_graph(fields):
    torch.manual_seed(0)
    model = StackRNNForCausalLM(tiny_config(**fields)).eval()
    inputs = {"input_ids": IDS, "attention_mask": (IDS != 0).long()}
    with torch.no_grad():
        expected = model(**inputs, output_actions=True, use_cache=True)
        got = compiled(model)(**inputs, output_actions=True, use_cache=True)
    check_equal((got.logits, got.past_key_values.state()), (expected.logits, expected.past_key_values.state()))
    assert got.past_key_values.get_seq_length() == 6
    check_equal(tuple(got.actions.values()), tuple(expected.actions[name] for name in got.actions))
    if fields.get("operation_control") != "gumbel_softmax":  # whose noise differs
        check_training(model.train(), **inputs, labels=IDS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
def test_inductor_compiles_it():
    torch.manual_seed(0)
    check_training(StackRNNForCausalLM(tiny_config()), "inductor", input_ids=IDS, labels=IDS)


def test_states_are_carried_and_generation_is_the_same():
    torch.manual_seed(0)
    model = StackRNNForCausalLM(tiny_config(eos_token_id=None)).eval()
    expected = model.generate(IDS[:1], max_new_tokens=8, do_sample=False)
    model.forward = torch.compile(model.forward, backend="aot_eager")
    assert torch.equal(model.generate(IDS[:1], max_new_tokens=8, do_sample=False), expected)


def test_layers_are_one_graph():
    torch.manual_seed(0)
    inputs = torch.randn(2, 6, 5)
    for layer in (MemoryLayer(5, memory="queue", memory_size=3), StackRNN(5, 7, num_layers=2, batch_first=True)):
        twin = copy.deepcopy(layer)
        expected, got = layer(inputs), compiled(twin)(inputs)
        check_equal(got[:2], expected[:2])
        expected[0].sum().backward()
        got[0].sum().backward()
        for parameter, other in zip(layer.parameters(), twin.parameters(), strict=True):
            if parameter.grad is not None:
                torch.testing.assert_close(other.grad, parameter.grad)


@pytest.mark.parametrize("memory", ["stack", "superposition", "baby_ntm", "nondeterministic"])
def test_autocast_casts_vectors_as_without_compilation(memory):
    """Under autocast, another layer's output is of another type than the weights."""
    torch.manual_seed(0)
    vectors = torch.randn(2, 4, 6)
    for layer in (StackRNN(6, 6, memory=memory, batch_first=True), MemoryLayer(6, memory=memory)):
        model = nn.Sequential(nn.Linear(6, 6), layer)
        twin = copy.deepcopy(model)
        found = []
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for run in (model, compiled(twin)):
                output, *_ = run(vectors)
                output.float().pow(2).sum().backward()
                found.append(output)
        if memory != "nondeterministic":  # whose readings of probabilities stay in float32 without compilation
            assert found[0].dtype == found[1].dtype
        torch.testing.assert_close(found[1].float(), found[0].float(), atol=1e-2, rtol=1e-2)
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("change", ["evaluation_argmax", "empty_value"])
def test_a_changed_setting_is_noticed(change):
    torch.manual_seed(0)
    config = StackRNNConfig(vocab_size=7, hidden_size=8, memory="superposition", memory_size=4)
    model = StackRNNForCausalLM(config).eval()
    cell, ids = model.model.cell, torch.randint(7, (2, 5))
    before = model(ids).logits
    if change == "evaluation_argmax":
        cell.controls.choices["operation"].evaluation_argmax = True
    else:
        cell.memory.empty_value = -1.0
    expected = model(ids).logits
    assert not torch.allclose(expected, before, atol=1e-3)
    torch.testing.assert_close(torch.compile(model, backend="eager")(ids).logits, expected)


def test_an_exchanged_control_is_noticed():
    model = StackRNNForCausalLM(tiny_config()).eval()
    cell = model.model.cell
    cell.controls.stateless["pop_strength"] = copy.copy(cell.controls.stateless["pop_strength"])
    cell.controls.stateless["pop_strength"].value = 0.5
    assert "exchanged" in operator.operator_obstacle(cell)
    with torch.no_grad():
        check_equal(compiled(model)(IDS).logits, model(IDS).logits)
    model.set_scan_backend("numba")
    torch._dynamo.reset()
    with pytest.raises(Exception, match="scan_backend='numba', as set, cannot run this under torch.compile"):
        compiled(model)(IDS)
