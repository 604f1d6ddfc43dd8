"""Registries, and the plug-ins that add to them: memories, tasks, corpora, conventions and kinds of models.

A plug-in is a module whose import registers something. It is imported when the user names it (`--import`). A plug-in
from an installed distribution's entry point is imported when a registry lacks a requested name, or lists all names.
Nothing else imports one: no saved model or run does.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from .errors import InputError
from .messages import did_you_mean

Item = TypeVar("Item")
_registries: dict[str, Registry[Any]] = {}
# The arguments of `--import`, with full paths, each once and in order.
_imported: dict[str, None] = {}


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
        self._has_all = False
        _registries[kind] = self

    def register(self, name: str, item: Item) -> None:
        """Add an object.

        Args:
            name: the name under which it is found.
            item: the object.

        Raises:
            ValueError: if another object has the name.
        """
        if self.registered.setdefault(name, item) != item:
            raise ValueError(f"the {self.kind} name {name!r} is taken")

    def find(self, name: str) -> Item:
        """The object of that name.

        Raises:
            InputError: if there is none, with the registered names.
        """
        if not isinstance(name, str) or name not in self:
            raise InputError(self._allowed(name))
        return self.registered[name]

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
        end = f"{near} (a {self.kind} of your own needs --import FILE)"
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
    with _import_of(source):
        _import_file(path.resolve())
    _imported[str(path.resolve())] = None


def import_object(path: str, where: str) -> Any:
    """The object at an import path, such as "package.module.Class".

    Args:
        path: the import path.
        where: the key of a configuration that has it, for messages.

    Raises:
        InputError: if there is none.
    """
    module, _, name = path.rpartition(".")
    try:
        with _import_of(path):
            return getattr(importlib.import_module(module), name)
    except InputError as error:
        raise InputError(f"{where}: {error} (--import FILE.py loads a file)") from error


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


@contextmanager
def _import_of(plugin: str) -> Iterator[None]:
    """Explain a failed import of a plug-in in one line."""
    try:
        yield
    except (Exception, SystemExit) as error:  # whatever a module may raise
        reason = next(iter(str(error).splitlines()), "")
        if not isinstance(error, InputError):
            reason = f"{type(error).__name__}: {reason}".removesuffix(": ")
        raise InputError(f"cannot import {plugin}: {reason}") from error


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
