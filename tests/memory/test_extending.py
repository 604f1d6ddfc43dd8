"""A memory from outside the package, the example of docs/extending.md: it owes and gets what the built-in ones do."""

import importlib.util
from pathlib import Path

import pytest
import test_conformance
import test_model_conformance
import torch
from conftest import CONTROLLERS
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm import MemoryModule, StackRNNConfig
from stack_lm.memory import base as memory_base
from stack_lm.memory import memory_class, memory_names

SOURCE = Path(__file__).with_name("registers.py")
FIELDS = {"memory": "registers", "memory_depth": 4}


@pytest.fixture(scope="module", autouse=True)
def registers():
    """Register it for the tests of this file alone, as a user's program does by importing the file."""
    before = dict(memory_base._REGISTRY)
    spec = importlib.util.spec_from_file_location("registers", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    memory_base._REGISTRY.clear()
    memory_base._REGISTRY.update(before)


def test_it_is_found_by_name():
    assert "registers" in memory_names()
    config = StackRNNConfig(**FIELDS)
    assert (config.memory_size, config.memory_depth, config.operation_control) == (16, 4, "softmax")
    with pytest.raises(ValueError, match="num_stacks=2 does not go with memory='registers'"):
        StackRNNConfig(num_stacks=2, **FIELDS)


def test_it_owes_what_every_memory_owes():
    test_conformance.test_batch_elements_are_independent(FIELDS)
    test_conformance.test_held_sequences_do_not_take_the_step(FIELDS)
    test_conformance.test_gradcheck(FIELDS)
    test_conformance.test_bad_actions_and_states_are_refused(FIELDS)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_models_have_it_with_every_controller(controller, tmp_path):
    fields = {"controller": controller, **FIELDS}
    test_model_conformance.test_saved_and_loaded_it_computes_the_same(fields, tmp_path)
    test_model_conformance.test_generation_carries_the_state(fields)
    test_model_conformance.test_bfloat16_and_autocast(fields)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_hard_choices_make_a_python_list(operations):
    memory, expected = memory_class("registers")(1, 4), [0.0] * 4
    state, one_hot = memory.initial_state(1), torch.eye(4)
    for number, (write, read) in enumerate(operations, start=1):
        expected[write] = float(number)
        actions = memory.action_type(
            torch.tensor([[float(number)]]), one_hot[write].view(1, 1, 4), one_hot[read].view(1, 1, 4)
        )
        state, reading = memory.step(state, actions)
        assert reading.item() == expected[read]
        assert state.values.flatten().tolist() == expected


def test_it_serves_other_networks():
    readings, _, actions = MemoryModule(7, "registers", memory_size=3).scan(torch.randn(2, 5, 7))
    assert readings.shape == (2, 5, 3)
    assert actions.write.shape == (2, 5, 1, 8)


def test_the_document_has_the_file_as_it_is():
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    assert f"```python\n{SOURCE.read_text()}```" in text
