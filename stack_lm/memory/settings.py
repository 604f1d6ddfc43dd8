"""Settings of memories: allowed values, legal combinations, and the memory that they make."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..field_checks import MEMORY_CHECKS, Check, control_checks, one_of
from .base import Memory, memory_class, memory_names
from .fields import check_fields


def check_memory(name: str, value: Any) -> str:
    """Find names of memories that are not registered, at each use: one may be registered from outside the package.

    Raises:
        ValueError: naming those that are.
    """
    return one_of(memory_names())(name, value)


def settings_of(memory: str, given: dict[str, Any], **fields: Any) -> SimpleNamespace:
    """A memory's settings as attributes, for `complete_settings`.

    Args:
        memory: its name.
        given: settings that are not the defaults.
        **fields: other attributes.

    Raises:
        ValueError: for a memory or a setting that does not exist, or a value that it does not allow.
    """
    own = memory_class(check_memory("memory", memory)).settings
    unknown = sorted(given.keys() - own.keys())
    if unknown:
        raise ValueError(f"memory={memory!r} has no setting {unknown[0]!r}; it has {', '.join(own) or 'none'}")
    checked = {name: check(name, given.get(name)) for name, check in MEMORY_CHECKS.items()}
    return SimpleNamespace(memory=memory, **fields, **(given | checked))


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
    memory = make_memory(config)
    for field in memory.actions:
        field.check_settings(config)
    return memory


def make_memory(config: Any) -> Memory[Any, Any]:
    """The memory named by `config.memory`, whose settings are decided.

    Raises:
        ValueError: if the settings do not go together, or if the memory does not declare those of one of its actions.
    """
    memory = memory_class(config.memory).from_config(config)
    check_fields(config.memory, memory.actions, memory.settings)
    return memory


def _own_checks(settings: Any) -> dict[str, Check]:
    """The checks of a memory's own control settings, which have no field of the configuration."""
    checks: dict[str, Check] = {}
    for name in settings.keys() - MEMORY_CHECKS.keys():
        if name.endswith("_control"):
            checks |= control_checks(name.removesuffix("_control"))
    return checks
