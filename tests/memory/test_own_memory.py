"""A memory from outside the package, examples/registers.py: it owes and gets what the built-in ones do."""

import dataclasses
import inspect
from pathlib import Path
from typing import NamedTuple

import pytest
import test_conformance
import torch
from conftest import CONTROLLERS, load_registers, tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedConfig

from stack_lm import (
    BufferedStackRNNConfig,
    DeepStackRNNConfig,
    MemoryLayer,
    StackAttention,
    StackRNN,
    StackRNNCell,
    StackRNNConfig,
    StackRNNForCausalLM,
    StackTransformerConfig,
)
from stack_lm.core.checks import Integer
from stack_lm.memory import (
    NeuralStack,
    Setting,
    memory_class,
    memory_names,
    register_memory,
)
from stack_lm.memory.base import MEMORIES, TAKEN
from stack_lm.memory.settings import layer_settings
from stack_lm.models.configuration_deep import LayerConfig
from stack_lm.testing import MODEL_CHECKS, check_memory

SOURCE = Path(__file__).parents[2] / "examples" / "registers.py"
FIELDS = {"memory": "registers", "memory_depth": 4}


@pytest.fixture(scope="module", autouse=True)
def registers():
    """Register it for the tests of this file alone, as a user's program does by importing the file."""
    before = dict(MEMORIES.registered)
    yield load_registers()
    MEMORIES.registered = before


def test_it_is_found_by_name():
    assert "registers" in memory_names()
    config = StackRNNConfig(**FIELDS)
    assert (config.memory_size, config.memory_depth, config.operation_control) == (16, 4, "softmax")
    with pytest.raises(ValueError, match="num_stacks=2 does not go with memory='registers'"):
        StackRNNConfig(num_stacks=2, **FIELDS)


def test_it_keeps_the_rules():
    check_memory(**FIELDS)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_models_have_it_with_every_controller(controller):
    for check in MODEL_CHECKS:
        check(StackRNNForCausalLM(tiny_config(controller=controller, **FIELDS)))


def test_its_actions_and_states_are_checked():
    test_conformance.test_bad_actions_and_states_are_refused(FIELDS)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_hard_choices_make_a_python_list(operations):
    memory, expected = memory_class("registers")(1, 4), [0.0] * 4
    state, one_hot = memory.initial_state(1), torch.eye(4)
    for number, (write, read) in enumerate(operations, start=1):
        expected[write] = float(number)
        actions = memory.action_type(
            torch.tensor([[float(number)]]),
            torch.zeros(1),
            one_hot[write].view(1, 1, 4),
            one_hot[read].view(1, 1, 4),
        )
        state, reading = memory.step(state, actions)
        assert reading.item() == expected[read]
        assert state.values.flatten().tolist() == expected


def test_it_serves_other_networks():
    module = MemoryLayer(7, "registers", memory_size=3, decay_control="expected_value", max_decay=2)
    readings, _, actions = module(torch.randn(2, 5, 7), output_actions=True)
    assert readings.shape == (2, 5, 3)
    assert actions.write.shape == (2, 5, 1, 8)
    assert actions.decay_distribution.shape == (2, 5, 3)
    with pytest.raises(ValueError, match="max_decay must be an integer of at least 1; got 0"):
        MemoryLayer(7, "registers", max_decay=0)


# --- a strength of its own


@pytest.mark.parametrize("control", ["sigmoid", "expected_value", 0.5])
def test_a_strength_of_its_own_is_reported(control):
    cell = StackRNNCell(tiny_config(decay_control=control, **FIELDS))
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]]).bool()
    actions = cell.scan(torch.randn(2, 3, 5), mask=mask, output_actions=True).actions
    strength = actions.decay_strength
    assert strength.shape == (2, 3)
    assert strength[1, 0] == 0
    if control == "expected_value":
        torch.testing.assert_close(actions.decay_distribution @ torch.arange(4.0), strength)
    else:
        assert "decay_distribution" not in actions
        assert control == "sigmoid" or (strength[mask] == 0.5).all()


def test_settings_of_its_own_are_saved(tmp_path):
    config = tiny_config(decay_control="expected_value", max_decay=5, decay_strength_init=2.5, **FIELDS)
    model = StackRNNForCausalLM(config)
    start = 3  # of the decay's logits, behind those of the value
    assert model.model.cell.controls.projection.bias[start : start + 6].abs().max() < 1e-9  # half of the range
    model.save_pretrained(tmp_path)
    loaded = StackRNNForCausalLM.from_pretrained(tmp_path)
    assert (loaded.config.max_decay, loaded.config.decay_strength_init) == (5, 2.5)
    ids = torch.randint(1, 23, (2, 4))
    assert torch.equal(loaded(ids).logits, model(ids).logits)


def test_a_new_setting_declares_its_values():
    @register_memory("leaky")
    class Leaky(NeuralStack):
        settings = NeuralStack.settings | {"cells": Setting(104, Integer(1, 10_000)), "memory_size": 4, "note": "x"}

    config = tiny_config(memory="leaky", memory_size=None)
    assert (config.cells, config.memory_size, config.note) == (104, 4, "x")
    for make in (lambda: tiny_config(memory="leaky", cells=0), lambda: MemoryLayer(7, "leaky", cells=0)):
        with pytest.raises(ValueError, match="^cells must be an integer of at least 1; got 0"):
            make()
    with pytest.raises(ValueError, match="memory_size must be an integer of at least 1; got 0"):  # as of other memories
        MemoryLayer(7, "leaky", memory_size=0)
    with pytest.raises(ValueError, match="StackRNNConfig has no field 'cells'"):
        tiny_config(cells=3)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"action_type": None}, "memory='partial', .*Partial, lacks action_type"),
        ({"reading_size": None}, "memory='partial', .*Partial, lacks reading_size"),
        (
            {"action_type": NamedTuple("Two", [("push_value", int), ("push_strength", int)])},
            "the fields of its action_type are its actions, push_value, .*; got push_value, push_strength",
        ),
    ],
)
@pytest.mark.usefixtures("registries")
def test_a_memory_lacks_a_part(own, message):
    @register_memory("partial")
    class Partial(NeuralStack):
        """Lacks a part, or has another."""

        def __getattribute__(self, name):
            if name not in own:
                return super().__getattribute__(name)
            if own[name] is None:
                raise AttributeError(name)
            return own[name]

    with pytest.raises(ValueError, match=message):
        StackRNNConfig(memory="partial")


def test_a_setting_with_the_name_of_another_field_is_refused():
    """Else the models of all other memories would take the field for a setting that they lack."""
    for name in ("hidden_size", "dropout"):
        clash = type("Clash", (NeuralStack,), {"settings": NeuralStack.settings | {name: 5}})
        with pytest.raises(TypeError, match=f"the memory 'clash', Clash, has a setting '{name}', a name that"):
            register_memory("clash")(clash)
    assert "clash" not in memory_names()


def test_all_other_fields_are_known_as_taken():
    names = {"size"}  # of StackAttention
    for config in (StackRNNConfig, StackTransformerConfig, DeepStackRNNConfig, BufferedStackRNNConfig):
        classes = config.__mro__[: config.__mro__.index(PreTrainedConfig)]
        names.update(*(vars(each).get("__annotations__", ()) for each in classes))
    names |= {field.name for field in dataclasses.fields(LayerConfig)}
    for module in (StackRNN, MemoryLayer, StackAttention):
        names |= {name for name in inspect.signature(module).parameters if name != "settings"}
    names |= vars(layer_settings("none", {}, controller="lstm", input_size=1, hidden_size=1)).keys()
    memories_settings = {name for memory in memory_names() for name in memory_class(memory).settings}
    assert names - memories_settings - {"register_models"} <= TAKEN
    assert not TAKEN & memories_settings
