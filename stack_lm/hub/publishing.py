"""Model directories on the hub, or, as a dry run, in a local directory with the same files."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from ..core.atomic import atomic_directory
from .card import CARD
from .locating import check_model_directory

TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "vocab*", "merges.txt")
# A model's files in a directory that may hold others, such as a run's checkpoints and its configuration, whose paths
# belong to one machine; the card has its settings.
PUBLISHED = (
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", CARD, "*.py"),
    *TOKENIZER_FILES,
)


def staging(dry_run: str | Path | None) -> AbstractContextManager[str | Path]:
    """Context manager for an empty directory for a model's files: a temporary one, or the dry run's, which is kept.

    Raises:
        InputError: if the directory of a dry run is not empty, or cannot be written.
    """
    return tempfile.TemporaryDirectory() if dry_run is None else atomic_directory(dry_run)


def copy_model(source: Path, target: Path, patterns: Sequence[str] = PUBLISHED) -> None:
    """Copy only the files of a model, or only those whose names match one of the patterns.

    Raises:
        InputError: if there is no model.
    """
    check_model_directory(source)
    for path in sorted(source.iterdir()):
        if path.is_file() and any(fnmatch(path.name, pattern) for pattern in patterns):
            shutil.copyfile(path, target / path.name)


def upload(
    directory: Path, repo_id: str, *, private: bool | None = None, keep: Sequence[str] = (), **commit: Any
) -> str:
    """Upload all files of a directory in one commit, creating the repository, and the branch `revision`, if necessary.

    Args:
        directory: the files.
        repo_id: such as "someone/model".
        private: make a new repository private.
        keep: names of files not to replace in the repository.
        **commit: `token`, and arguments of `HfApi.upload_folder`: `commit_message`, `revision`, `create_pr` ...

    Returns:
        The address of the commit.

    Raises:
        TypeError: for an unknown argument.
    """
    api = HfApi(token=commit.pop("token", None))
    # An unknown argument fails before there is a repository.
    inspect.signature(api.upload_folder).bind(repo_id=repo_id, folder_path=directory, ignore_patterns=[*keep], **commit)
    created = api.create_repo(repo_id, private=private, exist_ok=True)
    if commit.get("revision") is not None:
        api.create_branch(created.repo_id, branch=commit["revision"], exist_ok=True)
    existing = [name for name in keep if api.file_exists(created.repo_id, name)]
    return str(api.upload_folder(repo_id=created.repo_id, folder_path=directory, ignore_patterns=existing, **commit))
