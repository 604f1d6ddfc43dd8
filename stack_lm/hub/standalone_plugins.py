"""A stub for `stack_lm.plugins` in the code saved with a model, whose memory is one of the package's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Registry(dict[str, Any]):
    """Objects by name."""

    def __init__(self, kind: str, group: str) -> None:
        super().__init__()
        self.kind = kind

    @property
    def registered(self) -> dict[str, Any]:
        """All registered objects."""
        return self

    def register(self, name: str, item: Any) -> None:
        """Add an object."""
        self[name] = item

    def find(self, name: str) -> Any:
        """The object of that name.

        Raises:
            ValueError: for an unknown name; the message lists the known ones.
        """
        if name not in tuple(self):  # which also takes values that are not names
            raise ValueError(f"{self.kind} must be one of {', '.join(map(repr, self))}; got {name!r}")
        return self[name]


def used(**names: Iterable[str]) -> dict[str, Any]:
    """An empty mapping: nothing comes from a plug-in."""
    return {}


def remember(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file, unchanged."""
    return dict(content)
