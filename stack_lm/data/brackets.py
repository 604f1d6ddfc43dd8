"""Bracketed trees as text: their tokens, and the words of each, for readers that do not need trees."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import InputError

TRACE = "-NONE-"
TOKENS = re.compile(r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(\s*([^\s()]*)|(\))|([^\s()]+)")
"""A tag with its word, which comes most often; an opening bracket with its label; a closing bracket; a bare word."""
TAGGED_WORD, OPEN, CLOSE, WORD = 2, 3, 4, 5
"""The number of the last group that matched tells the kind of a token."""
_BEGINNING = re.compile(r"\( ?\(?[A-Z][^\s()]* ?\(|\( ?\([A-Z][^\s()]*\s*$")
_REMARK = re.compile(r"^\*x\*.*", re.MULTILINE)


def looks_like_trees(line: str) -> bool:
    """True if a text with this first line probably contains trees: "(S (NP (DT the)", or "( (S"."""
    return _BEGINNING.match(line) is not None


def without_remarks(text: str) -> str:
    """A text of trees without the comments of the Penn Treebank's own files, which are lines that begin with *x*."""
    return _REMARK.sub("", text) if "*x*" in text else text


def words_of_trees(text: str, source: str) -> Iterator[str]:
    """The words of each tree, separated by spaces. Traces are removed, and trees of only traces are left out.

    Args:
        text: the text of a whole file.
        source: its name, for messages.

    Raises:
        InputError: for brackets that do not match, or words outside brackets; the message names the line.
    """
    words: list[str] = []
    depth = start = 0
    for match in TOKENS.finditer(text):
        kind = match.lastindex
        if not depth:
            start = match.start()
            if kind in (CLOSE, WORD):
                raise InputError(f"{source}, line {_line(text, start)}: {match[0]!r} is outside all trees")
        if kind == OPEN:
            depth += 1
        elif kind == CLOSE:
            depth -= 1
        elif kind == WORD or match[1] != TRACE:
            words.append(match[2] or match[5])
        if not depth:
            if words:
                yield " ".join(words)
            words = []
    if depth:
        raise InputError(
            f"{source}: the tree that starts on line {_line(text, start)} lacks closing brackets ({depth})"
        )


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
