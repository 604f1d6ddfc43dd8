"""Checks of configurations, whatever they are of: messages, nested keys, configurations from outside."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from stack_lm import BufferedStackRNNConfig, StackRNNConfig
from stack_lm.core.checks import Count, NotNegative, Probability, build, check_fields, check_of
from stack_lm.core.errors import InputError

WRONG = [
    (int, True, "an integer; got True"),
    (int, 2**53 + 1, "an integer of at most 9,007,199,254,740,992; got 9007199254740993"),
    (Count, 0, "an integer of at least 1; got 0"),
    (float, 10**400, "a finite number; got 1000"),
    (float, "0.5", "a finite number; got '0.5'"),
    (NotNegative, -0.5, "a finite number of at least 0; got -0.5"),
    (Probability, 1, "a finite number of at least 0 and below 1; got 1"),
    (bool, 1, "True or False; got 1"),
    (Literal["a", "b"], "c", "one of 'a', 'b'; got 'c'"),
    (Literal["a"] | Count, 0, "one of 'a' or an integer of at least 1; got 0"),
    (str | None, "None", None),
    (Count | None, "None", "an integer of at least 1 or None (in YAML null); got 'None'"),
    (dict[str, Any], [], "a mapping; got []"),
    (list[Count], {}, "a list; got {}"),
    (range, 3, "of type range; got 3"),
]


@pytest.mark.parametrize(("kind", "value", "message"), WRONG)
def test_messages(kind, value, message):
    if message is None:
        assert check_of(kind)("key", value) == value
        return
    with pytest.raises(InputError) as error:
        check_of(kind)("key", value)
    assert str(error.value).startswith(f"key must be {message}")
    assert "\n" not in str(error.value)


def test_integers_become_floats_where_floats_are_meant():
    assert [type(value) for value in check_of(list[float | None])("key", [1, 2.0, None])] == [float, float, type(None)]
    assert type(check_of(float | str)("key", 1)) is float
    assert type(check_of(int | float)("key", 1)) is int


@dataclass
class Part:
    count: Count = 1


@dataclass
class Whole:
    parts: list[Part] = field(default_factory=list)
    other: Part | None = None


@dataclass
class Above:
    part: Part = field(default_factory=Part)


def test_a_key_of_a_dataclass_below():
    with pytest.raises(InputError, match=r"unknown key 'in\.count'.*; did you mean 'in\.part\.count'"):
        build(Above, {"count": 3}, "in.")


def test_dataclasses_in_lists_and_unions():
    made = build(Whole, {"parts": [{"count": 2}, {}], "other": {"count": 3}})
    assert made == Whole([Part(2), Part(1)], Part(3))
    for values, message in (
        ({"parts": [{}, {"count": 0}]}, r"in\.parts\[1\]\.count must be an integer of at least 1; got 0"),
        ({"parts": [3]}, r"in\.parts\[0\] must be a mapping of keys to values; got 3"),
        ({"other": {"cuont": 3}}, r"unknown key 'in\.other\.cuont'; the keys here are count"),
    ):
        with pytest.raises(InputError, match=message):
            build(Whole, values, "in.")
    with pytest.raises(InputError, match=r"parts\[0\]\.count must be an integer of at least 1; got 0"):
        check_fields(Whole([Part(0)]))


@strict
class Outside(PreTrainedConfig):
    model_type = "outside"
    attribute_map = {"hidden_size": "width"}  # noqa: RUF012

    width: int = 8
    kind: Literal["a", "b"] = "a"

    def validate_width(self):
        if self.width == 13:
            raise ValueError("width=13 brings bad luck")


def test_a_configuration_from_outside():
    assert build(Outside, {"width": 3, "architectures": ["X"]}).width == 3
    assert build(Outside, {"hidden_size": 4}).width == 4
    for values, message in (
        ({"widht": 3}, "unknown key 'model.widht'; the keys here are .*width, kind"),
        ({"hidden_size": True}, "model.hidden_size must be an integer; got True"),
        ({"width": 13}, "model: Class validation error for validator 'validate_width': .*width=13 brings bad luck"),
    ):
        with pytest.raises(InputError, match=message) as error:
            build(Outside, values, "model.")
        assert "\n" not in str(error.value)


def test_configurations_of_this_package():
    assert build(StackRNNConfig, {"memory": "deque", "num_hidden_layers": 2, "num_labels": 4}).num_layers == 2
    for kind, values, message in (
        (
            StackRNNConfig,
            {"hiden_size": 5},
            "model: .* no field 'hiden_size'; .*did you mean 'hidden_size'",
        ),
        (StackRNNConfig, {"memory": "queue", "num_stacks": 2}, "model: num_stacks=2 does not go with memory='queue'"),
        (BufferedStackRNNConfig, {"extra_steps": -1}, "model.extra_steps must be an integer of at least 0; got -1"),
    ):
        with pytest.raises(InputError, match=message):
            build(kind, values, "model.")
