"""Tokenised text files, cached by their content, so that a second run starts at once.

An entry is a folder named after a hash of the files and of all settings that affect the result: a tokenizer, and
memory-mapped arrays. Remove the folder to free the space.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..core.atomic import atomic_directory
from ..core.errors import InputError
from ..text.tokenization import reopen_tokenizer
from .compact import TokenArray
from .text_size import TextSize

# Part of every key: a new number ignores all earlier entries.
_FORMAT = 5
# Smaller texts are tokenised in a second.
MIN_BYTES = 2**20
_TRAIN, _VALIDATION, _SIZE, _TOKENIZER = "train", "validation", "size.json", "tokenizer"


class Tokenised(NamedTuple):
    """The content of an entry of the cache."""

    train: TokenArray
    validation: TokenArray
    size: TextSize
    tokenizer: PreTrainedTokenizerBase


def text_digest(files: Iterable[Path]) -> str:
    """A hash of files by their content, in reading order.

    Raises:
        InputError: if one cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        try:
            with open(file, "rb") as opened:
                digest.update(hashlib.file_digest(opened, "blake2b").digest())
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
    return digest.hexdigest()


def size_digest(files: Iterable[Path]) -> str:
    """A hash of files by their sizes only, for files too large to be read before training."""
    sizes = [file.stat().st_size for file in files]
    return hashlib.blake2b(str(sizes).encode(), digest_size=16).hexdigest()


def cache_key(files: Iterable[Path], settings: str) -> str | None:
    """The name of an entry; None for files too small to be cached.

    Args:
        files: the files that are read.
        settings: everything that affects the result, including digests of the files.
    """
    if sum(file.stat().st_size for file in files) < MIN_BYTES:
        return None
    return hashlib.blake2b(f"{_FORMAT}\n{settings}".encode(), digest_size=16).hexdigest()


def read_entry(key: str) -> Tokenised | None:
    """Return an entry, if there is a complete one."""
    folder = _cache_folder() / key
    if not folder.is_dir():
        return None
    with suppress(OSError):
        os.utime(folder)  # used now
    try:
        size = TextSize(**json.loads((folder / _SIZE).read_text()))
        tokenizer = reopen_tokenizer(folder / _TOKENIZER)
        return Tokenised(_read(folder, _TRAIN), _read(folder, _VALIDATION), size, tokenizer)
    except Exception:  # many kinds: of numpy and of the tokenizer, for missing, truncated or changed files
        return None


def _read(folder: Path, name: str) -> TokenArray:
    ids, ends = (np.load(folder / f"{name}_{part}.npy", mmap_mode="r", allow_pickle=False) for part in ("ids", "ends"))
    if ids.ndim != 1 or ends.ndim != 1 or len(ids) != (ends[-1] if len(ends) else 0):
        raise ValueError(f"{name}: the arrays do not fit each other")
    return TokenArray(ids, ends)


def write_entry(key: str, content: Tokenised) -> None:
    """Write an entry, unless there is one. If it cannot be written, the run continues without it."""
    folder = _cache_folder()
    if read_entry(key) is not None:  # another run's, which may have it open
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / key, ignore_errors=True)  # damaged
        with atomic_directory(folder / key) as directory:
            for name, tokens in ((_TRAIN, content.train), (_VALIDATION, content.validation)):
                np.save(directory / f"{name}_ids.npy", tokens.ids)
                np.save(directory / f"{name}_ends.npy", tokens.ends)
            (directory / _SIZE).write_text(json.dumps(vars(content.size)))
            content.tokenizer.save_pretrained(directory / _TOKENIZER)
    except Exception:  # many kinds: the tokenizer's own files are written in Rust
        return


def _cache_folder() -> Path:
    """The folder of tokenised text: in STACK_LM_CACHE, or else in stack-lm in the user's cache folder."""
    base = os.environ.get("STACK_LM_CACHE")
    if base:
        return Path(base) / "tokens"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stack-lm" / "tokens"
