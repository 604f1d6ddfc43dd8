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
