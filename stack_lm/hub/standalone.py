"""Stubs for modules that are left out of the code saved with a model (see `stack_lm.hub.code`).

That code runs where this package is not installed, so it has only the reference scan.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

BACKENDS = ("auto", "reference", "numba", "triton", "parallel")
BackendChoice = tuple[str, str]
# For `stack_lm.models.loss`: no type of numbers has a compiled softmax.
DTYPES: tuple[Any, ...] = ()
CompiledSoftmax = TritonSoftmax = None


def check_name(name: str) -> str:
    """Validate a backend name.

    Raises:
        ValueError: for an unknown name; the message lists the known ones.
    """
    if name not in BACKENDS:
        raise ValueError(f"scan_backend must be one of {', '.join(BACKENDS)}; got {name!r}")
    return name


def choose(system: Any, request: Any) -> tuple[str, str]:
    """The reference, which defines the scan.

    Raises:
        ValueError: if a compiled scan was named.
    """
    named = request.backend or os.environ.get("STACK_LM_SCAN_BACKEND", "auto")
    if check_name(named) in ("auto", "reference"):
        return "reference", "the compiled scans need the package stack-lm"
    raise ValueError(f"scan_backend={named!r} needs the package stack-lm, which is not installed")


def describe(layer: Any, config: Any, *names: str) -> None:
    """None: a layer cannot be rebuilt, and its scan is not one operator for torch.compile."""


def register_layer(cls: Any) -> Any:
    """Class decorator without an effect."""
    return cls


def operator_obstacle(layer: Any) -> str:
    """The reason why a layer cannot be an operator."""
    return "the operator needs the package stack-lm"


def run_compiled(*arguments: Any) -> NoReturn:
    """Never called, since `choose` returns the reference."""
    raise NotImplementedError


run_as_operator = run_compiled
