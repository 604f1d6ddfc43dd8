"""The code that is saved with a model, so that it loads where this package is not installed.

With `trust_remote_code`, transformers' `from_pretrained` runs Python files saved beside the weights. For this
package's kinds of models they are bundled from its own modules (see `bundle`), one file for the configurations and one
for the models; `standalone` replaces modules that need the package. If the package is installed, its own classes are
used, with their compiled scans.

The files that define a kind registered from outside are copied unchanged, with their relative imports. If they import
`stack_lm` they need the package; transformers reports it if it is missing.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel
from transformers.dynamic_module_utils import get_relative_import_files

from ..console import without_progress_bars
from ..model_kinds import ModelKind, kind_of
from ..modeling_base import MemoryPreTrainedModel
from ..models import BUFFERED, DEEP, SPAN_PARSER, STACK_RNN, TRANSFORMER
from .bundle import Bundle, merged_imports

CONFIGURATION, MODELING = "configuration_stack_rnn", "modeling_stack_rnn"
_OURS = (STACK_RNN, BUFFERED, DEEP, TRANSFORMER, SPAN_PARSER)
_CONFIGS = tuple(kind.config for kind in _OURS)
_MODELS = tuple(model for kind in _OURS for model in kind.models)
_REPLACED = dict.fromkeys(
    ("kernels.dispatch", "kernels.cpu.cross_entropy", "kernels.gpu.cross_entropy", "layers.operator"), "hub.standalone"
)
_REPLACED["plugins"] = "hub.standalone_plugins"

_HEADER = '''"""{title}

Generated from the package stack-lm {version} (Apache-2.0), which is not needed to run it.
"""

from __future__ import annotations

'''
_FOOTER = """

# Where the package is installed, its classes take over, with their compiled scans.
try:
    import stack_lm
except ImportError:
    pass
else:
"""


def push_model(
    model: PreTrainedModel,
    repo_id: str,
    *,
    code: bool = True,
    dry_run: str | Path | None = None,
    max_shard_size: int | str = "50GB",
    tags: Sequence[str] = (),
    **commit: Any,
) -> str:
    """Upload a model with its code and a card; an existing card in the repository is kept.

    Args:
        model: a model of a registered kind.
        repo_id: such as "someone/model".
        code: upload the model's code too.
        dry_run: a directory, absent or empty, that gets the files; nothing is uploaded then.
        max_shard_size: the maximum size of a file of weights.
        tags: the tags of the card.
        **commit: `commit_message`, `commit_description`, `private`, `token`, `revision`, `create_pr`, as in
            transformers.

    Returns:
        The address of the commit, or the directory of a dry run.
    """
    from .card import CARD, write_card
    from .publishing import staging, upload

    with staging(dry_run) as directory:
        save_model(model, directory, code=code, max_shard_size=max_shard_size)
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
    if kind in _OURS:
        for name, text in model_code().items():
            (directory / name).write_text(text, encoding="utf-8")
    else:
        own = {str(inspect.getsourcefile(part)) for part in (kind.config, *kind.models)}
        for path in own.union(*map(get_relative_import_files, own)):
            shutil.copyfile(path, directory / Path(path).name)
    return auto_map(kind)


def auto_map(kind: ModelKind) -> dict[str, str]:
    """Return the `auto_map` of a kind of model, with which transformers' Auto classes find its code."""
    files = dict.fromkeys(_CONFIGS, CONFIGURATION) | dict.fromkeys(_MODELS, MODELING)

    def place(part: type) -> str:
        return f"{files.get(part) or part.__module__.rpartition('.')[2]}.{part.__name__}"

    return {"AutoConfig": place(kind.config)} | {entry.auto: place(entry.model) for entry in kind.classes if entry.auto}


def _why_no_code(config: PreTrainedConfig) -> str | None:
    kind = kind_of(config)
    if kind is None:
        return f"a {type(config).__name__} does not belong to a registered kind of model"
    if kind in _OURS:
        code = model_code()[f"{CONFIGURATION}.py"]
        outside = [name for name in config.memory_names if f'@register_memory("{name}")\n' not in code]
        return f"memory={outside[0]!r} is not part of stack-lm" if outside else None
    for part in (kind.config, *kind.models):
        if part.__module__.partition(".")[0] in ("__main__", "stack_lm", "transformers"):
            return f"{part.__name__} is defined in {part.__module__}, not in a file of its own"
    return None


@cache
def model_code() -> dict[str, str]:
    """The two files, by name.

    Raises:
        ValueError: if a module uses a construct that cannot be bundled.
    """
    bundle = Bundle(_REPLACED)
    files = {}
    for file, title, classes in (
        (CONFIGURATION, "Configurations of stack RNNs.", _CONFIGS),
        (MODELING, "Stack RNNs for transformers.", _MODELS),
    ):
        body, absolute = bundle.add(file, list(dict.fromkeys(_local(part) for part in classes)))
        imports = merged_imports(absolute, body)
        shared = bundle.shared(file)
        if shared:
            imports += f"\nfrom .{CONFIGURATION} import (\n" + "".join(f"    {name},\n" for name in shared) + ")\n"
        takeover = "".join(map(_takeover, classes))
        header = _HEADER.format(title=title, version=version("stack-lm"))
        files[f"{file}.py"] = f"{header}{imports}{body}{_FOOTER}{takeover}"
    return files


def _local(part: type) -> str:
    """The module of a class, inside the package."""
    return part.__module__.partition(".")[2]


def _takeover(part: Any) -> str:
    """Source of a subclass of the same name; not the class itself, since transformers marks classes that it loads."""
    body = "pass" if part in _CONFIGS else f"config_class = {part.config_class.__name__}"
    return f"\n    class {part.__name__}(stack_lm.{part.__name__}):\n        {body}\n"
