"""The configurations of the trainers, beside what the trainers make of them."""

import pytest

from stack_lm.training.config import DataConfig, RunConfig


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("generated", "generated"),
        ("generated:2000:1", "generated-2000-1"),
        ("texts/my_text.txt", "my_text"),
        ("v1.2.jsonl.gz", "v1.2"),
        ("texts/brown/", "brown"),
        ("texts/**/*.csv", "texts"),
        ("*.txt", "text"),
        ("-", "text"),
        ("nltk:brown", "nltk-brown"),
        ("hub:owner/name:config", "hub-owner-name-config"),
        ("wikipedia:20231101.simple", "wikipedia-20231101.simple"),
    ],
)
def test_a_run_is_named_after_its_text(source, name):
    assert RunConfig(data=DataConfig(source=source)).output_dir == f"runs/{name}"


def test_a_name_that_is_given_stays():
    assert RunConfig(output_dir="runs/mine", data=DataConfig(source="text.txt")).output_dir == "runs/mine"


@pytest.mark.parametrize(
    ("model", "start"),
    [
        ({}, 0.5),
        ({"memory": "stack", "model_type": "stack_rnn", "pop_control": 1.0}, 0.5),
        ({"memory": "queue"}, None),
        ({"push_strength_init": 1.0}, 1.0),
        ({"push_strength_init": None}, None),
        ({"pop_control": "expected_value"}, None),
    ],
)
def test_the_default_network_starts_with_half_an_element_however_it_is_named(model, start):
    assert RunConfig(model=model).model.get("push_strength_init") == start
