"""Run an action once a module of another package has been imported, without importing it.

transformers has no entry points, but its Auto classes must contain this package's models, whether `import stack_lm`
came before or after. Importing transformers only to register them would make every start seconds slower, even that of a
command that prints its help.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader


def after_import(module: str, action: Callable[[], None]) -> None:
    """Call `action` now if a module is loaded, or else right after it is.

    Args:
        module: its full name. If it is never imported, the action is never called.
        action: what to do; may import the module.
    """
    if module in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watch(module, action))


class _Watch:
    """A finder that finds nothing itself: it sees the search for a module, and runs the action after its loading."""

    def __init__(self, module: str, action: Callable[[], None]) -> None:
        self.module, self.action = module, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        sys.meta_path.remove(self)  # so that the other finders are asked
        spec = None
        try:
            spec = find_spec(fullname)
        finally:
            if spec is None or spec.loader is None:
                sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
        return spec


class _Loader:
    """A stand-in for a loader that runs the module, and then calls the action."""

    def __init__(self, loader: Loader, watch: _Watch) -> None:
        self.loader, self.watch = loader, watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self.loader
        try:
            self.loader.exec_module(module)
        except BaseException:  # the import may be tried again
            sys.meta_path.insert(0, self.watch)
            raise
        self.watch.action()
