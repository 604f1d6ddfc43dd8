"""StackRNNConfig: what it refuses, and how it says so."""

import json

import pytest
from conftest import tiny_config
from transformers import AutoConfig

from stack_lm import StackRNNConfig, StackRNNForCausalLM

REFUSED = [
    ("memory", "stak", r"memory must be one of .*'none', 'stack'.*; got 'stak'"),
    (
        "push_control",
        "hard",
        r"push_control must be one of 'sigmoid', 'expected_value' or a finite number of at least 0",
    ),
    ("max_pop", 0, r"max_pop must be an integer of at least 1; got 0"),
    ("push_value_activation", "relu", r"push_value_activation must be one of 'tanh', 'sigmoid', .*; got 'relu'"),
    ("pop_strength_init", "low", r"pop_strength_init must be a finite number or None; got 'low'"),
    ("embedding_dropout", 1.0, r"embedding_dropout must be a finite number of at least 0 and below 1; got 1.0"),
    ("eos_token_id", [2, "x"], r"eos_token_id\[1\] must be an integer of at least 0; got 'x'"),
]


@pytest.mark.parametrize(("field", "value", "message"), REFUSED)
def test_bad_values_are_refused_at_once_and_on_assignment(field, value, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**{field: value})
    config = tiny_config()
    with pytest.raises(ValueError, match=message):
        setattr(config, field, value)


def test_unknown_fields_are_refused():
    with pytest.raises(ValueError, match=r"StackRNNConfig has no field 'hiden_size'; did you mean 'hidden_size'\?$"):
        StackRNNConfig(hiden_size=3)
    with pytest.raises(ValueError, match="StackRNNConfig has no field 'zzz'; its fields are bias, bos_token_id"):
        StackRNNConfig(zzz=3)


PAIRS = [
    ({"tie_word_embeddings": True}, "tie_word_embeddings needs embedding_size to be .*; got 5 and 7"),
    ({"input_encoding": "one_hot"}, "embedding_size must be 23 with input_encoding='one_hot'.*; got 5"),
    ({"input_encoding": "one_hot", "embedding_size": None, "tie_word_embeddings": True}, "needs input embeddings"),
    (
        {"controller": "gru", "forget_bias": 1.0},
        "forget_bias needs controller='lstm' and bias=True; got 'gru' and True",
    ),
    ({"controller": "linear", "learn_initial_state": True}, "learn_initial_state needs a recurrent controller"),
    (
        {"memory": "queue", "reading_exit": "output"},
        "reading_exit='output' needs a memory with an exit, .*; got 'queue'",
    ),
    ({"controller": "direct", "hidden_size": 7}, "hidden_size must be 8 with controller='direct'; got 7"),
    ({"pop_control": 1.0, "pop_strength_init": 0.5}, "pop_strength_init=0.5 does not go with pop_control=1.0"),
    ({"push_strength_init": 3.0}, "push_strength_init must be above 0 and below max_push=3, the range of .*; got 3.0"),
    ({"memory": "queue", "num_stacks": 2}, "num_stacks=2 does not go with memory='queue', which has no such"),
]


@pytest.mark.parametrize(("fields", "message"), PAIRS)
def test_pairs_that_do_not_go_together_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**fields)


def test_pairs_are_refused_when_a_model_is_made_of_a_changed_configuration():
    config = tiny_config()
    config.memory = "superposition"
    with pytest.raises(ValueError, match="max_pop=3 does not go with memory='superposition', which has no such"):
        StackRNNForCausalLM(config)


def test_the_memory_decides_what_is_left_open():
    config = StackRNNConfig()
    assert (config.memory_size, config.push_control, config.pop_control) == (16, "expected_value", 1.0)
    assert StackRNNConfig(memory="none").push_control is None
    assert StackRNNConfig(memory="none", push_control="sigmoid").push_control == "sigmoid"  # shared with another model


def test_a_configuration_saved_before_memories_declared_their_settings_still_loads(tmp_path):
    config = StackRNNConfig(memory="none")
    config.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    earlier = {
        "memory_size": 16,
        "push_control": "expected_value",
        "pop_control": 1.0,
        "read_control": "expected_value",
    }
    earlier |= {"max_push": 3, "max_pop": 3, "max_read": 3, "push_value_activation": "tanh", "pop_strength_init": None}
    path.write_text(json.dumps(fields | earlier))
    assert AutoConfig.from_pretrained(tmp_path).push_control == "expected_value"
    path.write_text(json.dumps(fields | earlier | {"memory": "stack"}))
    assert AutoConfig.from_pretrained(tmp_path).memory_size == 16


def test_a_configuration_saved_before_a_field_existed_still_loads(tmp_path):
    config = tiny_config(memory="superposition")
    config.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    for name in ("input_encoding", "output_size", "prediction_threshold", "input_skip_connections", "reading_entry"):
        del fields[name]
    path.write_text(json.dumps(fields))
    assert AutoConfig.from_pretrained(tmp_path).to_dict() | {"_name_or_path": ""} == config.to_dict()


def test_round_trip(tmp_path):
    config = tiny_config(push_control=1, pop_control="expected_value", max_pop=6, eos_token_id=[1, 2])
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is StackRNNConfig
    assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()
    assert loaded.push_control == 1.0
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["model_type"] == "stack_rnn"
    assert not any("backend" in key for key in saved)


def test_transformers_names():
    config = tiny_config(num_layers=3)
    assert config.num_hidden_layers == 3
    assert StackRNNConfig(num_hidden_layers=2).num_layers == 2
