"""Bracketed trees as text: the tokens of each, for all readers, and its words, for those that do not need trees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..core.errors import InputError, OnError, fail
from ..core.messages import counted, shortened

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


class TreeTokens(NamedTuple):
    """The tokens of one tree, as matches of `TOKENS`, and the number of its first line."""

    line: int
    tokens: list[re.Match[str]]


def split_trees(text: str, source: str, first_line: int = 1, on_error: OnError = fail) -> Iterator[TreeTokens]:
    """The trees of a text, whose brackets match and are not empty.

    Args:
        text: the text of a whole file.
        source: its name, for messages.
        first_line: the number of the text's first line in the file.
        on_error: called with the error of a tree, which is then left out; the default raises it. In a text with
            brackets that do not match, a tree begins with a bracket that begins a line.

    Raises:
        InputError: for brackets that do not match or are empty, or words outside brackets; the message names the line.
    """
    if on_error is fail or _is_well_formed(text):
        yield from _trees(text, source, first_line)
        return
    line = first_line
    for part in re.split(r"^(?=\()", text, flags=re.MULTILINE):
        try:
            yield from list(_trees(part, source, line))
        except InputError as error:
            on_error(error)
        line += part.count("\n")


def words_of_trees(text: str, source: str, on_error: OnError = fail) -> Iterator[str]:
    """The words of each tree, separated by spaces. Traces are removed, and trees of only traces are left out.

    Args:
        text: the text of a whole file.
        source: its name, for messages.
        on_error: see `split_trees`.

    Raises:
        InputError: see `split_trees`.
    """
    for _, tokens in split_trees(text, source, on_error=on_error):
        words = [word for token in tokens if (word := token[2] or token[5]) and token[1] != TRACE]
        if words:
            yield " ".join(words)


def _is_well_formed(text: str) -> bool:
    try:
        for _ in _trees(text, "", 1):
            pass
    except InputError:
        return False
    return True


def _trees(text: str, source: str, first_line: int) -> Iterator[TreeTokens]:
    tokens: list[re.Match[str]] = []
    depth, position, start = 0, 0, first_line
    for token in TOKENS.finditer(text):
        kind = token.lastindex
        if not depth:
            start += text.count("\n", position, token.start())
            position = token.start()
            if kind == CLOSE:
                raise InputError(f"{source}, line {start}: a closing bracket without an opening one")
            if kind == WORD:
                word = shortened(token[0], 60)
                raise InputError(f"{source}, line {start}: {word!r} is outside all brackets; is this a treebank?")
        tokens.append(token)
        if kind == OPEN:
            depth += 1
        elif kind == CLOSE:
            if tokens[-2].lastindex == OPEN:
                line = start + text.count("\n", position, token.start())
                raise InputError(f"{source}, line {line}: empty brackets ({tokens[-2][3]})")
            depth -= 1
        if not depth:
            yield TreeTokens(start, tokens)
            tokens = []
    if depth:
        raise InputError(f"{source}: the tree that starts on line {start} lacks {counted(depth, 'closing bracket')}")
