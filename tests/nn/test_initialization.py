"""Initial weights as in the released code of Hao et al. (2018), DuSell and Chiang (2020) and Delétang et al. (2023)."""

import math

import pytest
import torch
from conftest import tiny_config

from stack_lm import (
    BufferedStackRNNConfig,
    BufferedStackRNNForTransduction,
    MemoryLayer,
    StackRNNConfig,
    StackRNNForCausalLM,
    StackRNNForTokenClassification,
)

STRENGTHS = {"push_control": "sigmoid", "pop_control": "sigmoid", "read_control": 1.0, "pop_strength_init": 0.25}
# Wide enough that a standard deviation is known to a few percent.
WIDE = {"input_encoding": "one_hot", "initialization": "normal_rows", "memory_size": 60, **STRENGTHS}


def deviation(*matrices):
    return float(torch.cat([matrix.detach().flatten() for matrix in matrices]).std())


@pytest.fixture(scope="module")
def lstm():
    torch.manual_seed(0)
    return StackRNNForTokenClassification(StackRNNConfig(vocab_size=50, num_labels=40, hidden_size=30, **WIDE))


def test_the_linear_layers_on_the_controller_are_one(lstm):
    projection, head = lstm.model.cell.controls.projection, lstm.score
    rows = 40 + 60 + 2
    assert deviation(projection.weight, head.weight) == pytest.approx(rows**-0.5, rel=0.05)
    assert deviation(head.weight) == pytest.approx(rows**-0.5, rel=0.07)


def test_the_controllers_matrices_have_their_own_rows(lstm):
    controller = lstm.model.cell.controller
    for name in ("weight_ih_l0", "weight_hh_l0", "weight_reading"):
        assert deviation(getattr(controller, name)) == pytest.approx((4 * 30) ** -0.5, rel=0.05), name


def test_buffered_networks_have_one_layer_too():
    torch.manual_seed(0)
    fields = {**WIDE, "memory_size": 120, "controller": "direct"}
    config = BufferedStackRNNConfig(
        vocab_size=80, input_pop_strength_init=0.75, output_push_strength_init=0.5, **fields
    )
    model = BufferedStackRNNForTransduction(config)
    rows = 80 + 120 + 2 + 2
    layers = (model.lm_head, model.model.cell.controls.projection, model.buffer_projection)
    for layer in layers[:2]:
        assert deviation(layer.weight) == pytest.approx(rows**-0.5, rel=0.05)
    assert deviation(layers[2].weight) == pytest.approx(rows**-0.5, rel=0.2)
    assert model.buffer_projection.bias.tolist() == pytest.approx([math.log(3), 0])


def test_a_layer_before_the_head_takes_the_heads_place():
    torch.manual_seed(0)
    config = StackRNNConfig(vocab_size=200, output_size=90, hidden_size=30, **WIDE)
    model = StackRNNForCausalLM(config)
    assert deviation(model.lm_head.weight) == pytest.approx(200**-0.5, rel=0.05)
    assert deviation(model.model.output_layer.weight) == pytest.approx((90 + 60 + 2) ** -0.5, rel=0.05)


def bound(*matrices):
    return float(torch.cat([matrix.detach().flatten() for matrix in matrices]).abs().max())


@pytest.mark.parametrize(
    ("fields", "groups"),
    [
        # rows of the actions that are one layer, and the gain of the function that follows
        ({"push_value_activation": "tanh", **STRENGTHS}, {"value": (60, 5 / 3), "strengths": (2, 1)}),
        ({"memory": "superposition", "no_op": True}, {"value": (60, 1), "choice": (3, 1)}),
    ],
)
def test_xaviers_weights(fields, groups):
    torch.manual_seed(0)
    config = StackRNNConfig(
        vocab_size=50, input_encoding="one_hot", hidden_size=30, memory_size=60, initialization="xavier", **fields
    )
    model = StackRNNForCausalLM(config)
    controller, controls = model.model.cell.controller, model.model.cell.controls
    for name, parameter in controller.named_parameters():
        assert 0.09 < bound(parameter) <= 0.1, name
    assert bound(model.lm_head.weight) == pytest.approx(math.sqrt(6 / (30 + 50)), rel=0.01)
    assert not model.lm_head.bias.any()
    parts = controls.projection.weight.split(controls.widths)
    for kind, (rows, gain) in groups.items():
        own = [part for part in parts if (len(part) == 60) == (kind == "value")]
        expected = gain * math.sqrt(6 / (30 + rows))
        assert expected * 0.9 < bound(*own) <= expected, kind
    biases = [-math.log(3)] if "memory" not in fields else []
    assert [b for b in controls.projection.bias.tolist() if b] == pytest.approx(biases)


@pytest.mark.parametrize("initialization", ["normal_rows", "xavier"])
def test_loaded_weights_stay(tmp_path, initialization):
    config = tiny_config(initialization=initialization)
    model = StackRNNForCausalLM(config)
    model.save_pretrained(tmp_path)
    again = StackRNNForCausalLM.from_pretrained(tmp_path)
    assert again.config.initialization == initialization
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(again.get_parameter(name), parameter, rtol=0, atol=0)
    # A new head goes with the loaded layers, whose weights stay.
    classifier = StackRNNForTokenClassification.from_pretrained(tmp_path, num_labels=4)
    loaded = classifier.model.cell.controls.projection.weight
    torch.testing.assert_close(loaded, model.model.cell.controls.projection.weight, rtol=0, atol=0)
    assert classifier.score.weight.abs().sum() > 0


def test_xavier_draws_weights_of_moves_as_the_controller():
    model = StackRNNForCausalLM(tiny_config(memory="nondeterministic", initialization="xavier"))
    for parameter in model.model.cell.controls.projection.parameters():
        assert 0.09 < parameter.abs().max() <= 0.1


@pytest.mark.parametrize("initialization", ["torch", "xavier"])
def test_the_forget_gates_begin_open(initialization, tmp_path):
    models = []
    for bias in (0.0, 1.0):
        torch.manual_seed(0)
        config = tiny_config(num_layers=2, initialization=initialization, forget_bias=bias)
        models.append(StackRNNForCausalLM(config))
    size = models[0].config.hidden_size
    for (name, plain), raised in zip(models[0].state_dict().items(), models[1].state_dict().values(), strict=True):
        difference = torch.zeros_like(plain)
        if "bias_ih" in name:
            difference[size : 2 * size] = 1
        torch.testing.assert_close(raised, plain + difference)
    models[1].save_pretrained(tmp_path)
    loaded = StackRNNForCausalLM.from_pretrained(tmp_path)
    for name, parameter in models[1].state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], parameter, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("fields", "inputs"),
    [
        ({"controller": "rnn_relu"}, {("weight_ih_l0", "weight_reading"): 50 + 60, ("weight_hh_l0",): 30}),
        ({"controller": "gru"}, {("weight_ih_l0", "weight_reading"): 50 + 60, ("weight_hh_l0",): 30}),
        ({"controller": "lstm"}, {("weight_ih_l0", "weight_reading", "weight_hh_l0"): 50 + 60 + 30}),
        (
            {"controller": "rnn", "reading_entry": "hidden_state"},
            {("weight_ih_l0",): 50, ("weight_hh_l0",): 30, ("weight_reading",): 60},
        ),
    ],
)
def test_truncated_normal_weights_have_the_deviation_of_their_layers_inputs(fields, inputs):
    """That of a normal distribution cut at two deviations is 0.8796 of its own (from its definition)."""
    torch.manual_seed(0)
    settings = {**WIDE, "initialization": "truncated_normal", "vocab_size": 50, "num_labels": 40, "hidden_size": 30}
    model = StackRNNForTokenClassification(StackRNNConfig(**settings, **fields))
    controller = model.model.cell.controller
    for names, number in inputs.items():
        weights = [getattr(controller, name) for name in names]
        assert deviation(*weights) == pytest.approx(0.8796 * number**-0.5, rel=0.06), names
        assert bound(*weights) <= 2 * number**-0.5
    for layer in (model.score, model.model.cell.controls.projection):
        assert deviation(layer.weight) == pytest.approx(0.8796 * 30**-0.5, rel=0.06)
    assert not any(bias.any() for bias in (controller.bias_ih_l0, controller.bias_hh_l0, model.score.bias))


@pytest.mark.parametrize("heads", [1, 2])
def test_the_bottom_of_a_deque_has_its_own_start(heads):
    layer = MemoryLayer(
        6, "deque", memory_size=4, num_heads=heads, push_control="sigmoid", pop_control="sigmoid",
        push_strength_init=0.5, pop_strength_init=0.25, bottom_strength_init=0.05,
    )  # fmt: skip
    _, _, actions = layer(torch.zeros(1, 1, 6), output_actions=True)
    for name, start in {"push": 0.5, "pop": 0.25}.items():
        assert actions[f"{name}_strength_top"].flatten().tolist() == pytest.approx([start] * heads)
        assert actions[f"{name}_strength_bottom"].flatten().tolist() == pytest.approx([0.05] * heads)


def test_the_bottoms_start_must_be_in_the_range_of_both_controls():
    settings = {"memory": "deque", "push_control": "sigmoid", "pop_control": "sigmoid"}
    with pytest.raises(ValueError, match="bottom_strength_init must be above 0 and below 1, the range of push_control"):
        StackRNNConfig(vocab_size=5, bottom_strength_init=1.0, **settings)
    with pytest.raises(ValueError, match="bottom_strength_init=0.1 does not go with memory='stack'"):
        StackRNNConfig(vocab_size=5, bottom_strength_init=0.1, **(settings | {"memory": "stack"}))
