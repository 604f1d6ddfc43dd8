"""The code that is saved with a model, so that it loads where this package is not installed.

With `trust_remote_code`, transformers' `from_pretrained` runs Python files saved beside the weights, all in one folder.
For this package's kinds of models they are the modules that the model needs, named by their whole path
(`stack_lm.memory.base` becomes `stack_lm_memory_base.py`), with relative imports rewritten. `standalone` replaces the
modules that need compiled code. Two more files define the classes that config.json names: they derive from the
package's own classes, with their compiled scans, if it is installed, and else from the saved ones.

The files that define a kind registered from outside are copied unchanged, with their relative imports. If they import
`stack_lm` they need the package; transformers reports it if it is missing.
"""

from __future__ import annotations

import ast
import inspect
import shutil
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_relative_import_files

from ..core.quiet import without_progress_bars
from ..kernels import dispatch
from ..memory import memory_class
from ..models.configuration_transformer import is_own
from ..models.kinds import ModelKind, kind_of
from ..models.modeling_base import MemoryPreTrainedModel
from ..nn import operator
from . import standalone

CONFIGURATION, MODELING = "configuration_stack_rnn", "modeling_stack_rnn"
_PACKAGE = __name__.partition(".")[0]
_FOLDER = Path(__file__).parents[__name__.count(".") - 1]
_KERNELS = dispatch.__name__.rpartition(".")[0]
_REPLACED = (dispatch.__name__, operator.__name__, f"{_KERNELS}.cpu.cross_entropy", f"{_KERNELS}.gpu.cross_entropy")


def push_model(
    model: PreTrainedModel,
    repo_id: str,
    *,
    code: bool = True,
    dry_run: str | Path | None = None,
    tags: Sequence[str] = (),
    **commit: Any,
) -> str:
    """Upload a model with its code and a card; an existing card in the repository is kept.

    Args:
        model: a model of a registered kind.
        repo_id: such as "someone/model".
        code: upload the model's code too.
        dry_run: a directory, absent or empty, that gets the files; nothing is uploaded then.
        tags: the tags of the card.
        **commit: `commit_message`, `commit_description`, `private`, `token`, `revision`, `create_pr`, as in
            transformers.

    Returns:
        The address of the commit, or the directory of a dry run.
    """
    from .card import CARD, write_card
    from .publishing import staging, upload

    with staging(dry_run) as staged:
        directory = Path(staged)
        save_model(model, directory, code=code)
        write_card(directory, name=repo_id.rpartition("/")[2], tags=tags)
        if dry_run is not None:
            return str(dry_run)
        return upload(directory, repo_id, keep=(CARD,), **{"commit_message": "Upload model"} | commit)


def save_model(model: PreTrainedModel, directory: Path, *, code: bool | None = None, **options: Any) -> None:
    """Save a model of any class, with its code.

    Args:
        model: a model, of a registered kind if code is requested.
        directory: where to save.
        code: write the code; None writes it if available (see `has_code`).
        **options: the options of transformers' `save_pretrained`.

    Raises:
        ValueError: if code is requested and not available.
    """
    code = has_code(model.config) if code is None else code
    if isinstance(model, MemoryPreTrainedModel):
        options["code"] = code
    elif code:
        add_code(model.config, directory)
    with without_progress_bars():
        model.save_pretrained(directory, **options)


def add_code(config: PreTrainedConfig, directory: Path) -> None:
    """Write the code of a configuration's models to a directory, and name its classes in the configuration.

    Raises:
        ValueError: if there is no code, or the code of its memory is not part of the package.
    """
    kind, reason = kind_of(config), _why_no_code(config)
    if kind is None or reason:
        raise ValueError(f"{reason}; save the model without code")
    config.auto_map = write_code(kind, directory)


def has_code(config: PreTrainedConfig) -> bool:
    """True if the code of everything that a model of this configuration needs can be saved, including its memory."""
    return _why_no_code(config) is None


def write_code(kind: ModelKind, directory: Path) -> dict[str, str]:
    """Write the code of a kind of models to a directory.

    Returns:
        The `auto_map` with which transformers' Auto classes find its classes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if _in_package(kind.config):
        for name, text in model_code(kind).items():
            (directory / name).write_text(text, encoding="utf-8")
    else:
        sources = {str(inspect.getsourcefile(part)) for part in (kind.config, *kind.models)}
        for path in sources.union(*map(get_relative_import_files, sources)):
            shutil.copyfile(path, directory / Path(path).name)
    return auto_map(kind)


def auto_map(kind: ModelKind) -> dict[str, str]:
    """Return the `auto_map` of a kind of model, with which transformers' Auto classes find its code."""

    def place(part: type, file: str) -> str:
        return f"{file if _in_package(part) else part.__module__.rpartition('.')[2]}.{part.__name__}"

    models = {entry.auto: place(entry.model, MODELING) for entry in kind.classes if entry.auto}
    return {"AutoConfig": place(kind.config, CONFIGURATION)} | models


def _in_package(part: type) -> bool:
    return part.__module__.partition(".")[0] == _PACKAGE


def _why_no_code(config: PreTrainedConfig) -> str | None:
    kind = kind_of(config)
    if kind is None:
        return f"a {type(config).__name__} does not belong to a registered kind of model"
    if _in_package(kind.config):
        outside = [f"memory={name!r}" for name in config.memory_names if not _in_package(memory_class(name))]
        own = (layer["module"] for layer in getattr(config, "layers", ()) if is_own(layer))
        outside += [f"the layer {path}" for path in own if not path.startswith("transformers.")]
        return f"{outside[0]} is not part of stack-lm" if outside else None
    for part in (kind.config, *kind.models):
        if part.__module__.partition(".")[0] in ("__main__", _PACKAGE, "transformers"):
            return f"{part.__name__} is defined in {part.__module__}, not in a file of its own"
    return None


@cache
def model_code(kind: ModelKind) -> dict[str, str]:
    """The files of one of this package's kinds of models, by name."""
    files: dict[str, str] = {}
    for part in (kind.config, *kind.models):
        _add_module(part.__module__, files)
    release, config = f"stack-lm {version('stack-lm')} (Apache-2.0)", kind.config.__name__
    files[f"{CONFIGURATION}.py"] = f'"""The configuration of {release}."""\n' + _entry([kind.config], "pass")
    own_config = f"from .{CONFIGURATION} import {config}\n"
    models = _entry(kind.models, f"config_class = {config}")
    files[f"{MODELING}.py"] = f'"""The models of {release}."""\n\n{own_config}{models}'
    return files


def _entry(parts: Sequence[type], body: str) -> str:
    """The source of classes that derive from the package's or the saved ones, and have their names.

    They are not those classes themselves: transformers marks the classes that it loads from a model's folder.
    """
    packaged = "".join(f"    from {_PACKAGE} import {part.__name__} as _{part.__name__}\n" for part in parts)
    saved = "".join(
        f"    from .{_flat(part.__module__)} import {part.__name__} as _{part.__name__}\n" for part in parts
    )
    derived = "".join(f"\n\nclass {part.__name__}(_{part.__name__}):\n    {body}\n" for part in parts)
    return f"\ntry:\n{packaged}except ImportError:\n{saved}{derived}"


def _flat(module: str) -> str:
    """The name of a module in the folder of a model."""
    return module.replace(".", "_")


def _file(module: str) -> Path:
    path = _FOLDER.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _add_module(name: str, files: dict[str, str]) -> str:
    """Add a module, and those of this package that it imports, to the files; return its name there."""
    if name in _REPLACED:
        name = standalone.__name__
    flat, path = _flat(name), _file(name)
    if f"{flat}.py" in files:
        return flat
    source = path.read_text(encoding="utf-8")
    files[f"{flat}.py"] = source  # before those that import it in turn
    lines = source.splitlines(keepends=True)
    nodes = list(ast.walk(ast.parse(source)))
    for_types = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    hidden = {id(inner) for node in for_types for inner in ast.walk(node)}
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level and id(node) not in hidden]
    for node in sorted([*for_types, *imports], key=lambda node: node.lineno, reverse=True):
        text = ""
        if isinstance(node, ast.ImportFrom):
            parents = name.split(".")[: name.count(".") + 1 - node.level + (path.stem == "__init__")]
            base = ".".join([*parents, *filter(None, [node.module])])
            text = "".join(f"{' ' * node.col_offset}{line}\n" for line in _flat_imports(base, node.names, files))
        lines[node.lineno - 1 : node.end_lineno] = [text]
    files[f"{flat}.py"] = "".join(lines)
    return flat


def _flat_imports(base: str, names: Sequence[ast.alias], files: dict[str, str]) -> list[str]:
    """The imports in a model's folder that replace `from base import names`; the modules join the files."""
    lines, rest = [], []
    for alias in names:
        if base not in _REPLACED and _file(f"{base}.{alias.name}").is_file():
            module = _add_module(f"{base}.{alias.name}", files)
            # transformers copies the modules of imports in the first form, and not of those in the second.
            lines += [f"from .{module} import __doc__ as _", f"from . import {module} as {alias.asname or alias.name}"]
        else:
            rest.append(ast.unparse(alias))
    if rest:
        lines.append(f"from .{_add_module(base, files)} import {', '.join(rest)}")
    return lines
