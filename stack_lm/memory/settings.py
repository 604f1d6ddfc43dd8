"""Settings of memories: allowed values, legal combinations, and the memory built from them."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Annotated, Any

from ..core.checks import Check, check_of, undecided
from ..core.errors import InputError
from ..core.messages import did_you_mean
from .base import MEMORIES, Memory, memory_class
from .fields import Setting, check_fields


class RegisteredMemory(Check):
    """The names of the memories registered so far, including those from outside the package."""

    def __call__(self, key: str, value: Any) -> Any:
        """Look a memory up.

        Raises:
            InputError: naming the registered ones, or the plug-in that provided this one.
        """
        memory_class(value)
        return value


MemoryName = Annotated[str, RegisteredMemory()]


def setting_names() -> dict[str, None]:
    """The names of the settings of all memories registered so far, in order; no plug-in is imported."""
    return dict.fromkeys(name for memory in MEMORIES.registered.values() for name in memory.settings)


def setting_check(memory: str, name: str) -> Check | None:
    """The check of a setting, which may be None: that of the memory's declaration, or else of another memory's."""
    for each in (memory_class(memory), *MEMORIES.registered.values()):
        declared = each.settings.get(name)
        if isinstance(declared, Setting):
            return undecided(check_of(declared.kind))
    return None


def unknown_setting(memory: Any, name: str, known: Collection[str]) -> ValueError:
    """The error for a setting that no memory in use has."""
    said = f"memory={memory!r} has no setting {name!r}; it has {', '.join(known) or 'none'}"
    return ValueError(f"{said}{did_you_mean(name, known)}")


def settings_of(memory: str, given: dict[str, Any], **fields: Any) -> SimpleNamespace:
    """A memory's settings as attributes, for `complete_settings`.

    Args:
        memory: its name.
        given: settings that are not the defaults.
        **fields: other attributes.

    Raises:
        ValueError: for a memory or a setting that does not exist.
    """
    own = memory_class(check_of(MemoryName)("memory", memory)).settings
    unknown = sorted(given.keys() - own.keys())
    if unknown:
        raise unknown_setting(memory, unknown[0], own)
    return SimpleNamespace(memory=memory, **fields, **(dict.fromkeys(setting_names()) | given))


# The defaults of layers whose vectors are given, which replace a memory's own. With the papers' order, such a layer
# first pushes at least what it reads: a reading is the step's own value, and older elements have no gradient.
_OF_LAYERS: dict[str, dict[str, Any]] = {name: {"read_order": "before_push"} for name in ("stack", "queue", "deque")}

# The defaults of stack attention (DuSell & Chiang 2024), which replace a memory's own; a size of None is that of x_t.
_OF_STACK_ATTENTION: dict[str, dict[str, Any]] = {
    "superposition": {"memory_size": None, "no_op": True, "push_value_activation": "identity"},
    "nondeterministic": {"memory_size": 5, "push_value_activation": "exp", "bottom_vector": "learned"},
    "stack": {"memory_size": None, "pop_control": "expected_value"},
    "deltanet": {"memory_size": None},
    "deltastack": {"memory_size": None},
}


def layer_defaults(memory: Any) -> dict[str, Any]:
    """The defaults of a memory in a layer whose vectors are given, where they differ from its own."""
    return _OF_LAYERS.get(memory, {}) if isinstance(memory, str) else {}


def stack_attention_settings(memory: str, given: dict[str, Any], size: int) -> dict[str, Any]:
    """The complete settings of a memory in stack attention.

    Args:
        memory: its name.
        given: settings that are not the defaults.
        size: the size of the vectors that drive it.

    Raises:
        ValueError: for "none", and as `settings_of` and `complete_settings`.
    """
    if memory == "none":
        raise InputError("memory='none' reads nothing, so it cannot take the place of attention")
    defaults = layer_defaults(memory) | _OF_STACK_ATTENTION.get(memory, {})
    own = {name: size if value is None else value for name, value in defaults.items()}
    if given.get("memory_size") == 0:  # only symbols
        own.pop("bottom_vector", None)
    config = settings_of(memory, own | given, hidden_size=size, bias=False)
    complete_settings(config)
    return {name: getattr(config, name) for name in memory_class(memory).settings}


# A controller of one layer, as `StackRNNConfig` describes it.
_ONE_LAYER: dict[str, Any] = {
    "num_layers": 1,
    "hidden_dropout": 0.0,
    "bias": True,
    "learn_initial_state": False,
    "reading_entry": "input",
    "input_skip_connections": False,
    "first_layer": 0,
}


def layer_settings(memory: str, given: dict[str, Any], **fields: Any) -> SimpleNamespace:
    """Complete the settings of a `StackRNNCell` with a controller of one layer.

    Args:
        memory: its name.
        given: settings of the memory that are not the defaults.
        **fields: `controller`, its name; `embedding_size`, the size of x_t; `hidden_size`, the size of the output;
            perhaps `bias`, whether to have biases; `first_layer`, the number of the layer in the names of parameters.

    Raises:
        ValueError: as `settings_of` and `complete_settings`.
    """
    config = settings_of(memory, given, **_ONE_LAYER | fields)
    complete_settings(config)
    return config


def complete_settings(config: Any) -> Memory[Any, Any]:
    """Fill in the settings of `config.memory` that are None, check their combination, and build the memory.

    Args:
        config: `memory`, `bias` and the settings of the built-in memories as attributes, and any other setting that the
            memory declares.

    Raises:
        ValueError: with the setting, or the incompatible pair, and the reason.
    """
    settings = memory_class(config.memory).settings
    for name in setting_names():
        value = getattr(config, name, None)
        if name in settings:
            declared, check = settings[name], setting_check(config.memory, name)
            if value is None:
                value = declared.default if isinstance(declared, Setting) else declared
            setattr(config, name, check(name, value) if check else value)
        elif value is not None and config.memory != "none":
            raise ValueError(
                f"{name}={value!r} does not go with memory={config.memory!r}, which has no such setting; it has "
                f"{', '.join(settings)}. {name}=null (in Python None) removes it"
            )
    memory = make_memory(config)
    for field in (*memory.actions, *memory.learned):
        field.check_settings(config)
    return memory


def make_memory(config: Any) -> Memory[Any, Any]:
    """The memory named by `config.memory`, whose settings are complete.

    Raises:
        ValueError: if the settings are incompatible, or if the memory does not declare one of its parts, or the
            settings of one of its actions.
    """
    memory = memory_class(config.memory).from_config(config)
    undeclared = [part for part in ("actions", "action_type", "reading_size") if not hasattr(memory, part)]
    if undeclared:
        raise ValueError(f"memory={config.memory!r}, {type(memory).__qualname__}, lacks {', '.join(undeclared)}")
    check_fields(config.memory, (*memory.actions, *memory.learned), memory.settings)
    names = tuple(field.name for field in memory.actions)
    if memory.action_type._fields != names:
        raise ValueError(
            f"memory={config.memory!r}: the fields of its action_type are its actions, {', '.join(names)}; got "
            f"{', '.join(memory.action_type._fields)}"
        )
    return memory
