"""Checks of output files: their endings match their format, and they never overwrite a command's inputs."""

from __future__ import annotations

import argparse
import glob
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..core.atomic import find_target
from ..core.errors import InputError
from ..text.records import is_pattern

TABLES = (".tsv", ".csv", ".txt", "")
PAGES, FIGURES = (".html", ".htm"), (".png", ".pdf", ".svg")
# In an input directory, files with these endings are results of earlier runs.
_RESULTS = (".tsv", ".html", ".htm", ".png", ".pdf", ".svg", ".tex")


def check_files(options: argparse.Namespace, *inputs: str | None) -> None:
    """Check the files that a command writes, of the options that have `endings`, before it does any work.

    A file must have one of the endings ("" is none), can exist, overwrites no input, and has one result only.

    Args:
        options: the options of the command.
        inputs: files, patterns of files, directories, and names that are not paths, such as `nltk:brown`. In a
            directory every file except tables, pages and figures counts as an input.

    Raises:
        InputError: naming the option and the file; or for a figure without matplotlib.
    """
    written: dict[str, str] = {}  # the options, by the real paths
    for name, endings in options.endings.items():
        option, path = f"--{name}", getattr(options, name)
        if path is None or (path == "-" and "-" in endings):  # of no file, or of standard output
            continue
        if path in ("", "-"):
            raise InputError(f"{option} must name a file; got {path!r}")
        if Path(path).suffix.lower() not in endings:
            allowed = ", ".join(ending or "no ending" for ending in endings)
            raise InputError(f"{option} must end in one of {allowed}; got {path!r}")
        if endings is FIGURES:
            from ..figures.figures import check_matplotlib

            check_matplotlib()
        find_target(path)
        for name in filter(None, inputs):
            sources = glob.glob(name, recursive=True) if is_pattern(name) else [name, name.partition(":")[2]]
            if any(_is_read(path, source) for source in sources):
                raise InputError(f"{option} {path} would overwrite a file that the command reads; name another")
        if (other := written.setdefault(os.path.realpath(path), option)) != option:
            raise InputError(f"{option} and {other} must be different files; got {path} for both")


def check_different(arguments: Sequence[str]) -> None:
    """Reject duplicate data or models.

    Raises:
        InputError: naming the first duplicate.
    """
    twice = [argument for argument, n in Counter(argument.rstrip("/") for argument in arguments).items() if n > 1]
    if twice:
        raise InputError(f"{twice[0]} is given twice")


def short_names(paths: Sequence[str]) -> list[str]:
    """The shortest distinct ends of paths, such as `u1/items.tsv` and `lstm/items.tsv`.

    Whole paths, if some are the same.
    """
    parts = [Path(path).parts for path in paths]
    for length in range(1, max(map(len, parts), default=0)):
        names = ["/".join(own[-length:]) or "." for own in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def _is_read(path: str, source: str) -> bool:
    target = os.path.realpath(path)  # as the system will write it: `..` after a missing directory counts
    if not source or not os.path.exists(target):
        return False
    if os.path.isdir(source):
        below = target.startswith(os.path.join(os.path.realpath(source), ""))
        return below and Path(path).suffix.lower() not in _RESULTS
    return os.path.exists(source) and os.path.samefile(target, source)
