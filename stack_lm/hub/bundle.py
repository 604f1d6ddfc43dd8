"""Bundle modules of this package into one file that does not import them.

Imports between the modules are dropped, and a name that two modules define is renamed in one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]


class _Module:
    """The source of a module to be bundled."""

    def __init__(self, name: str, replaced: Mapping[str, str]) -> None:
        path = PACKAGE / Path(*name.split("."))
        self.name, self.is_package, self.replaced = name, path.is_dir(), replaced
        self.source = (path / "__init__.py" if self.is_package else path.with_suffix(".py")).read_text(encoding="utf-8")
        self.tree = ast.parse(self.source)
        # Local names to where they come from: a module and a name in it, or None for the module itself.
        self.imported: dict[str, tuple[str, str | None]] = {}
        self.absolute: list[ast.Import | ast.ImportFrom] = []
        self.dropped: list[ast.stmt] = []
        self.defined: set[str] = set()
        for node in self.tree.body:
            self._read(node)
        for inner in ast.walk(self.tree):  # inside functions too
            if isinstance(inner, ast.ImportFrom) and inner.level and not self._is_dropped(inner):
                self._import(inner)

    def _read(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            self.dropped.append(node)
        elif isinstance(node, ast.ImportFrom) and node.level:
            self._import(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.absolute.append(node)
            self.dropped.append(node)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            self.defined.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if names == {"__all__"}:
                self.dropped.append(node)
            self.defined |= names - {"__all__"}
        elif isinstance(node, ast.Expr):  # the docstring, and registrations with the Auto classes
            if not isinstance(node.value, ast.Constant | ast.Call):
                raise ValueError(f"{self.name}, line {node.lineno}: cannot be bundled")
            self.dropped.append(node)
        else:
            raise ValueError(f"{self.name}, line {node.lineno}: cannot be bundled")

    def _is_dropped(self, node: ast.stmt) -> bool:
        return any(other.lineno <= node.lineno <= (other.end_lineno or 0) for other in self.dropped)

    def _import(self, node: ast.ImportFrom) -> None:
        self.dropped.append(node)
        parts = self.name.split(".") if self.name else []
        base = parts[: len(parts) - node.level + self.is_package]
        for alias in node.names:
            inner = ".".join([*base, *(node.module or "").split("."), alias.name]).strip(".")
            is_module = (PACKAGE / Path(*inner.split("."))).with_suffix(".py").is_file()
            module, _, name = (inner, "", None) if is_module else inner.rpartition(".")
            self.imported[alias.asname or alias.name] = (self.replaced.get(module, module), name)

    @property
    def title(self) -> str:
        return (ast.get_docstring(self.tree) or "").split("\n")[0]


class Bundle:
    """The bundled modules, and the current name of each of their definitions.

    Args:
        replaced: the replacements of some modules, by their names inside the package.
    """

    def __init__(self, replaced: Mapping[str, str]) -> None:
        self.replaced = replaced
        self.modules: dict[str, _Module] = {}
        self.file_of: dict[str, str] = {}
        self.names: dict[tuple[str, str], str] = {}
        self.used: dict[str, set[str]] = {}

    def add(self, file: str, roots: Sequence[str]) -> tuple[str, list[ast.Import | ast.ImportFrom]]:
        """The text of modules and of their dependencies that are not in a file yet; and its imports."""
        order: list[str] = []
        for root in roots:
            self._visit(root, file, order)
        taken = set(self.names.values())
        for name in order:
            for definition in sorted(self.modules[name].defined):
                new = definition
                if new in taken:
                    new = f"{definition}_of_{name.replace('.', '_')}"
                taken.add(new)
                self.names[name, definition] = new
        texts = [self._text(self.modules[name], file) for name in order if self.modules[name].defined]
        return "".join(texts), [node for name in order for node in self.modules[name].absolute]

    def shared(self, file: str) -> list[str]:
        """Names that a file uses and another one defines."""
        return sorted(self.used.get(file, ()))

    def _visit(self, name: str, file: str, order: list[str]) -> None:
        if name in self.modules:
            return
        module = self.modules[name] = _Module(name, self.replaced)
        self.file_of[name] = file
        for needed, _ in module.imported.values():
            self._visit(needed, file, order)
        order.append(name)

    def _origin(self, module: str, name: str) -> tuple[str, str]:
        """The module that defines a name that another one exports."""
        while name not in self.modules[module].defined:
            module, of_module = self.modules[module].imported[name]
            if of_module is None:
                raise ValueError(f"{module} is a module, used as a value")
            name = of_module
        return module, name

    def _text(self, module: _Module, file: str) -> str:
        lines = module.source.splitlines(keepends=True)
        edits = [
            (_offset(lines, node.lineno, 0), _offset(lines, node.end_lineno or 0, None), "") for node in module.dropped
        ]
        edits += self._renamings(module, lines, file)
        text, end = [], 0
        for start, stop, new in sorted(edits):
            if start < end:
                continue  # inside what is dropped
            text.append(module.source[end:start] + new)
            end = stop
        body = ("".join(text) + module.source[end:]).strip("\n")
        return f"\n\n# --- stack_lm.{module.name}: {module.title}\n\n{body}\n"

    def _renamings(self, module: _Module, lines: list[str], file: str) -> Iterator[tuple[int, int, str]]:
        """The places where a name of the module, or one it imports, has been renamed."""

        def of(origin: tuple[str, str]) -> str:
            new = self.names[origin]
            if self.file_of[origin[0]] != file:
                self.used.setdefault(file, set()).add(new)
            return new

        def span(node: Any) -> tuple[int, int]:
            return _offset(lines, node.lineno, node.col_offset), _offset(lines, node.end_lineno, node.end_col_offset)

        inside = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.arg) and self.names.get((module.name, node.arg), node.arg) != node.arg:
                raise ValueError(
                    f"{module.name}, line {node.lineno}: {node.arg} must be renamed, but is a parameter too"
                )
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                source, name = module.imported.get(node.value.id, ("", ""))
                if source and name is None:
                    yield *span(node), of(self._origin(source, node.attr))
                    continue
            if isinstance(node, ast.Name):
                if node.id in module.imported:
                    source, name = module.imported[node.id]
                    if name is None:
                        if id(node) not in inside:
                            raise ValueError(
                                f"{module.name}, line {node.lineno}: the module {node.id} is used as a value"
                            )
                        continue
                    yield *span(node), of(self._origin(source, name))
                elif node.id in module.defined:
                    yield *span(node), self.names[module.name, node.id]
            elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node in module.tree.body:
                start = _offset(lines, node.lineno, lines[node.lineno - 1].index(f" {node.name}") + 1)
                yield start, start + len(node.name), self.names[module.name, node.name]


def _offset(lines: list[str], line: int, column: int | None) -> int:
    """The offset in a text of a line (from 1) and a column (in bytes; None: after the line)."""
    before = sum(map(len, lines[: line - 1]))
    if column is None:
        return before + len(lines[line - 1])
    return before + len(lines[line - 1].encode()[:column].decode())


def merged_imports(nodes: Sequence[ast.Import | ast.ImportFrom], body: str) -> str:
    """The imports of other packages that a text uses, without duplicates."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    plain: set[str] = set()
    from_module: dict[str, set[str]] = {}
    for node in nodes:
        local = {alias: (alias.asname or alias.name).partition(".")[0] for alias in node.names}
        names = {ast.unparse(alias) for alias, name in local.items() if name in used}
        if isinstance(node, ast.Import):
            plain |= names
        elif node.module != "__future__":
            from_module.setdefault(str(node.module), set()).update(names)
    lines = [f"import {name}" for name in sorted(plain)]
    lines += [
        f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(from_module.items()) if names
    ]
    return "\n".join(lines) + "\n"
