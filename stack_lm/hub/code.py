"""The code that is saved with a model, so that it loads where this package is not installed.

With `trust_remote_code`, transformers' `from_pretrained` runs Python files that lie beside the weights. They are made
of the package's own modules (see `bundle`), in a file for the configuration and one for the models; `standalone` takes
the place of modules that need the package. Where the package is installed, its classes take over, with their compiled
scans.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from .bundle import Bundle, merged_imports

CONFIGURATION, MODELING = "configuration_stack_rnn", "modeling_stack_rnn"
# The classes that transformers' Auto classes find by a model's configuration.
_OF_NETWORK = {
    "AutoConfig": f"{CONFIGURATION}.StackRNNConfig",
    "AutoModel": f"{MODELING}.StackRNNModel",
    "AutoModelForCausalLM": f"{MODELING}.StackRNNForCausalLM",
    "AutoModelForSequenceClassification": f"{MODELING}.StackRNNForSequenceClassification",
    "AutoModelForTokenClassification": f"{MODELING}.StackRNNForTokenClassification",
}
AUTO_MAPS = {
    "stack_rnn": _OF_NETWORK,
    "buffered_stack_rnn": {
        "AutoConfig": f"{CONFIGURATION}.BufferedStackRNNConfig",
        "AutoModelForSeq2SeqLM": f"{MODELING}.BufferedStackRNNForTransduction",
    },
}
_ROOTS = {
    CONFIGURATION: ("configuration_stack_rnn", "configuration_buffered"),
    MODELING: ("modeling_stack_rnn", "modeling_heads", "modeling_buffered"),
}
_CLASSES = {
    CONFIGURATION: ("StackRNNConfig", "BufferedStackRNNConfig"),
    MODELING: (
        "StackRNNModel",
        "StackRNNForCausalLM",
        "StackRNNForSequenceClassification",
        "StackRNNForTokenClassification",
        "StackRNNForKHotPrediction",
        "BufferedStackRNNForTransduction",
    ),
}
_REPLACED = dict.fromkeys(("hub.code", "kernels.dispatch", "kernels.cpu.cross_entropy"), "hub.standalone")
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


class SavesCode(PreTrainedModel):
    """A model that can save its code with its weights, and upload both."""

    def save_pretrained(self, save_directory: Any, *args: Any, code: bool = False, **kwargs: Any) -> Any:
        """transformers' `save_pretrained`, which also writes the model's code.

        Args:
            save_directory: where to save.
            *args: see transformers.
            code: write the files of `model_code` and name them in config.json, so that the model loads without this
                package, with `trust_remote_code`.
            **kwargs: see transformers.

        Raises:
            ValueError: if the code of the model's memory is not part of the package.
        """
        if self.is_remote_code():  # transformers copies the files that it was loaded from
            return super().save_pretrained(save_directory, *args, **kwargs)
        vars(self.config).pop("auto_map", None)  # of files that may not be there
        if code:
            if not has_code(self.config):
                raise ValueError(f"memory={self.config.memory!r} is not part of stack-lm; save the model without code")
            self.config.auto_map = dict(AUTO_MAPS[self.config.model_type])
            write_model_code(Path(save_directory))
        return super().save_pretrained(save_directory, *args, **kwargs)

    def push_to_hub(  # type: ignore[override]
        self,
        repo_id: str,
        *,
        code: bool = True,
        dry_run: str | Path | None = None,
        max_shard_size: int | str = "50GB",
        tags: Sequence[str] = (),
        **commit: Any,
    ) -> str:
        """Upload the model with its code and a card; a card that the repository has is left alone.

        Args:
            repo_id: such as "someone/model".
            code: upload the files of `model_code` too.
            dry_run: a directory, absent or empty, that gets the files; nothing is uploaded then.
            max_shard_size: of a file of weights.
            tags: of the card.
            **commit: `commit_message`, `commit_description`, `private`, `token`, `revision`, `create_pr`, as in
                transformers.

        Returns:
            The address of the commit, or the directory of a dry run.
        """
        from .card import CARD, write_card
        from .publishing import staging, upload

        with staging(dry_run) as directory:
            self.save_pretrained(directory, code=code, max_shard_size=max_shard_size)
            write_card(directory, name=repo_id.rpartition("/")[2], tags=tags)
            if dry_run is not None:
                return str(dry_run)
            return upload(directory, repo_id, keep=(CARD,), **{"commit_message": "Upload model"} | commit)


def has_code(config: PreTrainedConfig) -> bool:
    """Whether `model_code` has all that a model of this configuration needs, its memory too."""
    needed = f'@register_memory("{getattr(config, "memory", "")}")\n'
    return config.model_type in AUTO_MAPS and needed in model_code()[f"{CONFIGURATION}.py"]


def write_model_code(directory: Path) -> list[Path]:
    """Write the files of `model_code` to a directory; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in model_code().items():
        paths.append(directory / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


@cache
def model_code() -> dict[str, str]:
    """The two files, by name.

    Raises:
        ValueError: if a module uses a construct that cannot be carried over.
    """
    bundle = Bundle(_REPLACED)
    files = {}
    for file, title in ((CONFIGURATION, "Configurations of stack RNNs."), (MODELING, "Stack RNNs for transformers.")):
        body, absolute = bundle.add(file, _ROOTS[file])
        imports = merged_imports(absolute, body)
        shared = bundle.shared(file)
        if shared:
            imports += f"\nfrom .{CONFIGURATION} import (\n" + "".join(f"    {name},\n" for name in shared) + ")\n"
        takeover = "".join(_takeover(name, file) for name in _CLASSES[file])
        header = _HEADER.format(title=title, version=version("stack-lm"))
        files[f"{file}.py"] = f"{header}{imports}{body}{_FOOTER}{takeover}"
    return files


def _takeover(name: str, file: str) -> str:
    """A class of the package under the same name; not itself, since transformers marks the classes that it loads."""
    config = "BufferedStackRNNConfig" if name.startswith("Buffered") else "StackRNNConfig"
    body = "pass" if file == CONFIGURATION else f"config_class = {config}"
    return f"\n    class {name}(stack_lm.{name}):\n        {body}\n"
