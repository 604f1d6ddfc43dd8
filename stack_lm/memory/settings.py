"""Settings of memories: allowed values, legal combinations, and the memory that they make."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from ..checks import Check, Integer, NotNegative, OneOf, check_of, undecided
from .base import Memory, memory_class, memory_names

# The limits are far beyond any use: more cannot be made, only waited for.
Size = Annotated[int, Integer(1, 2**20)]  # of vectors and memories
Parts = Annotated[int, Integer(1, 1_000)]  # side by side, or layers
Elements = Annotated[int, Integer(1, 10_000)]  # of a memory, in one operation
StrengthControl = Literal["sigmoid", "expected_value"] | NotNegative
# One may be registered at any time, from outside the package too.
MemoryName = Annotated[str, OneOf(memory_names)]


class Setting(NamedTuple):
    """A setting that a memory declares; where it is None in a configuration, it has its default.

    Attributes:
        default: its value where none is given.
        kind: the values that it allows, in the vocabulary of `stack_lm.checks`: a type, or a check such as
            `Integer(1, 100)`.
    """

    default: Any
    kind: Any


def control_settings(
    control: str, default: str | float, *, maximum: int = 3, strength_init: float | None = None
) -> dict[str, Setting]:
    """The settings of a strength's control, for a memory to declare among its `settings`.

    Args:
        control: its name, as in `ActionField.control`; "push", "pop", "read", or one of the memory's own.
        default: of `{control}_control`: "sigmoid", "expected_value", or a number: a strength that is fixed.
        maximum: of `max_{control}`, the largest value of the expected-value support.
        strength_init: of `{control}_strength_init`, the expected strength at the start.
    """
    return {
        f"{control}_control": Setting(default, StrengthControl),
        f"max_{control}": Setting(maximum, Elements),
        f"{control}_strength_init": Setting(strength_init, float | None),
    }


def setting_names() -> dict[str, None]:
    """The names of the settings of all memories, in order."""
    return dict.fromkeys(name for memory in memory_names() for name in memory_class(memory).settings)


def setting_check(memory: str, name: str) -> Check | None:
    """The check of a setting, None being left open: as the memory declares it, or else another one that has it."""
    for each in (memory, *memory_names()):
        declared = memory_class(each).settings.get(name)
        if isinstance(declared, Setting):
            return undecided(check_of(declared.kind))
    return None


def complete_settings(config: Any) -> Memory[Any, Any]:
    """Decide the settings of `config.memory` that are None, refuse what does not go together, and make the memory.

    Args:
        config: `memory`, `bias` and the settings of the built-in memories as attributes, and what else that memory
            declares.

    Raises:
        ValueError: with the setting, or the pair that does not go together, and why.
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
                + ", ".join(settings)
            )
    if config.operation_control == "softmax" and config.temperature not in (None, 1.0):
        raise ValueError(
            f"temperature={config.temperature} does not go with operation_control='softmax', which has none; "
            "'softmax_temperature' and 'gumbel_softmax' have one"
        )
    if config.evaluation_noise and config.operation_control != "gumbel_softmax":
        raise ValueError(
            f"evaluation_noise=True needs operation_control='gumbel_softmax'; got {config.operation_control!r}"
        )
    memory = make_memory(config)
    for control in dict.fromkeys(field.control for field in memory.actions if field.kind == "strength"):
        check_strength_init(config, control)
    return memory


def check_strength_init(config: Any, control: str) -> None:
    """Refuse an initial strength that a control cannot have: it has no bias, or never emits as little or as much.

    Raises:
        ValueError: with the two settings.
    """
    name, setting = f"{control}_strength_init", getattr(config, f"{control}_control")
    value = getattr(config, name)
    if value is not None and not isinstance(setting, str):
        raise ValueError(f"{name}={value} does not go with {control}_control={setting}: a fixed strength has no start")
    if value is not None and not config.bias:
        raise ValueError(f"{name}={value} needs bias=True; got bias={config.bias}")
    maximum = getattr(config, f"max_{control}") if setting == "expected_value" else 1
    if value is not None and not 0 < value < maximum:
        limit = f"max_{control}={maximum}" if setting == "expected_value" else "1"
        raise ValueError(
            f"{name} must be above 0 and below {limit}, the range of {control}_control={setting!r}; got {value}"
        )


def make_memory(config: Any) -> Memory[Any, Any]:
    """The memory named by `config.memory`, whose settings are decided.

    Raises:
        ValueError: if what the configuration asks for does not go together, or the memory has a strength whose control
            is not among its settings.
    """
    memory = memory_class(config.memory).from_config(config)
    for field in memory.actions:
        if field.kind != "strength":
            continue
        if not (field.control and field.distribution):
            raise ValueError(
                f"memory={config.memory!r} has a strength {field.name!r} that does not name its control and "
                "distribution, as ActionField.strength(...) does"
            )
        missing = sorted(control_settings(field.control, 0.0).keys() - memory.settings.keys())
        if missing:
            raise ValueError(
                f"memory={config.memory!r} has a strength {field.name!r} with control={field.control!r}, but no "
                f"setting {missing[0]!r}: its settings must have those of control_settings({field.control!r}, ...)"
            )
    return memory
