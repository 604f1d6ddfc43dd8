"""What each field of `StackRNNConfig` allows: a function from its name and a value to the value, or a ValueError."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Check = Callable[[str, Any], Any]

CONTROLLERS = ("linear", "sigmoid", "direct", "rnn", "rnn_sigmoid", "gru", "lstm")
STATELESS_CONTROLLERS = ("linear", "sigmoid", "direct")
STRENGTH_CONTROLS = ("sigmoid", "expected_value")
CHOICE_CONTROLS = ("softmax", "softmax_temperature", "gumbel_softmax")
OVERFLOWS = ("raise", "truncate")
READING_ENTRIES = ("input", "hidden_state")
READING_EXITS = ("none", "output")
INPUT_ENCODINGS = ("embedding", "one_hot")
VALUE_ACTIVATIONS = ("tanh", "sigmoid")
INITIALIZATIONS = ("torch", "normal_rows", "xavier")


def _refuse(name: str, value: object, allowed: str) -> None:
    raise ValueError(f"{name} must be {allowed}; got {value!r}")


# The most that each kind of integer may be, far beyond any use: more cannot be made, only waited for.
_MOST_LAYERS = 1_000  # also parts side by side
_MOST_ELEMENTS = 10_000  # of a memory, in one operation; and steps
_LARGEST = 2**20  # sizes of vectors and memories
_MOST_TOKENS = 2**27


def _integer(minimum: int, maximum: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            _refuse(name, value, f"an integer of at least {minimum}")
        if value > maximum:
            _refuse(name, value, f"an integer of at most {maximum:,}")
        return int(value)

    return check


def _is_finite(value: Any) -> bool:
    """Whether a value is a number that a float can have."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def one_of(options: tuple[str, ...]) -> Callable[[str, Any], str]:
    """Allow some strings."""

    def check(name: str, value: Any) -> str:
        if value not in options:
            _refuse(name, value, "one of " + ", ".join(map(repr, options)))
        return str(value)

    return check


def _strength_control(name: str, value: Any) -> str | float:
    if _is_finite(value):
        if value >= 0:
            return float(value)
    elif value in STRENGTH_CONTROLS:
        return str(value)
    _refuse(name, value, ", ".join(map(repr, STRENGTH_CONTROLS)) + " or a fixed strength (a number of at least 0)")
    raise AssertionError


def _probability(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        _refuse(name, value, "a probability in [0, 1)")
    return float(value)


def _number(above: float | None = None) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if not _is_finite(value) or (above is not None and value <= above):
            _refuse(name, value, "a finite number" + (f" above {above:g}" if above is not None else ""))
        return float(value)

    return check


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse(name, value, "True or False")
    return bool(value)


def _token_id(name: str, value: Any) -> Any:
    values = value if name == "eos_token_id" and isinstance(value, list) else [value]
    for item in values:
        if item is not None and (isinstance(item, bool) or not isinstance(item, int) or item < 0):
            _refuse(name, value, "a token id or None")
    return value


def _optional(check: Check, mention: str = "") -> Check:
    def check_optional(name: str, value: Any) -> Any:
        if value is None:
            return None
        try:
            return check(name, value)
        except ValueError as error:
            raise ValueError(str(error).replace("; got", mention + "; got", 1)) from None

    return check_optional


def control_checks(control: str) -> dict[str, Check]:
    """Checks of a strength's control; "push" has the settings `push_control`, `max_push` and `push_strength_init`.

    None leaves each open: for the memory, or to the default initialisation.
    """
    return {
        f"{control}_control": _optional(_strength_control),
        f"max_{control}": _optional(_integer(1, _MOST_ELEMENTS)),
        f"{control}_strength_init": _optional(_number(), " or None"),
    }


# Settings of memories: each memory declares those that it uses in `Memory.settings`, with its defaults.
MEMORY_CHECKS: dict[str, Check] = {
    "memory_size": _optional(_integer(1, _LARGEST)),
    "memory_depth": _optional(_integer(1, _LARGEST), " or None"),
    "memory_overflow": _optional(one_of(OVERFLOWS)),
    "num_stacks": _optional(_integer(1, _MOST_LAYERS)),
    "read_depth": _optional(_integer(1, _MOST_ELEMENTS)),
    "empty_value": _optional(_number()),
    "no_op": _optional(_boolean),
    **control_checks("push"),
    **control_checks("pop"),
    **control_checks("read"),
    "operation_control": _optional(one_of(CHOICE_CONTROLS)),
    "temperature": _optional(_number(above=0)),
    "evaluation_noise": _optional(_boolean),
    "evaluation_argmax": _optional(_boolean),
    "push_value_activation": _optional(one_of(VALUE_ACTIVATIONS)),
}
# All fields but `memory`, which `stack_lm.memory` checks.
FIELD_CHECKS: dict[str, Check] = {
    "vocab_size": _integer(1, _MOST_TOKENS),
    "input_encoding": one_of(INPUT_ENCODINGS),
    "embedding_size": _optional(_integer(1, _LARGEST)),
    "hidden_size": _optional(_integer(1, _LARGEST)),
    "output_size": _optional(_integer(1, _LARGEST), " or None"),
    "num_layers": _integer(1, _MOST_LAYERS),
    "controller": one_of(CONTROLLERS),
    "learn_initial_state": _boolean,
    "bias": _boolean,
    "input_skip_connections": _boolean,
    "reading_entry": one_of(READING_ENTRIES),
    "reading_exit": one_of(READING_EXITS),
    "initialization": one_of(INITIALIZATIONS),
    **MEMORY_CHECKS,
    "embedding_dropout": _probability,
    "hidden_dropout": _probability,
    "output_dropout": _probability,
    "prediction_threshold": _probability,
    "tie_word_embeddings": _boolean,
    "use_cache": _boolean,
    "pad_token_id": _token_id,
    "bos_token_id": _token_id,
    "eos_token_id": _token_id,
}
# Additional fields of `BufferedStackRNNConfig`.
BUFFER_CHECKS: dict[str, Check] = {
    "target_vocab_size": _optional(_integer(1, _MOST_TOKENS), " or None"),
    "input_pop_control": _strength_control,
    "output_push_control": _strength_control,
    "max_input_pop": _integer(1, _MOST_ELEMENTS),
    "max_output_push": _integer(1, _MOST_ELEMENTS),
    "input_pop_strength_init": _optional(_number(), " or None"),
    "output_push_strength_init": _optional(_number(), " or None"),
    "steps_per_token": _integer(0, _MOST_ELEMENTS),
    "extra_steps": _integer(0, _MOST_ELEMENTS),
    "output_delay": _integer(0, _MOST_ELEMENTS),
}
