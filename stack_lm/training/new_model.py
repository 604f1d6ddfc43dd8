"""New models: of a configuration that is checked, and of a size that the machine can hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel

from ..checks import build
from ..errors import InputError
from ..messages import shortened

Model = TypeVar("Model", bound=PreTrainedModel)
# Weights, gradients and the two averages of Adam, in float32.
_BYTES = 16


def make_config(kind: type[PreTrainedModel], fields: Mapping[str, Any]) -> Any:
    """The configuration of a class of models, of any kind.

    Args:
        kind: the class.
        fields: the section `model` of a training configuration, and what comes from the data.

    Raises:
        InputError: for a key or value that the configuration refuses.
    """
    config_class: Any = kind.config_class
    try:
        return build(config_class, {name: value for name, value in fields.items() if name != "model_type"})
    except InputError as error:
        raise InputError(f"model: {error}") from error


def new_model(kind: type[Model], fields: Mapping[str, Any]) -> Model:
    """A model with random weights.

    Args:
        kind: its class.
        fields: of its configuration.

    Raises:
        InputError: for a key or value that the configuration or the class refuses, for fields of another kind of model,
            and if training it would take more than this machine's memory.
    """
    config = make_config(kind, fields)
    kinds = config.architectures or [kind.__name__]
    if kinds != [kind.__name__]:
        raise InputError(f"model.architectures must be [{kind.__name__}], which is trained here; got {kinds}")
    try:
        with torch.device("meta"):  # takes no memory
            parameters = sum(parameter.numel() for parameter in kind(config).parameters())
    except ValueError as error:
        raise InputError(f"model: {error}") from error
    except (RuntimeError, OverflowError, TypeError) as error:
        raise InputError(f"model: too large to be made ({shortened(str(error).splitlines()[0], 200)})") from error
    needed, there = _BYTES * parameters, _memory()
    if there is not None and needed > there:
        raise InputError(
            f"model: its {parameters:,} parameters take {needed / 2**30:,.0f} GiB with their gradients and averages; "
            f"this machine has {there / 2**30:,.0f} GiB"
        )
    return kind(config)


def _memory() -> int | None:
    """This machine's memory in bytes, if the system says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
