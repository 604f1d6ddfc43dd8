"""Controllers against torch's own recurrent modules."""

from functools import partial

import pytest
import torch
from conftest import tiny_config
from torch import nn

from stack_lm import StackRNNForCausalLM
from stack_lm.nn.controllers import make_controller

MODULES = {"rnn": nn.RNN, "rnn_relu": partial(nn.RNN, nonlinearity="relu"), "gru": nn.GRU, "lstm": nn.LSTM}


def steps(controller, inputs, readings, state):
    outputs = []
    projected = controller.project(inputs)
    for t in range(inputs.shape[1]):
        layers, state = controller.step(projected[:, t], readings[:, t], state)
        outputs.append(layers[-1])
    return torch.stack(outputs, dim=1), state


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("num_layers", [1, 3])
def test_equals_torch(kind, num_layers):
    """On [x_t; r_{t-1}], with the columns of the first weight matrix split between the two."""
    controller = make_controller(tiny_config(controller=kind, num_layers=num_layers), 3).double()
    module = MODULES[kind](5 + 3, 7, num_layers, batch_first=True).double()
    weights = {k: v for k, v in controller.state_dict().items() if k != "weight_reading"}
    weights["weight_ih_l0"] = torch.cat((controller.weight_ih_l0, controller.weight_reading), dim=1)
    module.load_state_dict(weights)
    inputs, readings = torch.randn(2, 6, 5, dtype=torch.float64), torch.randn(2, 6, 3, dtype=torch.float64)
    outputs, state = steps(controller, inputs, readings, controller.initial_state(2))
    expected, last = module(torch.cat((inputs, readings), dim=-1))
    torch.testing.assert_close(outputs, expected)
    for ours, theirs in zip(state, last if kind == "lstm" else [last], strict=True):
        torch.testing.assert_close(ours, theirs.transpose(0, 1))


@pytest.mark.parametrize(("kind", "squash"), [("linear", lambda sums: sums), ("sigmoid", torch.sigmoid)])
def test_controllers_without_a_state(kind, squash):
    controller = make_controller(tiny_config(controller=kind, num_layers=2), 3)
    x, r = torch.randn(2, 1, 5), torch.randn(2, 1, 3)
    outputs, state = steps(controller, x, r, controller.initial_state(2))
    first = x[:, 0] @ controller.weight_ih_l0.T + controller.bias_ih_l0 + r[:, 0] @ controller.weight_reading.T
    second = squash(first) @ controller.weight_ih_l1.T + controller.bias_ih_l1
    torch.testing.assert_close(outputs[:, 0], squash(second))
    assert state == ()


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_fused_run_equals_steps(kind, num_layers):
    config = tiny_config(controller=kind, num_layers=num_layers, memory="none", learn_initial_state=True)
    controller = make_controller(config, 0).double()
    for parameter in controller.first_state:
        nn.init.normal_(parameter)
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    state = controller.initial_state(2)
    by_steps = steps(controller, inputs, inputs.new_zeros(2, 6, 0), state)
    torch.testing.assert_close(controller.run(inputs, state), by_steps)


@pytest.mark.parametrize("kind", MODULES)
def test_reading_into_the_hidden_state_equals_torch(kind):
    """Suzgun et al. (2019), sections 3.1 and 3.2: a step of torch's cell from h + W r + b."""
    config = tiny_config(controller=kind, num_layers=2, reading_entry="hidden_state")
    controller = make_controller(config, 3).double()
    module = MODULES[kind](5, 7, 2, batch_first=True).double()
    weights = {k: v for k, v in controller.state_dict().items() if not k.endswith("_reading")}
    module.load_state_dict(weights)
    assert controller.weight_reading.shape == (7, 3)
    inputs, readings = torch.randn(2, 6, 5, dtype=torch.float64), torch.randn(2, 6, 3, dtype=torch.float64)
    outputs, _ = steps(controller, inputs, readings, controller.initial_state(2))
    hidden = torch.zeros(2, 2, 7, dtype=torch.float64)
    cell = torch.zeros_like(hidden)
    for t in range(6):
        added = readings[:, t] @ controller.weight_reading.T + controller.bias_reading
        hidden = torch.stack((hidden[0] + added, hidden[1]))
        output, last = module(inputs[:, t : t + 1], (hidden, cell) if kind == "lstm" else hidden)
        hidden, cell = last if kind == "lstm" else (last, None)
        torch.testing.assert_close(outputs[:, t : t + 1], output)


def test_sigmoid_rnn_without_biases():
    """Joulin & Mikolov (2015), eq. 5: h = sigmoid(U x + R h + P s)."""
    controller = make_controller(tiny_config(controller="rnn_sigmoid", bias=False), 3)
    assert set(dict(controller.named_parameters())) == {"weight_ih_l0", "weight_hh_l0", "weight_reading"}
    x, r = torch.randn(2, 2, 5), torch.randn(2, 2, 3)
    outputs, _ = steps(controller, x, r, controller.initial_state(2))
    hidden = torch.zeros(2, 7)
    for t in range(2):
        of_input = x[:, t] @ controller.weight_ih_l0.T + r[:, t] @ controller.weight_reading.T
        hidden = (of_input + hidden @ controller.weight_hh_l0.T).sigmoid()
        torch.testing.assert_close(outputs[:, t], hidden)


@pytest.mark.parametrize("kind", MODULES)
def test_skip_connections_give_the_input_to_every_layer(kind):
    """Each layer is torch's, on the layer below and the input side by side."""
    config = tiny_config(controller=kind, num_layers=3, input_skip_connections=True, memory="none")
    controller = make_controller(config, 0).double()
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    expected = inputs
    for layer in range(3):
        module = MODULES[kind](5 if layer == 0 else 7 + 5, 7, batch_first=True).double()
        named = {name: getattr(controller, f"{name}_l{layer}") for name in ("weight_hh", "bias_ih", "bias_hh")}
        weight = getattr(controller, f"weight_ih_l{layer}")
        if layer:
            weight = torch.cat((weight, getattr(controller, f"weight_skip_l{layer}")), dim=1)
            expected = torch.cat((expected, inputs), dim=-1)
        module.load_state_dict({f"{name}_l0": value for name, value in (named | {"weight_ih": weight}).items()})
        expected, _ = module(expected)
    outputs, state = steps(controller, inputs, inputs.new_zeros(2, 6, 0), controller.initial_state(2))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(controller.run(inputs, controller.initial_state(2)), (outputs, state))


def test_direct_controller():
    """Hao et al. (2018), section 2.2: with its controls it is one linear layer on [x_t; r_{t-1}]."""
    controller = make_controller(tiny_config(controller="direct", hidden_size=None), 3)
    assert list(controller.parameters()) == []
    x, r = torch.randn(2, 4, 5), torch.randn(2, 4, 3)
    outputs, state = steps(controller, x, r, controller.initial_state(2))
    assert torch.equal(outputs, torch.cat((x, r), dim=-1))
    assert state == ()


def test_dropout_is_between_layers_only():
    one = make_controller(tiny_config(hidden_dropout=0.5), 3)
    x, r = torch.randn(2, 4, 5), torch.randn(2, 4, 3)
    torch.testing.assert_close(steps(one, x, r, one.initial_state(2)), steps(one, x, r, one.initial_state(2)))
    two = make_controller(tiny_config(hidden_dropout=0.5, num_layers=2), 3)
    first, second = (steps(two, x, r, two.initial_state(2))[0] for _ in range(2))
    assert not torch.equal(first, second)
    two.eval()
    torch.testing.assert_close(steps(two, x, r, two.initial_state(2)), steps(two, x, r, two.initial_state(2)))


def test_learned_initial_state():
    controller = make_controller(tiny_config(learn_initial_state=True, num_layers=2), 3)
    assert [tuple(p.shape) for p in controller.first_state] == [(2, 7), (2, 7)]
    x, r = torch.randn(3, 4, 5), torch.randn(3, 4, 3)
    steps(controller, x, r, controller.initial_state(3))[0].sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in controller.first_state)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_autocast(kind, dtype):
    """Also on processors that do not multiply bfloat16, where torch's own LSTM fails under autocast."""
    model = StackRNNForCausalLM(tiny_config(memory="none", controller=kind)).eval()
    batch = torch.arange(1, 9).view(2, 4)
    exact = model(batch, labels=batch).loss
    if dtype is torch.float64:  # which autocast leaves alone
        model, dtype = model.double(), torch.bfloat16
    with torch.autocast("cpu", dtype=dtype):
        loss = model(batch, labels=batch).loss
    torch.testing.assert_close(loss.float(), exact, rtol=0.03, atol=0)
    loss.backward()
