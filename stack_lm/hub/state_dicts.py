"""Read the state_dicts that papers released."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from ..core.errors import InputError
from .locating import reason_of


def load_state_dict(path: Path) -> dict[str, Tensor]:
    """Read a state_dict, in float32, without running any code a pickle may carry.

    Raises:
        InputError: if the file is missing, truncated, or holds anything but named tensors.
    """
    if not path.is_file():
        raise InputError(f"no such checkpoint: {path}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds here: of zip files, pickles and sizes
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path} holds a {type(state).__name__}, not a state_dict of named tensors")
    return {str(name): value.float() for name, value in state.items()}


def take(state: dict[str, Tensor], path: Path, *names: str) -> Tensor:
    """The tensor under the first of the names that exists.

    Raises:
        InputError: if the state_dict has none of them.
    """
    for name in names:
        if name in state:
            return state[name]
    raise InputError(f"{path} has no {names[0]}; it has {', '.join(state) or 'nothing'}")


def fill(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load all weights of a model, made from the file at a path.

    Raises:
        InputError: if they do not fit its shapes.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{path} does not fit its own shapes: {str(error).splitlines()[-1].strip()}") from error
