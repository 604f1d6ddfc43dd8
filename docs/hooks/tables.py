"""The tables of the pages, made from the data that is kept beside them.

A line that is only a link to data becomes a table: `[Title](scores/known.csv)` the rows of that file,
`[Title](scores/variants.csv#dyck2)` those that begin with "dyck2", and `[Title](tables.yaml#parses)` what `stack-lm
results` prints for that entry of tables.yaml. mkdocs calls `on_page_markdown`.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).parents[1]
LINK = re.compile(r"^\[([^\]]+)\]\(([\w./-]+\.(?:csv|yaml))(?:#([\w-]+))?\)$", re.MULTILINE)
BELOW = ("command", "machine", "seeds")  # columns that stand below a table if they say the same in every row


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the tables in the place of their links."""
    return with_tables(markdown, (DOCS / page.file.src_uri).parent)


def with_tables(markdown: str, folder: Path) -> str:
    """A page with its tables; `folder` is that of the page, from which its links lead."""

    def table(link: re.Match[str]) -> str:
        title, name, part = link.groups()
        path = folder / name
        if path.suffix == ".yaml":
            return printed(path, part, title, folder)
        return rows_of(path, part, f"[{title}]({name})")

    return LINK.sub(table, markdown)


def rows_of(path: Path, part: str | None, title: str) -> str:
    """A file as a table.

    Raises:
        ValueError: if no row begins with `part`.
    """
    head, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    if part is not None:
        head, rows = head[1:], [row[1:] for row in rows if _slug(row[0]) == part]
    if not rows:
        raise ValueError(f"{path} has no rows of {part!r}")
    same = [i for i, name in enumerate(head) if name in BELOW and len({row[i] for row in rows}) == 1]
    lines = [[cell for i, cell in enumerate(row) if i not in same] for row in (head, *rows)]
    right = [all(re.match(r"[-+]?[\d.,]+%?$|$", row[i]) for row in lines[1:]) for i in range(len(lines[0]))]
    lines.insert(1, ["--:" if number else "---" for number in right])
    below = [f"{head[i].capitalize()}: {_value(head[i], rows[0][i])}" for i in same if rows[0][i]]
    return f"**{title}**\n\n{''.join(map(_line, lines))}\n{'. '.join(below)}\n"


def _slug(text: str) -> str:
    """A text as the anchor of a heading."""
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _value(name: str, text: str) -> str:
    return f"`{text}`" if name == "command" else text


def printed(path: Path, part: str | None, title: str, folder: Path) -> str:
    """What `stack-lm results` prints for an entry, its titles in bold; that of a single file leads to it from `folder`.

    Raises:
        ValueError: if the file has no such entry, or the command fails.
    """
    from stack_lm.cli.main import main

    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    if part not in entries:
        raise ValueError(f"{path} has no entry {part!r}")
    entry = entries[part]
    words = ["results", *(str(DOCS.parent / file) for file in entry["files"]), "--format", "markdown"]
    for head, pattern in entry.get("columns", {}).items():
        words += ["--column", f"{head}={pattern}"]
    words += [f"--{flag}" for flag in ("summary", "matrix") if entry.get(flag)]
    words += ["--rows", entry["rows"]] if "rows" in entry else []
    if "trials" not in entry["files"][0]:
        data = os.path.relpath(DOCS.parent / entry["files"][0], folder)
        words += ["--title", title if len(entry["files"]) > 1 else f"[{title}]({data})"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    if status:
        raise ValueError(f"{path}, {part}: {err.getvalue().strip()}")
    return re.sub(r"^(?!\|)(.+)$(?=\n\n\|)", r"**\1**", out.getvalue().strip(), flags=re.MULTILINE) + "\n"
