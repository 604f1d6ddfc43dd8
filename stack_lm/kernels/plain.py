"""Whether a cell is as it was built: compiled scans read its weights, and would not see what was hung on it since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..controls import ActionProjection, Controls, OperationChoice

if TYPE_CHECKING:
    from ..cell import StackRNNCell

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def alteration(cell: StackRNNCell) -> str | None:
    """What has been hung on a cell or put in the place of one of its modules, in a few words; None if nothing has.

    Hooks, parametrisations (of which the old weight_norm is a hook), adapters and quantised layers.
    """
    controls = cell.controls
    built = [(controls, Controls), *((choice, OperationChoice) for choice in controls.choices.values())]
    if controls.projection is not None:
        built.append((controls.projection, ActionProjection))
    for module, kind in built:
        if type(module) is not kind:
            return f"the cell has a {type(module).__name__} where a {kind.__name__} was"
    for name, module in cell.named_modules():
        if module is cell:
            continue  # nothing calls it
        if "forward" in vars(module):
            return f"{name} has a forward method of its own"
        if any(getattr(module, hooks) for hooks in _HOOKS):
            return f"{name} has hooks"
        if "parametrizations" in module._modules:
            return f"{name} has parametrizations"
        for parameter in module._parameters.values():
            if parameter is not None and type(parameter) not in (nn.Parameter, Tensor):
                return f"a weight of {name} is a {type(parameter).__name__}"
    return None
