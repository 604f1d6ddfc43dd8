"""Several models of one configuration in one scan: all arrays have a first dimension for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload


def of_model(group: Any, model: int) -> Any:
    """One model's part of a named tuple of arrays, whose other fields all models share."""
    return type(group)(*(part[model] if isinstance(part, np.ndarray) else part for part in group))


@overload(of_model, inline="always", strict=False)
def _of_model(group: Any, model: int) -> Callable[..., Any]:
    # Written out, because Numba builds no tuple of different types in a loop.
    fields = (
        f"group.{name}[model]" if isinstance(kind, types.Array) else f"group.{name}"
        for name, kind in zip(group.fields, group.types, strict=True)
    )
    names: dict[str, Any] = {"make": group.instance_class}
    exec(f"def take(group, model):\n    return make({', '.join(fields)})", names)
    taken: Callable[..., Any] = names["take"]
    return taken
