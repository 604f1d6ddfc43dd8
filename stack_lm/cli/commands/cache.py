"""`stack-lm cache`."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from ...core.messages import counted
from ...text.cache_folder import token_cache
from ..options import option
from ..printing import PrintedTable
from ..report import Report

EXAMPLE = "stack-lm cache --clear"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm cache`."""
    option(parser, "--clear", "remove all cached text")


def run(options: argparse.Namespace) -> Report:
    """List the cache entries, and remove them on request."""
    folder = token_cache()
    entries = [_describe(entry) for entry in sorted(folder.iterdir())] if folder.is_dir() else []
    if options.clear and folder.is_dir():
        _empty(folder.resolve())
    total = sum(entry["bytes"] for entry in entries)
    title = f"{folder}: {counted(len(entries), 'text')}, {total / 1e6:,.1f} MB" + ", removed" * options.clear
    rows = [(entry["entry"], entry["used"], entry["bytes"] / 1e6) for entry in entries]
    record = {"folder": str(folder), "bytes": total, "entries": entries, "cleared": options.clear}
    return Report(record, [PrintedTable(title, ["entry", "last used", "MB"], rows, 2)])


def _empty(folder: Path) -> None:
    """Remove all in a folder, but not the folder, which may be another disk.

    Raises:
        InputError: if something cannot be removed.
    """
    try:
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    except OSError as error:
        raise InputError(f"cannot remove {error.filename}: {error.strerror}") from error


def _describe(entry: Path) -> dict[str, Any]:
    size = sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
    used = time.strftime("%Y-%m-%d", time.localtime(entry.stat().st_mtime))
    return {"entry": entry.name, "bytes": size, "used": used}
