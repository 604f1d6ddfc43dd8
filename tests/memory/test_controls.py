"""How strengths are emitted."""

import pytest
import torch
from conftest import tiny_config
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.memory import make_memory
from stack_lm.memory.controls import Controls
from stack_lm.memory.emission import ExpectedValue, OperationChoice, Sigmoid, make_control


def controls(**fields):
    config = tiny_config(**fields)
    return Controls.from_config(config, make_memory(config))


def test_expected_value_is_the_mean_of_the_support():
    logits = torch.randn(4, 6, dtype=torch.float64)
    strength, distribution = ExpectedValue(5).emit(logits)
    expected = sum(i * logits.softmax(-1)[:, i] for i in range(6))
    torch.testing.assert_close(strength, expected)
    torch.testing.assert_close(distribution, logits.softmax(-1))


def test_expected_value_over_zero_and_one_is_a_sigmoid():
    logits = torch.stack((torch.zeros(5), torch.linspace(-3, 3, 5)), dim=-1)
    torch.testing.assert_close(ExpectedValue(1).emit(logits)[0], Sigmoid().emit(logits[:, 1:])[0])


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ({}, 3 + 4 + 0 + 4),  # u = 1: value, push over {0..3}, nothing for the pop, read
        ({"push_control": 1.0, "pop_control": "expected_value", "max_pop": 5}, 3 + 0 + 6 + 4),
        ({"push_control": "sigmoid", "pop_control": "sigmoid", "read_control": 1}, 3 + 1 + 1 + 0),
    ],
)
def test_one_projection_of_the_needed_size(fields, rows):
    assert controls(**fields).projection.weight.shape == (rows, 7)


def test_actions_are_emitted_in_the_order_of_the_fields():
    module = controls(push_control="sigmoid", pop_control=0.5)
    hidden = torch.randn(2, 7)
    emitted, reported = module(hidden)
    logits = module.projection(hidden)
    torch.testing.assert_close(emitted.push_value, logits[:, :3].tanh())
    torch.testing.assert_close(emitted.push_strength, logits[:, 3].sigmoid())
    assert emitted.pop_strength.tolist() == [0.5, 0.5]
    torch.testing.assert_close(reported["read_distribution"], logits[:, 4:].softmax(-1))
    assert set(reported) == {"push_strength", "pop_strength", "read_strength", "read_distribution"}


@pytest.mark.parametrize("control", ["sigmoid", "expected_value"])
@pytest.mark.parametrize("name", ["push", "pop", "read"])
def test_initial_strengths(name, control):
    settings = {"push_control": "sigmoid", "pop_control": "sigmoid", "read_control": "sigmoid"}
    start = 0.26894142 if control == "sigmoid" else 0.50736  # sigmoid(-1); the mean of softmax(0, -1, -2, -3)
    module = controls(**settings | {f"{name}_control": control, f"{name}_strength_init": start})
    first = 3 + ["push", "pop", "read"].index(name)
    last = first + module.emission(f"{name}_strength").width
    expected = [-1.0] if control == "sigmoid" else [0.0, -1.0, -2.0, -3.0]
    for _ in range(2):
        bias = module.projection.bias
        assert bias[first:last].tolist() == pytest.approx(expected, abs=1e-3)
        rest = bias[:first].tolist() + bias[last:].tolist()
        assert all(abs(value) < 7**-0.5 and value != 0 for value in rest)  # all others are torch's own
        module.projection.reset_parameters()


@given(st.integers(1, 9), st.floats(0.001, 0.999))
def test_a_control_starts_at_its_strength(maximum, share):
    strength = share * maximum
    assert float(emit_at_start(make_control("expected_value", maximum, strength))) == pytest.approx(strength, rel=1e-9)
    assert float(emit_at_start(make_control("sigmoid", 3, share))) == pytest.approx(share, rel=1e-9)
    one = make_control("expected_value", 1, share).initial_bias()[1]
    assert [one] == make_control("sigmoid", 3, share).initial_bias()


def emit_at_start(control):
    """The strength where the projection of the controller's output is zero."""
    return control.emit(torch.tensor([control.initial_bias()], dtype=torch.float64))[0]


def test_the_papers_biases_of_one_are_exact():
    for strength, bias in ((0.26894142, -1.0), (0.73105858, 1.0)):
        assert torch.tensor(make_control("sigmoid", 1, strength).initial_bias()).tolist() == [bias]


# --- choices


def test_softmax_and_its_temperature():
    """Suzgun et al. (2019), section 3.4."""
    logits = torch.randn(3, 2, 4, dtype=torch.float64)
    torch.testing.assert_close(OperationChoice("softmax", shape=(2, 4))(logits), logits.softmax(-1))
    expected = (logits / 0.5).exp() / (logits / 0.5).exp().sum(-1, keepdim=True)
    torch.testing.assert_close(OperationChoice("softmax_temperature", 0.5, shape=(2, 4))(logits), expected)


def test_gumbel_softmax_draws_each_operation_as_often_as_the_softmax_says():
    """The argmax of Gumbel noise and logits is a sample of their softmax (Jang et al. 2017)."""
    choice = OperationChoice("gumbel_softmax", 0.7, shape=(1, 4)).train()
    logits = torch.tensor([0.0, 1.0, -1.0, 0.5]).expand(20_000, 1, 4)
    weights = choice(logits)
    torch.testing.assert_close(weights.sum(-1), torch.ones(20_000, 1))
    shares = torch.bincount(weights.argmax(-1).flatten(), minlength=4) / 20_000
    torch.testing.assert_close(shares, logits[0, 0].softmax(-1), atol=0.015, rtol=0)


def test_gumbel_noise_is_off_in_evaluation_unless_asked_for():
    logits = torch.randn(2, 1, 3)
    quiet, noisy = (
        OperationChoice("gumbel_softmax", shape=(1, 3)).eval(),
        OperationChoice("gumbel_softmax", shape=(1, 3), evaluation_noise=True).eval(),
    )
    assert torch.equal(quiet(logits), logits.softmax(-1))
    assert not torch.equal(noisy(logits), noisy(logits))
    assert not torch.equal(quiet.train()(logits), quiet(logits))


def test_argmax_in_evaluation():
    logits = torch.tensor([[[0.1, 3.0, 2.0]]])
    choice = OperationChoice("softmax", shape=(1, 3), evaluation_argmax=True)
    assert torch.equal(choice(logits), logits.softmax(-1))  # not while training
    assert choice.eval()(logits).tolist() == [[[0.0, 1.0, 0.0]]]


def test_the_temperature_is_saved_with_the_weights():
    module = controls(memory="baby_ntm", operation_control="gumbel_softmax", temperature=0.8)
    assert module.state_dict()["choices.operation.temperature"] == pytest.approx(0.8)
    assert "choices.operation.temperature" not in controls(memory="baby_ntm").state_dict()
