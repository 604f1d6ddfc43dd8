"""Find a model in a directory or on the hub. Nothing is loaded, so a mistyped name is an error at once."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from ..core.config_files import CONFIG_FILE
from ..core.console import print_note
from ..core.errors import InputError
from ..core.messages import first_line, shortened, similar_path

WEIGHTS = ("*.safetensors", "*.bin")
# A tokenizer is in one of these; the last are vocabularies from which transformers makes one.
TOKENIZERS = ("tokenizer.json", "*.model", "vocab*", "*.tiktoken", "tekken.json")


def find_models(*paths: str, what: str = "language model") -> None:
    """Find models before anything that takes long.

    Args:
        paths: see `locate`.
        what: the kind of model, for messages.

    Raises:
        InputError: if one is missing, or its directory lacks a file.
    """
    for path in paths:
        try:
            locate(path)
        except Exception as error:  # of files, and of the hub
            raise cannot_load(what, path, error) from error


def check_model_directory(directory: Path, *files: str) -> None:
    """Check that a path is a model directory.

    Args:
        directory: the directory of the model.
        files: required besides config.json.

    Raises:
        InputError: if it lacks one.
    """
    for name in ("config.json", *files):
        if not (directory / name).is_file():
            raise InputError(f"{directory} is not a model directory: it has no {name}{similar_path(directory)}")


def cannot_load(what: str, path: str, error: Exception) -> InputError:
    """The error for a model that cannot be loaded, with the reason in one line."""
    return InputError(f"cannot load a {what} from {path or repr(path)}: {reason_of(error)}")


def locate(path: str) -> dict[str, Any]:
    """Find a model without loading it, or the libraries that load it.

    Args:
        path: a directory, or a name on the hub. A name that looks like a path is not looked up there. "~" at its start
            is the home directory.

    Returns:
        The arguments with which `from_pretrained` finds it too, after `expanduser`.

    Raises:
        InputError: if there is no such model.
    """
    if not path:
        raise InputError("its name is empty")
    path = os.path.expanduser(path)
    if Path(path).is_dir():
        _check_directory(Path(path))
        return {}
    if Path(path).exists():
        raise InputError("it is a file; a model is a directory with config.json and model.safetensors")
    if os.path.islink(path):
        raise InputError("it is a symbolic link that leads nowhere")
    if looks_like_a_path(path):
        raise InputError(f"the directory does not exist{similar_path(path)}")
    return dict(ask_hub(path, "config.json"))


def looks_like_a_path(name: str) -> bool:
    """True if a name means a directory: models on the hub are called NAME or ORGANISATION/NAME."""
    return (
        name.startswith((".", "/", "~"))
        or name.endswith("/")
        or name.count("/") > 1
        or "\\" in name
        or ("/" in name and Path(name).parent.is_dir())
    )


@cache
def ask_hub(name: str, file: str) -> dict[str, Any]:
    """Query the hub for a name once, with a short timeout: offline, `from_pretrained` retries for minutes.

    Args:
        name: the name on the hub.
        file: a file whose presence in the cache shows that the model has been loaded before.

    Returns:
        The arguments with which `from_pretrained` finds it too.

    Raises:
        InputError: if there is no such name, or the hub cannot be reached and the cache does not have it.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        HfApi().model_info(name, timeout=10)
    except HFValidationError as error:
        if len(name.split()) > 1:
            raise InputError("there is no such directory; if it is a sentence, the model comes before it") from error
        raise InputError("there is no such directory, and models on the hub have no such names") from error
    except RepositoryNotFoundError as error:
        raise InputError(f"there is no such directory, and no such model on the hub{_near(name)}") from error
    except Exception as error:  # the network has many kinds
        if not isinstance(try_to_load_from_cache(name, file), str):
            reason = "HF_HUB_OFFLINE is set" if isinstance(error, OfflineModeIsEnabled) else first_line(error)
            raise InputError(f"no such directory, and the hub cannot be reached ({reason}){_near(name)}") from error
        print_note(f"the hub cannot be reached: {name} comes from its cache")
        return {"local_files_only": True}
    return {}


def _near(name: str) -> str:
    """The end of a message about a missing model: the one of that name in models/, or the nearest path."""
    inside = Path("models") / name
    return f"; did you mean {inside}?" if inside.is_dir() else similar_path(name)


def _check_directory(directory: Path) -> None:
    """Check that a directory has the files of a model."""
    read_config(directory)
    if not any(any(directory.glob(pattern)) for pattern in WEIGHTS):
        raise InputError("it has no weights (model.safetensors)")
    if not any(any(directory.glob(pattern)) for pattern in TOKENIZERS):
        raise InputError("it has no tokenizer (tokenizer.json)")


def read_config(directory: Path) -> dict[str, Any]:
    """The content of a model directory's config.json.

    Raises:
        InputError: if there is none, or it is not a JSON object.
        ValueError: if it is not JSON.
    """
    if not (directory / "config.json").is_file():
        if (directory / CONFIG_FILE).is_file():
            raise InputError("its training has not finished: --resume continues it, and its checkpoints are models too")
        raise InputError("it is not a model directory: it has no config.json")
    content = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise InputError(f"its config.json must be a JSON object; it is a {type(content).__name__}")
    return content


def reason_of(error: Exception) -> str:
    """A library's error in one line, without misleading advice."""
    text = str(error)
    if isinstance(error, InputError):
        return text
    if "trust_remote_code" in text:
        return "it needs code of its own (auto_map), which runs only if you give --import FILE.py"
    if "weights_only" in text:
        return "it is a pickle with more in it than tensors, which is refused"
    return shortened(first_line(error), 300)
