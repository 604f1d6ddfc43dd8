"""Two things that griffe cannot see in the sources: folders that the build maps into the package, and `__init__`s.

mkdocs.yml names this file as an extension of griffe.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[2]


class MappedFolders(griffe.Extension):
    """Adds folders beside a package to it, as the build does.

    Args:
        package: the package.
        folders: their names.
    """

    def __init__(self, package: str, folders: list[str]) -> None:
        self.package, self.folders = package, folders

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Add the folders to the package that was loaded."""
        if pkg.path == self.package:
            for name in self.folders:
                _add_module(pkg, name, ROOT / name, loader)


class Signatures(griffe.Extension):
    """Gives classes the `__init__` that is made of their fields: NamedTuples, and transformers' configurations."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add the signatures to the package that was loaded."""
        for module in _modules(pkg):
            for cls in module.classes.values():
                if isinstance(cls, griffe.Class) and "__init__" not in cls.members and (fields := _fields(cls)):
                    me = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
                    init = griffe.Function("__init__", parameters=griffe.Parameters(me, *fields), parent=cls)
                    cls.set_member("__init__", init)


def _modules(package: griffe.Module) -> Iterator[griffe.Module]:
    """A package and all modules in it."""
    yield package
    for module in package.modules.values():
        if isinstance(module, griffe.Module):
            yield from _modules(module)


def _add_module(parent: griffe.Module, name: str, path: Path, loader: griffe.GriffeLoader) -> None:
    """Add a module, or a package and all that is in it."""
    file = path / "__init__.py" if path.is_dir() else path
    code = file.read_text(encoding="utf-8")
    loader.lines_collection[file] = code.splitlines()
    module = griffe.visit(
        name,
        file,
        code,
        parent=parent,
        extensions=loader.extensions,
        docstring_parser=loader.docstring_parser,
        docstring_options=loader.docstring_options,
        lines_collection=loader.lines_collection,
        modules_collection=loader.modules_collection,
    )
    parent.set_member(name, module)
    if path.is_dir():
        for below in sorted(path.iterdir()):
            if (below / "__init__.py").is_file() or (below.suffix == ".py" and below.stem != "__init__"):
                _add_module(module, below.stem, below, loader)


def _fields(cls: griffe.Class) -> list[griffe.Parameter]:
    """The fields that make a signature, those of the class that it extends first; none for any other class."""
    inherited = [field for base in cls.resolved_bases if isinstance(base, griffe.Class) for field in _fields(base)]
    bases = {str(base) for base in cls.bases}
    if not inherited and not bases & {"NamedTuple", "PreTrainedConfig"}:
        return []
    kinds = griffe.ParameterKind
    return inherited + [
        griffe.Parameter(
            field.name,
            annotation=field.annotation,
            kind=kinds.positional_or_keyword if "NamedTuple" in bases else kinds.keyword_only,
            default="None" if str(field.value).startswith("_") else field.value,  # decided by other fields
        )
        for field in cls.members.values()
        if isinstance(field, griffe.Attribute) and field.annotation and "instance-attribute" in field.labels
    ]
