"""StackRNNConfig: every field of the model, flat and validated."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

CONTROLLERS = ("linear", "rnn", "gru", "lstm")
CONTROLS = ("sigmoid", "expected_value")
VALUE_ACTIVATIONS = ("tanh", "sigmoid")


def _refuse(name: str, value: object, allowed: str) -> None:
    raise ValueError(f"{name} must be {allowed}; got {value!r}")


def _integer(minimum: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            _refuse(name, value, f"an integer of at least {minimum}")
        return int(value)

    return check


def _choice(options: tuple[str, ...]) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in options:
            _refuse(name, value, "one of " + ", ".join(map(repr, options)))
        return str(value)

    return check


def _memory(name: str, value: Any) -> str:
    # Looked up at each use, because a memory may be registered from outside the package.
    return _choice(import_module("stack_lm.memory").memory_names())(name, value)


def _control(name: str, value: Any) -> str | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if math.isfinite(value) and value >= 0:
            return float(value)
    elif value in CONTROLS:
        return str(value)
    _refuse(name, value, f"'{CONTROLS[0]}', '{CONTROLS[1]}' or a fixed strength (a number of at least 0)")
    raise AssertionError


def _probability(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        _refuse(name, value, "a probability in [0, 1)")
    return float(value)


def _optional_number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        _refuse(name, value, "a finite number or None")
    return float(value)


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


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "vocab_size": _integer(1),
    "embedding_size": _integer(1),
    "hidden_size": _integer(1),
    "num_layers": _integer(1),
    "controller": _choice(CONTROLLERS),
    "memory": _memory,
    "memory_size": _integer(1),
    "push_control": _control,
    "pop_control": _control,
    "read_control": _control,
    "max_push": _integer(1),
    "max_pop": _integer(1),
    "max_read": _integer(1),
    "push_value_activation": _choice(VALUE_ACTIVATIONS),
    "pop_bias_init": _optional_number,
    "learn_initial_state": _boolean,
    "embedding_dropout": _probability,
    "hidden_dropout": _probability,
    "output_dropout": _probability,
    "tie_word_embeddings": _boolean,
    "use_cache": _boolean,
    "pad_token_id": _token_id,
    "bos_token_id": _token_id,
    "eos_token_id": _token_id,
}

# Keyword arguments that are no field of ours but that transformers itself hands to a config.
_TRANSFORMERS_KEYS = frozenset(
    {
        "model_type",
        "num_labels",
        "name_or_path",
        "torch_dtype",
        "output_attentions",
        "attn_implementation",
        "experts_implementation",
        "per_layer_config",
        "auto_map",
        "quantization_config",
    }
) | frozenset(GenerationConfig._get_default_generation_params())


class StackRNNConfig(PreTrainedConfig):
    """Configuration of a recurrent network with a differentiable memory.

    The defaults are the language model of Merrill et al. (2019) with the pop strength fixed to 1 ("u = 1").

    Args:
        vocab_size: number of token ids.
        embedding_size: size of a token embedding.
        hidden_size: size of the controller's hidden state, H.
        num_layers: layers of the controller. The reading enters the first, the actions leave the last.
        controller: "linear", "rnn" (Elman, tanh), "gru" or "lstm".
        memory: "none" (a plain recurrent network) or the name of a registered memory, such as "stack".
        memory_size: size of one memory element, D.
        push_control, pop_control, read_control: how a strength is emitted: "sigmoid" (in (0, 1)), "expected_value"
            (the mean of a softmax over {0, ..., max}), or a number: fixed to that strength.
        max_push, max_pop, max_read: largest value of the expected-value support.
            NOTE: Merrill et al. print k = 4; their released code has 4 logits, the support {0, 1, 2, 3}, as here.
        push_value_activation: "tanh" or "sigmoid", applied to the pushed element.
        pop_bias_init: initial bias b of the pop control: logit i of the expected value starts at i * b, which for
            "sigmoid" is the bias b itself. None leaves the projection's default. Grefenstette et al. (2015,
            supplement) and Hao et al. (2018) use -1.
        learn_initial_state: learn the controller's first state; otherwise it is zero.
        embedding_dropout: on token embeddings.
        hidden_dropout: between the controller's layers.
        output_dropout: on the last hidden state, before the head.
        tie_word_embeddings: share input and output embeddings; needs embedding_size == hidden_size.
        use_cache: return the recurrent state in `past_key_values`.
        pad_token_id, bos_token_id, eos_token_id: special tokens.

    Raises:
        ValueError: for a value outside what its field allows, or an unknown keyword argument.

    Example:
        >>> config = StackRNNConfig(vocab_size=1000, push_control=1.0, pop_control="expected_value")  # "d = 1"
    """

    model_type = "stack_rnn"
    attribute_map = {"num_hidden_layers": "num_layers"}  # noqa: RUF012 - the base class's own idiom
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

    vocab_size: int = 10_000
    embedding_size: int = 50
    hidden_size: int = 100
    num_layers: int = 1
    controller: str = "lstm"
    memory: str = "stack"
    memory_size: int = 16
    push_control: str | float = "expected_value"
    pop_control: str | float = 1.0
    read_control: str | float = "expected_value"
    max_push: int = 3
    max_pop: int = 3
    max_read: int = 3
    push_value_activation: str = "tanh"
    pop_bias_init: float | None = None
    learn_initial_state: bool = False
    embedding_dropout: float = 0.0
    hidden_dropout: float = 0.0
    output_dropout: float = 0.0
    tie_word_embeddings: bool = False
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        known = _TRANSFORMERS_KEYS.union(self.attribute_map)
        unknown = sorted(key for key in kwargs if key not in known and not key.startswith("_"))
        if unknown:
            raise ValueError(f"StackRNNConfig has no field {unknown[0]!r}; its fields are {', '.join(sorted(_CHECKS))}")
        super().__post_init__(**kwargs)
        if self.tie_word_embeddings and self.embedding_size != self.hidden_size:
            raise ValueError(
                "tie_word_embeddings needs embedding_size == hidden_size; "
                f"got {self.embedding_size} and {self.hidden_size}"
            )
        if self.learn_initial_state and self.controller == "linear":
            raise ValueError("learn_initial_state needs a recurrent controller; got controller='linear'")
        # The Auto classes find a model by the class of its config, so registering the models when the first config
        # is made is early enough. It keeps `import stack_lm` from loading transformers' modelling code (1.2 s).
        import_module("stack_lm.modeling_stack_rnn")

    def __setattr__(self, key: str, value: Any) -> None:
        if key in _CHECKS:
            value = _CHECKS[key](key, value)
        super().__setattr__(key, value)
