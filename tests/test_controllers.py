"""Controllers against torch's own recurrent modules."""

import pytest
import torch
from conftest import tiny_config
from torch import nn

from stack_lm.controllers import make_controller

MODULES = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


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


def test_linear_controller():
    controller = make_controller(tiny_config(controller="linear", num_layers=2), 3)
    x, r = torch.randn(2, 1, 5), torch.randn(2, 1, 3)
    outputs, state = steps(controller, x, r, controller.initial_state(2))
    first = x[:, 0] @ controller.weight_ih_l0.T + controller.bias_ih_l0 + r[:, 0] @ controller.weight_reading.T
    torch.testing.assert_close(outputs[:, 0], first @ controller.weight_ih_l1.T + controller.bias_ih_l1)
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


def test_nothing_is_fused_with_a_reading_or_a_linear_controller():
    inputs = torch.randn(1, 2, 5)
    for controller in (
        make_controller(tiny_config(), 3),
        make_controller(tiny_config(controller="linear"), 0),
    ):
        assert controller.run(inputs, controller.initial_state(1)) is None


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
