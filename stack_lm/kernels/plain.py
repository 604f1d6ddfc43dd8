"""Checks that modules are unmodified: compiled scans read weights directly, and would miss hooks or adapters."""

from __future__ import annotations

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from ..memory.controls import ActionProjection, Controls
from ..memory.emission import OperationChoice
from .protocol import Controlled, System


def forward_override(module: nn.Module) -> str | None:
    """Describe anything that overrides a module's `forward`; None if nothing does.

    Covers hooks (the old weight_norm is one), parametrisations, a forward method set on the instance, and weights that
    are not plain tensors, such as quantised ones.
    """
    own = vars(module)
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return "hooks"
    if "forward" in own:
        return "a forward method of its own"
    if "parametrizations" in own["_modules"]:
        return "parametrizations"
    for parameter in own["_parameters"].values():
        # torch.export puts fake tensors in place of weights while it traces.
        if parameter is not None and type(parameter) not in (nn.Parameter, Tensor, FakeTensor):
            return f"a weight that is a {type(parameter).__name__}"
    return None


def alteration_of(module: nn.Module, name: str, kind: type[nn.Module]) -> str | None:
    """Describe in a few words how a module differs from a plain one of a class; None if it does not."""
    if type(module) is not kind:
        return f"{name} is a {type(module).__name__}, no {kind.__name__}"
    reason = forward_override(module)
    return None if reason is None else f"{name} has {reason}"


def alteration(system: System) -> str | None:
    """Describe in a few words the first modified part of a system; None if there is none."""
    controls, driver, buffer = system.controls, system.driver, system.buffer
    reason = alteration_of(controls, "controls", Controls)
    if isinstance(driver, Controlled):
        reason = reason or alteration_of(driver.module, "controller", type(driver.controller))
        # Given vectors are projected by the module itself.
        if reason is None and controls.projection is not None:
            reason = alteration_of(controls.projection, "controls.projection", ActionProjection)
    for name, choice in controls.choices.items():
        reason = reason or alteration_of(choice, f"controls.choices.{name}", OperationChoice)
    if reason is None and buffer is not None and buffer.projection is not None:
        reason = alteration_of(buffer.projection, "buffer_projection", ActionProjection)
    return reason
