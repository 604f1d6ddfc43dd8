"""Settings of memories: allowed values, legal combinations, and the memory that they make."""

from __future__ import annotations

from typing import Any

from ..field_checks import MEMORY_CHECKS, Check, control_checks
from .base import Memory, memory_class


def control_settings(
    control: str, default: str | float, *, maximum: int = 3, strength_init: float | None = None
) -> dict[str, Any]:
    """The settings of a strength's control, for a memory to declare among its `settings`.

    Args:
        control: its name, as in `ActionField.control`; "push", "pop", "read", or one of the memory's own.
        default: of `{control}_control`: "sigmoid", "expected_value", or a number: a strength that is fixed.
        maximum: of `max_{control}`, the largest value of the expected-value support.
        strength_init: of `{control}_strength_init`, the expected strength at the start.
    """
    return {f"{control}_control": default, f"max_{control}": maximum, f"{control}_strength_init": strength_init}


def check_memory(name: str, value: Any) -> str:
    """Find names of memories that are not registered, at each use: one may be registered from outside the package.

    Raises:
        ValueError: naming those that are.
    """
    memory_class(value)
    return str(value)


def complete_settings(config: Any) -> Memory[Any, Any]:
    """Decide the settings of `config.memory` that are None, refuse what does not go together, and make the memory.

    Args:
        config: `memory`, `bias` and all of `MEMORY_CHECKS` as attributes, and what else that memory declares.

    Raises:
        ValueError: with the setting, or the pair that does not go together, and why.
    """
    settings = memory_class(config.memory).settings
    own = _own_checks(settings)
    for name in MEMORY_CHECKS | dict(settings):
        value = getattr(config, name, None)
        if name in settings:
            value = settings[name] if value is None else value
            setattr(config, name, own[name](name, value) if name in own else value)
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


def _own_checks(settings: Any) -> dict[str, Check]:
    """The checks of a memory's own control settings, which have no field of the configuration."""
    checks: dict[str, Check] = {}
    for name in settings.keys() - MEMORY_CHECKS.keys():
        if name.endswith("_control"):
            checks |= control_checks(name.removesuffix("_control"))
    return checks
