"""Several models of one configuration in one scan: all arrays have a first dimension for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload


def model_slice(group: Any, model: int) -> Any:
    """One model's part of a (nested) named tuple of arrays; other fields are shared by all models.

    NOTE: in the function that this is inlined into, Numba treats direct writes to the parts as dead; writes in callees
    are kept.
    """
    if isinstance(group, tuple):
        return type(group)(*(model_slice(part, model) for part in group))
    return group[model] if isinstance(group, np.ndarray) else group


@overload(model_slice, inline="always", strict=False)
def _model_slice(group: Any, model: int) -> Callable[..., Any]:
    names: dict[str, Any] = {}

    # Written out, because Numba builds no tuple of different types in a loop.
    def part(kind: Any, path: str) -> str:
        if not hasattr(kind, "instance_class"):  # no named tuple
            return f"{path}[model]" if isinstance(kind, types.Array) else path
        made = kind.instance_class
        names[made.__name__] = made
        parts = (part(field, f"{path}.{name}") for name, field in zip(kind.fields, kind.types, strict=True))
        return f"{made.__name__}({', '.join(parts)})"

    exec(f"def take(group, model):\n    return {part(group, 'group')}", names)
    taken: Callable[..., Any] = names["take"]
    return taken
