"""The learned vector at the bottom of a nondeterministic stack, wherever a memory begins."""

import pytest
import torch
from conftest import tiny_config
from torch import nn

from stack_lm import MemoryLayer, StackRNN, StackRNNForCausalLM
from stack_lm.core.errors import InputError
from stack_lm.memory import NondeterministicStack, make_memory, memory_names
from stack_lm.nn import memories

STACK = {"memory": "nondeterministic", "memory_states": 2, "memory_symbols": 2, "memory_size": 3}
LEARNED = STACK | {"bottom_vector": "learned"}
LOGITS = torch.tensor([-2.0, 0.5, 3.0])


def make_model(**fields):
    torch.manual_seed(0)
    model = StackRNNForCausalLM(tiny_config(**LEARNED | fields)).eval()
    with torch.no_grad():
        memories(model)[0].controls.start["bottom_vector"].copy_(LOGITS)
    return model


def make_layer(**settings):
    torch.manual_seed(0)
    layer = MemoryLayer(5, **LEARNED | settings)
    with torch.no_grad():
        layer.controls.start["bottom_vector"].copy_(LOGITS)
    return layer


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_the_first_reading_is_made_as_pushed_vectors_are(activation):
    layer = make_layer(push_value_activation=activation)
    state = layer.initial_state(2)
    assert state.reading[:, 3:].abs().sum() == 0
    torch.testing.assert_close(state.reading[:, :3], getattr(torch, activation)(LOGITS).expand(2, 3))
    # A large logit gives ones, as `bottom_vector="ones"` has them.
    ones = MemoryLayer(5, **STACK | {"push_value_activation": activation})
    ones.load_state_dict({k: v for k, v in layer.state_dict().items() if "start" not in k})
    with torch.no_grad():
        layer.controls.start["bottom_vector"].fill_(100)
    hidden = torch.randn(2, 6, 5)
    torch.testing.assert_close(layer(hidden)[0], ones(hidden)[0])


@pytest.mark.parametrize("bottom", ["open", "fixed"])
def test_gradients_reach_the_vector(bottom):
    """Of a fixed bottom by the first reading alone: it is covered at the first step, and never uncovered."""
    rnn = StackRNN(5, 4, **LEARNED | {"bottom": bottom})
    rnn(torch.randn(6, 2, 5))[0].square().sum().backward()
    assert rnn.layers[0].controls.start["bottom_vector"].grad.abs().min() > 0
    layer = make_layer(bottom=bottom)
    layer(torch.randn(2, 6, 5))[0].square().sum().backward()
    assert (layer.controls.start["bottom_vector"].grad.abs().max() > 0) == (bottom == "open")


def test_counts_and_initial_values():
    plain, model = StackRNNForCausalLM(tiny_config(**STACK)), StackRNNForCausalLM(tiny_config(**LEARNED))
    assert model.num_parameters() == plain.num_parameters() + 3
    assert memories(model)[0].controls.start["bottom_vector"].tolist() == [0, 0, 0]
    drawn = memories(StackRNNForCausalLM(tiny_config(**LEARNED | {"initialization": "xavier"})))[0].controls.start
    assert 0 < drawn["bottom_vector"].abs().max() <= 0.1
    learned = [name for name in memory_names() if make_memory(tiny_config(memory=name)).learned]
    assert learned == ["deltastack"]  # and a nondeterministic stack with this setting


def test_steps_reset_and_padding():
    layer = make_layer(bottom="open")
    hidden = torch.randn(2, 5, 5)
    whole, last, _ = layer(hidden)
    state = None
    for t in range(5):
        reading, state, _ = layer.step(hidden[:, t], state)
        torch.testing.assert_close(reading, whole[:, t])
    # One sequence begins anew, the other goes on.
    state = layer.reset(last, torch.tensor([True, False]))
    torch.testing.assert_close(state.reading[0], layer.initial_state(1).reading[0])
    torch.testing.assert_close(state.reading[1], last.reading[1])
    again = layer(hidden, state)[0]
    torch.testing.assert_close(again[0], whole[0])
    assert not torch.allclose(again[1], whole[1])
    mask = torch.tensor([[False, False, True, True, True]] * 2)
    torch.testing.assert_close(layer(hidden, None, mask)[0][:, 2:], layer(hidden[:, 2:])[0])


def test_several_models_at_once():
    cells = [memories(make_model())[0] for _ in range(2)]
    with torch.no_grad():
        cells[1].controls.start["bottom_vector"].neg_()
    inputs = torch.randn(2, 3, 4, cells[0].controller.input_size)
    for backend in ("reference", "numba"):
        for cell in cells:
            cell.scan_backend = backend
        parameters, buffers = torch.func.stack_module_state(cells)
        run = lambda *each: torch.func.functional_call(cells[0], each[:2], each[2:]).outputs  # noqa: E731
        found = torch.func.vmap(run)(parameters, buffers, inputs)
        expected = torch.stack([cell.scan(own).outputs for cell, own in zip(cells, inputs, strict=True)])
        torch.testing.assert_close(found, expected)


def test_alone_and_refused():
    memory = NondeterministicStack(2, 2, 3, bottom_vector="learned")
    state = memory.initial_state(2)
    assert memory.initial_reading(state).abs().sum() == 0
    state = memory.set_learned(state, {"bottom_vector": LOGITS})
    assert memory.initial_reading(state)[1, :3].tolist() == LOGITS.tolist()
    with pytest.raises(InputError, match="bottom_vector='learned' needs a memory_size of at least 1; got 0"):
        tiny_config(**LEARNED | {"memory_size": 0})
    with pytest.raises(InputError, match="bottom_vector must be one of 'ones', 'zeros', 'learned'; got 'any'"):
        tiny_config(**LEARNED | {"bottom_vector": "any"})
    assert isinstance(memories(nn.ModuleList([make_layer()]))[0].controls.start, nn.ParameterDict)
