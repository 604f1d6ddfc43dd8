"""The files that commands write: endings that say what is in them, and never those that a command reads."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from ..atomic import find_target
from ..data.records import is_pattern
from ..errors import InputError

TABLES = (".tsv", ".txt", "")
PAGES = (".html", ".htm")
# Below a directory that is read, files with these endings are results of earlier runs.
_RESULTS = (".tsv", ".html", ".htm", ".png", ".pdf", ".svg", ".tex")


def check_ending(option: str, path: str | None, endings: Sequence[str]) -> None:
    """Refuse a file whose name promises something else than is written into it.

    Args:
        option: that names the file.
        path: of the file; None is no file.
        endings: of the names that are allowed; "" is a name without any.

    Raises:
        InputError: that names the endings.
    """
    if path is not None and Path(path).suffix.lower() not in endings:
        allowed = ", ".join(ending or "no ending" for ending in endings)
        raise InputError(f"{option} must end in one of {allowed}; got {path!r}")


def check_outputs(outputs: dict[str, str | None], inputs: Sequence[str | None]) -> None:
    """Refuse to write into a file that is read, two results into one file, or where no file can be.

    Args:
        outputs: paths by the options that name them; None is no file.
        inputs: files, patterns of files, directories, and names that are none, such as `nltk:brown`. Of a directory
            every file counts as read but tables, pages and figures.

    Raises:
        InputError: that names the option and the file.
    """
    written = {option: path for option, path in outputs.items() if path is not None}
    for option, path in written.items():
        if not path:
            raise InputError(f"{option} must name a file; it is empty")
        if path == "-":
            raise InputError(f"{option} must name a file; got '-', and this command writes none on standard output")
        find_target(path)
        for name in filter(None, inputs):
            sources = glob.glob(name, recursive=True) if is_pattern(name) else [name, name.partition(":")[2]]
            if any(_is_read(path, source) for source in sources):
                raise InputError(f"{option} {path} would overwrite a file that the command reads; name another")
    for (option, path), (other, second) in combinations(written.items(), 2):
        if os.path.realpath(path) == os.path.realpath(second):
            raise InputError(f"{other} and {option} must be different files; got {path} for both")


def check_different(arguments: Sequence[str]) -> None:
    """Refuse data or models that would count twice.

    Raises:
        InputError: that names the first of them.
    """
    twice = [argument for argument, n in Counter(argument.rstrip("/") for argument in arguments).items() if n > 1]
    if twice:
        raise InputError(f"{twice[0]} is given twice")


def short_names(paths: Sequence[str]) -> list[str]:
    """The ends of paths, as long as it takes to tell them apart: `u1/items.tsv` and `lstm/items.tsv`.

    Whole paths, if some are the same.
    """
    parts = [Path(path).parts for path in paths]
    for length in range(1, max(map(len, parts), default=0)):
        names = ["/".join(own[-length:]) or "." for own in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def _is_read(path: str, source: str) -> bool:
    target = os.path.realpath(path)  # as it is written: `..` behind a directory that is not there yet counts
    if not source or not os.path.exists(target):
        return False
    if os.path.isdir(source):
        below = target.startswith(os.path.join(os.path.realpath(source), ""))
        return below and Path(path).suffix.lower() not in _RESULTS
    return os.path.exists(source) and os.path.samefile(target, source)
