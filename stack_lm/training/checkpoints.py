"""Checkpoints on disk: a list of all, the complete ones, and the manifest that detects damaged ones.

checkpoint-N
    trainer_state.json   the trainer's state; without it the checkpoint is unfinished
    manifest.json        size and checksum of every other file; written last
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..text.plain import json_object

STATE_FILE, MANIFEST_FILE = "trainer_state.json", "manifest.json"


def all_checkpoints(directory: Path) -> Sequence[Path]:
    """All checkpoints, complete or not, in order of their steps."""
    checkpoints = [path for path in directory.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(checkpoints, key=checkpoint_step)


def checkpoint_step(checkpoint: Path) -> int:
    """The step of a checkpoint."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def read_state(checkpoint: Path) -> dict[str, Any] | None:
    """The trainer's state in a checkpoint; None if it is unfinished."""
    return _read_mapping(checkpoint / STATE_FILE)


def write_manifest(checkpoint: Path) -> None:
    """Finish a checkpoint: flush its files to disk, and write their sizes and checksums to the manifest."""
    found = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path.name != MANIFEST_FILE)
    files = {str(path.relative_to(checkpoint)): _describe(path) for path in found}
    with open(checkpoint / MANIFEST_FILE, "w", encoding="utf-8") as file:
        json.dump({"files": files}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def find_damage(checkpoint: Path) -> str | None:
    """The first fault of a checkpoint with a manifest: a file that is missing or has changed; None if it has none."""
    manifest = _read_mapping(checkpoint / MANIFEST_FILE)
    expected = None if manifest is None else manifest.get("files")
    if not isinstance(expected, dict):
        return f"{MANIFEST_FILE} is damaged"
    for name, description in expected.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        try:
            if _describe(path, sync=False) != description:
                return f"{name} is damaged"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


def find_checkpoint(directory: Path) -> tuple[Path | None, list[str]]:
    """The newest complete checkpoint, and a warning for each newer one that is damaged.

    Raises:
        InputError: if there are checkpoints, but all are damaged.
    """
    damaged: list[str] = []
    for checkpoint in reversed(all_checkpoints(directory)):
        if (checkpoint / MANIFEST_FILE).is_file():
            fault = find_damage(checkpoint)
            if fault is None:
                return checkpoint, [f"{line}; continuing from the one before, {checkpoint}" for line in damaged]
            damaged.append(f"{checkpoint} is damaged: {fault}")
        elif read_state(checkpoint) is not None:
            return checkpoint, [*damaged, f"{checkpoint} has no {MANIFEST_FILE}, so its files are not checked"]
    if damaged:
        raise InputError(f"{damaged[0]}; there is no other checkpoint: restore it, or start anew with --overwrite")
    return None, []


def _describe(path: Path, *, sync: bool = True) -> dict[str, Any]:
    with open(path, "rb") as file:
        if sync:
            os.fsync(file.fileno())
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
    return {"bytes": path.stat().st_size, "blake2b": digest.hexdigest()}


def _read_mapping(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None for a file that is missing or has none."""
    try:
        return json_object(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def kept_steps(epochs: bool | Sequence[float], updates: int | None) -> dict[int, str]:
    """The updates after which `training.save_epochs` keeps the model, with the names of their epochs.

    Args:
        epochs: the setting.
        updates: updates in an epoch; None if unknown.

    Raises:
        InputError: for parts of an epoch of unknown length.
    """
    if isinstance(epochs, bool):
        return {}
    if updates is None:
        raise InputError("training.save_epochs of a stream is true or false: the length of its epochs is not known")
    return {max(1, round(epoch * updates)): f"{epoch:g}" for epoch in epochs}
