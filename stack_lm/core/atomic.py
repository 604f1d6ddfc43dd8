"""Files and directories that appear complete or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError


def find_target(path: str | os.PathLike[str]) -> Path:
    """Follow symbolic links to the file that a path would be written to, without creating anything.

    Raises:
        InputError: if no file can exist there.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir() or str(path).endswith("/"):
        raise InputError(f"{target} is a directory; a file name is needed")
    if target.exists() and not target.is_file():  # such as /dev/stdout, which a rename would replace
        raise InputError(f"{target} is not a regular file, so it cannot be replaced")
    above = next(parent for parent in target.parents if parent.exists())
    if not above.is_dir():
        raise InputError(f"cannot make the directory {target.parent}: {above} is a file")
    return target


def reason_of(error: Exception) -> str:
    """The reason why a directory cannot be made or a file cannot be written, to end a message."""
    if isinstance(error, FileExistsError):
        return "it is a file"
    return getattr(error, "strerror", None) or str(error)


def make_directories(path: Path) -> None:
    """Make a directory, and those above it.

    Raises:
        OSError: if it cannot be made, also because there would be too many.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except RecursionError as error:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path)) from error


def _make_directory(path: Path) -> list[Path]:
    """Make a directory, and those above it; returns those that were missing, the innermost first."""
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        make_directories(path)
    except OSError as error:
        raise InputError(f"cannot make the directory {path}: {error.strerror}") from error
    return missing


def _remove_empty(directories: list[Path]) -> None:
    """Remove directories, the innermost first, unless another program has written there."""
    with suppress(OSError):
        for directory in directories:
            directory.rmdir()


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the directory of `path`; on success it replaces `path`, on an error it is removed.

    A directory that was made for it is removed too. If `path` is a symbolic link, its target is replaced.

    Raises:
        InputError: if the file cannot be written there.
    """
    path = find_target(path)
    made = _make_directory(path.parent)
    # The suffix stays: some writers depend on it.
    temporary = path.with_name(f".{path.stem}-{os.getpid()}.partial{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is not None and str(temporary) in map(str, (error.filename, error.filename2)):
            raise InputError(f"cannot write {path}: {error.strerror}") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
        _remove_empty(made)  # what has the file is not empty


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of text, all of it or nothing; see `atomic_file`."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def atomic_directory(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary directory next to `path`; on success it becomes `path`, on an error it is removed.

    Args:
        path: must not exist, or be an empty directory, unless `overwrite`.
        overwrite: replace an existing directory once the new one is complete.

    Raises:
        InputError: if the path exists, or cannot be written.
    """
    path = Path(path)
    if path.is_file():
        raise InputError(f"{path} is a file; a directory name is needed")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise InputError(f"{path} exists and is not empty; name another directory, or remove it")
    made = _make_directory(path.parent)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", suffix=".partial", dir=path.parent))
    except OSError as error:
        raise InputError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        temporary.chmod(0o755)
        yield temporary
        if path.is_dir():
            shutil.rmtree(path) if overwrite else path.rmdir()
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _remove_empty(made)
