"""Which of the package's modules import which: at the top, inside functions, and by name."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = {"stack_lm": ROOT / "stack_lm", "stack_lm.parsing": ROOT / "parsing", "stack_lm.eval": ROOT / "eval"}
# Functions that take a module's name. What find_spec is given is looked for, which imports the packages around it.
LOADERS = ("import_module", "__import__", "find_spec")
PLUGINS = "stack_lm.core.plugins"  # loads by name, but others' modules alone


class Import(NamedTuple):
    """One module's import of another.

    Attributes:
        importer, imported: whole names of modules.
        kind: "top" (when the importer loads), "deferred" (when one of its functions runs) or "typing" (never).
        by_name: whether a string names it.
    """

    importer: str
    imported: str
    kind: str
    by_name: bool


def modules() -> dict[str, Path]:
    """The package's modules by their name once installed."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [*package.split("."), *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, source: str, known: set[str], is_package: bool = False) -> list[Import]:
    """What a module imports: by statement any module, by name one of those known.

    Args:
        name: of the module.
        source: its code.
        known: names of the package's modules.
        is_package: whether it is the `__init__` of a package.

    Raises:
        ValueError: if it loads a module by a name that cannot be read off the code.
    """
    return list(_Reader(name, ast.parse(source), known, is_package).read())


@functools.cache
def graph() -> tuple[Import, ...]:
    """All imports among the package's modules."""
    known = modules()
    return tuple(
        found
        for name, path in known.items()
        for found in imports(name, path.read_text(), set(known), path.name == "__init__.py")
        if found.imported in known
    )


def at_run_time() -> list[Import]:
    """The imports of `graph` that can happen."""
    return [found for found in graph() if found.kind != "typing"]


def circles(arrows: list[tuple[str, str]]) -> list[list[str]]:
    """The groups of modules that import each other in a loop, each group sorted."""
    following: dict[str, set[str]] = {}
    for start, end in arrows:
        following.setdefault(start, set()).add(end)
    reached: dict[str, set[str]] = {}
    for start in following:
        reached[start] = set()
        waiting = [start]
        while waiting:
            new = following.get(waiting.pop(), set()) - reached[start]
            reached[start] |= new
            waiting += new
    looped = [module for module in reached if module in reached[module]]
    groups = {tuple(sorted(m for m in looped if m in reached[module] and module in reached[m])) for module in looped}
    return [list(group) for group in sorted(groups)]


class _Reader:
    def __init__(self, name: str, tree: ast.Module, known: set[str], is_package: bool) -> None:
        self.name, self.tree, self.known = name, tree, known
        self.package = name if is_package else name.rpartition(".")[0]
        self.loaders = set(LOADERS)
        self.tables: dict[str, list[str]] = {}  # constants of the module: the strings that each may stand for
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("importlib"):
                self.loaders |= {alias.asname for alias in node.names if alias.asname and alias.name in LOADERS}
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.tables |= {target.id: _strings(node.value) for target in targets if isinstance(target, ast.Name)}

    def read(self, node: ast.AST | None = None, kind: str = "top") -> Iterator[Import]:
        node = node or self.tree
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (Import(self.name, imported, kind, False) for imported in self._statement(node))
        elif isinstance(node, ast.Call):
            yield from (Import(self.name, imported, kind, True) for imported in self._call(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and kind == "top":
            kind = "deferred"
        for field, value in ast.iter_fields(node):
            guarded = field == "body" and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.read(child, "typing" if guarded else kind)

    def _statement(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        module = self._absolute("." * node.level + (node.module or ""))
        for alias in node.names:
            inner = f"{module}.{alias.name}"
            yield inner if inner in self.known else module

    def _absolute(self, name: str) -> str:
        """A module's whole name, from one that may begin with dots."""
        level = len(name) - len(name.lstrip("."))
        if not level:
            return name
        parts = self.package.split(".")
        return ".".join([*parts[: len(parts) - level + 1], *filter(None, [name[level:]])])

    def _call(self, node: ast.Call) -> Iterator[str]:
        """The modules that a call loads by name: all that its pattern may stand for."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if called not in self.loaders or not node.args:
            return
        pattern = "|".join(self._patterns(node.args[0]))
        matches = [name for name in self.known if re.fullmatch(pattern, name)]
        if set(matches) == self.known:
            if called != "find_spec" and self.name != PLUGINS:
                raise ValueError(f"{self.name}, line {node.lineno}: cannot see what {ast.unparse(node)} loads")
            return
        yield from matches

    def _patterns(self, node: ast.AST) -> list[str]:
        """Regular expressions of the names that an expression may stand for."""
        if isinstance(node, ast.Constant):
            return [re.escape(self._absolute(str(node.value)))]
        if isinstance(node, ast.JoinedStr):
            found = [""]
            for part in node.values:
                inner = self._part(part.value if isinstance(part, ast.FormattedValue) else part)
                found = [before + after for before in found for after in inner]
            return found
        return self._part(node)

    def _part(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.Constant):
            return [re.escape(str(node.value))]
        if isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Name):
            special = {"__name__": self.name, "__package__": self.package}
            strings = [special[node.id]] if node.id in special else self.tables.get(node.id, [])
            if strings:
                return [re.escape(text) for text in strings]
        return [".*"]


def _strings(value: ast.expr) -> list[str]:
    """The strings that a constant or a table stands for: of a dictionary its values."""
    nodes = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", [value])
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
