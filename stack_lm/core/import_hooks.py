"""Run an action once a module of another package has been imported, without importing it.

transformers has no entry points, but its Auto classes must contain this package's models, whether `import stack_lm`
came before or after. Importing transformers only to register them would make every start seconds slower, even that of a
command that prints its help.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_waiting: dict[str, list[Callable[[], None]]] = {}


def after_import(module: str, action: Callable[[], None]) -> None:
    """Call `action` now if a module is loaded, or else right after it is.

    Args:
        module: its full name. If it is never imported, the action is never called.
        action: what to do; may import the module.
    """
    if module in sys.modules:
        action()
        return
    _waiting.setdefault(module, []).append(action)
    if _watch not in sys.meta_path:  # it stays, because a search under way would skip a finder if another one went
        sys.meta_path.insert(0, _watch)


class _Watch:
    """A finder that asks the others, and adds the actions to the loading of what they find."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)  # if it fails, the actions wait for the next import
                for action in _waiting.pop(fullname, ()):
                    action()

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


_watch = _Watch()
