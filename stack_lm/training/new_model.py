"""New models: of a configuration that is checked, and of a size that the machine can hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

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


def inherit_fields(config: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a run inherits from the model it begins with.

    Args:
        config: the model's configuration.
        fields: the section `model` of the run. If it names another kind of model, nothing is inherited.
    """
    own = config.to_dict()
    if fields.get("model_type", own["model_type"]) != own["model_type"]:
        return {}
    bases = type(config).__mro__
    classes = bases[: bases.index(PreTrainedConfig)]  # transformers' own fields are not those of a network
    names = {"architectures", "model_type"}.union(*(vars(base).get("__annotations__", ()) for base in classes))
    return {name: value for name, value in own.items() if name in names}


def take_weights(model: PreTrainedModel, weights: Mapping[str, Tensor], source: str | Path) -> list[str]:
    """Give a model the weights of another, by name.

    Args:
        model: takes them.
        weights: of the other model; those of names that it does not have are left out.
        source: the other model, for messages.

    Returns:
        The names of its own weights that it keeps, since the other model does not have them.

    Raises:
        InputError: for weights of another shape, or if it has none of them.
    """
    own = model.state_dict()
    for name, tensor in own.items():
        if name in weights and weights[name].shape != tensor.shape:
            raise InputError(
                f"{source} has another shape of model: {name} is {list(tensor.shape)} here, there "
                f"{list(weights[name].shape)}"
            )
    taken = {name: weights[name] for name in own if name in weights}
    if not taken:
        raise InputError(f"{source} has another kind of model: none of its weights is in {type(model).__name__}")
    model.load_state_dict(taken, strict=False)
    return [name for name in own if name not in taken]


def _memory() -> int | None:
    """This machine's memory in bytes, if the system says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
