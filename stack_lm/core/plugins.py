"""Registries, and the plug-ins that add to them: memories, tasks, corpora, conventions and kinds of models.

A plug-in is a module whose import registers something. It is imported when the user names it (`--import`). A plug-in
from an installed distribution's entry point is imported when a registry lacks a requested name, or lists all names.
Nothing else imports one: a saved model or run names its plug-ins only for messages.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from .errors import InputError
from .messages import did_you_mean

Item = TypeVar("Item")
_PACKAGE = __name__.partition(".")[0]
_registries: dict[str, Registry[Any]] = {}
# The arguments of `--import`, with full paths, each once and in order; and the plug-ins whose import is under way.
_imported: dict[str, None] = {}
_importing: list[str] = []
# The plug-ins that saved models and runs name, by kind and name: a file's name, or a module.
_noted: dict[tuple[str, str], str] = {}


class Registry(Mapping[str, Item]):
    """Objects of one kind by name: the package's own and those of plug-ins.

    Args:
        kind: the kind of the objects, in messages: "memory".
        group: the group of the entry points of plug-ins that register more.
        listed_by: the command that lists them all, if a message cannot.

    Attributes:
        registered: those registered so far; reading it imports no plug-in.
    """

    def __init__(self, kind: str, group: str, listed_by: str = "") -> None:
        self.kind, self._group, self._listed_by = kind, group, listed_by
        self.registered: dict[str, Item] = {}
        self._origins: dict[str, str] = {}
        self._has_all = False
        _registries[kind] = self

    def register(self, name: str, item: Item, made_of: Any = None) -> None:
        """Add an object.

        Args:
            name: the name under which it is found.
            item: the object.
            made_of: the plug-in's own function or class, if the object itself is neither.

        Raises:
            ValueError: if another object has the name.
        """
        if self.registered.setdefault(name, item) != item:
            by = self._origins.get(name)
            raise ValueError(f"the {self.kind} name {name!r} is taken" + (f" by {by}" if by else ""))
        # A plug-in's import may be the first to import the package's own objects, too.
        if _importing and not getattr(made_of or item, "__module__", "").startswith(f"{_PACKAGE}."):
            self._origins[name] = _importing[-1]

    def find(self, name: str) -> Item:
        """The object of that name.

        Raises:
            InputError: if there is none, with the registered names, or with the plug-in that provided it.
        """
        if not isinstance(name, str):
            raise InputError(self._allowed(name))
        if name not in self:
            raise InputError(self.origin_note(name) or self._allowed(name))
        return self.registered[name]

    def origin(self, name: str) -> str | None:
        """The plug-in that registered a name, in the form of `--import`; None for the package's own objects."""
        return self._origins.get(name)

    def origin_note(self, name: str) -> str:
        """Describe the origin of a missing name, from the saved model or run that uses it; "" if unknown."""
        origin = _noted.get((self.kind, name))
        if origin is None:
            return ""
        return f"the {self.kind} {name!r} is not registered; it came from {origin}: import it (--import {origin})"

    def __getitem__(self, name: str) -> Item:
        if name not in self.registered:
            self._import_entry_points()
        return self.registered[name]

    def __iter__(self) -> Iterator[str]:
        self._import_entry_points()
        return iter(self.registered)

    def __len__(self) -> int:
        self._import_entry_points()
        return len(self.registered)

    def _allowed(self, name: Any) -> str:
        near = did_you_mean(name, self)
        end = near or f" (a {self.kind} of your own needs --import FILE)"
        if not self._listed_by:
            return f"{self.kind} must be one of {', '.join(map(repr, self))}; got {name!r}{end}"
        example = "" if near else f", such as {next(iter(self), None)!r}"
        return f"{self.kind} must be one of the {len(self)} that {self._listed_by} lists{example}; got {name!r}{end}"

    def _import_entry_points(self) -> None:
        """Import the plug-ins of installed distributions, once; one that fails is a warning."""
        if self._has_all:
            return
        self._has_all = True
        from importlib.metadata import entry_points  # takes a while

        for point in entry_points(group=self._group):
            try:
                with _import_of(point.module):
                    point.load()
            except InputError as error:
                distribution = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"
                warnings.warn(f"the plug-in {point.name!r} ({self._group}) of {distribution}: {error}", stacklevel=2)


def import_plugin(source: str) -> None:
    """Import a plug-in that the user names.

    Args:
        source: a Python file (.py), imported under its name without ending, or a module such as "package.module".

    Raises:
        InputError: if there is none, if another module has its name, or if its import fails.
    """
    path = Path(source)
    if path.suffix != ".py":
        with _import_of(source):
            importlib.import_module(source)
        _imported[source] = None
        return
    with _import_of(path.name, shown=source):
        _import_file(path.resolve())
    _imported[str(path.resolve())] = None


class Imports(tuple[str, ...]):
    """The plug-ins that this process has imported; a process that unpickles it imports the same.

    Pass it to a worker before anything that may need a plug-in.
    """

    def __new__(cls) -> Imports:
        return super().__new__(cls, _imported)

    def __reduce__(self) -> tuple[Any, ...]:
        return _import_again, tuple(self)


def _import_again(*sources: str) -> Imports:
    for source in sources:
        import_plugin(source)
    return Imports()


def used(**names: Iterable[str]) -> dict[str, Any]:
    """The plug-ins that registered some names, as a key of a saved model's or run's file.

    Args:
        names: by kind of object.

    Returns:
        {"plugins": {kind: {name: file or module}}}, or an empty mapping if the package itself has all of them.
    """
    notes: dict[str, dict[str, str]] = {}
    for kind, group in names.items():
        for name in group:
            if kind in _registries and (origin := _registries[kind].origin(name)):
                notes.setdefault(kind, {})[name] = origin
    return {"plugins": notes} if notes else {}


def pop_notes(content: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the key that `used` has added to the content of a file; it serves messages, and imports nothing.

    Raises:
        InputError: if it does not have the form of `used`.
    """
    rest = dict(content)
    plugins = rest.pop("plugins", {})
    _noted.update(_origins(plugins))
    return rest


def named_in(content: Mapping[str, Any]) -> list[str]:
    """The plug-ins that a file names under the key that `used` has added, each once.

    Raises:
        InputError: as `pop_notes`.
    """
    return list(dict.fromkeys(_origins(content.get("plugins", {})).values()))


def _origins(plugins: Any) -> dict[tuple[str, str], str]:
    """The plug-ins by kind and name, from the value of `used`."""
    groups = plugins.values() if isinstance(plugins, dict) else [plugins]
    if not all(isinstance(group, dict) and all(isinstance(v, str) for v in group.values()) for group in groups):
        raise InputError(f"plugins must be a mapping of kinds to mappings of names to plug-ins; got {plugins!r:.80}")
    # Anyone may have written the file.
    return {
        (kind, name): re.sub(r"[^\w.-]", "?", origin)[:80]
        for kind, group in plugins.items()
        for name, origin in group.items()
    }


@contextmanager
def _import_of(plugin: str, shown: str = "") -> Iterator[None]:
    """Attribute registrations inside to a plug-in, and explain a failed import in one line."""
    _importing.append(plugin)
    try:
        yield
    except (Exception, SystemExit) as error:  # whatever a module may raise
        reason = next(iter(str(error).splitlines()), "")
        if not isinstance(error, InputError):
            reason = f"{type(error).__name__}: {reason}".removesuffix(": ")
        raise InputError(f"cannot import {shown or plugin}: {reason}") from error
    finally:
        _importing.pop()


def _import_file(path: Path) -> None:
    name = path.stem
    if not path.is_file():
        raise InputError("there is no such file")
    if not name.isidentifier():
        raise InputError(f"{name!r} cannot be the name of a module; rename the file")
    known = importlib.util.find_spec(name)
    if known is not None and known.origin is not None:
        if Path(known.origin).resolve() != path:
            raise InputError(f"{name!r} is the name of another module ({known.origin}); rename the file")
        importlib.import_module(name)
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
