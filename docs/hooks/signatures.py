"""An extension of griffe: the `__init__` made of a class's fields, and an entry for each of several names."""

import re
from collections.abc import Iterator
from typing import Any

import griffe

# An entry of a docstring that describes several names: `low, high: the ends of the interval`.
SEVERAL = re.compile(r"^    (\w+(?:, \w+)+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class Signatures(griffe.Extension):
    """Gives classes the `__init__` of their fields (NamedTuples, configurations), and each described name its entry."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add the signatures to the package that was loaded."""
        for module in _modules(pkg):
            for cls in module.classes.values():
                if isinstance(cls, griffe.Class) and "__init__" not in cls.members and (fields := _fields(cls)):
                    me = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
                    init = griffe.Function("__init__", parameters=griffe.Parameters(me, *fields), parent=cls)
                    cls.set_member("__init__", init)
            for described in _described(module):
                if described.docstring:
                    described.docstring.value = SEVERAL.sub(_one_by_one, described.docstring.value)


def _modules(package: griffe.Module) -> Iterator[griffe.Module]:
    """A package and all modules in it."""
    yield package
    for module in package.modules.values():
        if isinstance(module, griffe.Module):
            yield from _modules(module)


def _described(parent: griffe.Module | griffe.Class) -> Iterator[griffe.Class | griffe.Function]:
    """The classes and functions of a module, and their methods."""
    for child in [*parent.classes.values(), *parent.functions.values()]:
        if isinstance(child, griffe.Class):
            yield from _described(child)
        if isinstance(child, (griffe.Class, griffe.Function)):
            yield child


def _one_by_one(entry: re.Match[str]) -> str:
    """An entry for each name."""
    return "\n".join(f"    {name}: {entry[2]}" for name in entry[1].split(", "))


def _has_fields(cls: griffe.Class) -> bool:
    """True if a class, or one that it extends, is a named tuple or a configuration."""
    direct = {str(base) for base in cls.bases} & {"NamedTuple", "PreTrainedConfig"}
    return bool(direct) or any(_has_fields(base) for base in cls.resolved_bases if isinstance(base, griffe.Class))


def _fields(cls: griffe.Class) -> list[griffe.Parameter]:
    """The fields that make a signature, those of the class that it extends first; none for any other class."""
    inherited = [field for base in cls.resolved_bases if isinstance(base, griffe.Class) for field in _fields(base)]
    if not _has_fields(cls):
        return []
    bases, kinds = {str(base) for base in cls.bases}, griffe.ParameterKind
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
