"""Bracketed trees as text: the tokens of each, for all readers, and its words, for those that do not need trees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..core.errors import InputError, OnError, fail
from ..core.messages import counted, shortened
from .files import LONGEST_LINE

TRACE = "-NONE-"
# With brackets after a backslash. A plain group for each character would take gigabytes for a long word.
_LEAF = r"(?=[^\s()])[^\s()\\]*(?:\\[()]?[^\s()\\]*)*"
# Only ASCII's white space separates, as in EVALB: a word may have a no-break space.
TOKENS = re.compile(rf"\(\s*([^\s()]+)\s+({_LEAF})\s*\)|\(\s*([^\s()]*)|(\))|({_LEAF})", re.ASCII)
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


def leaf_word(token: re.Match[str]) -> str | None:
    """The word of a token, with brackets for NLTK's "\\(" and "\\)"; None if the token is a bracket of the tree."""
    word: str | None = token[2] or token[5]
    return word.replace("\\(", "(").replace("\\)", ")") if word and "\\" in word else word


class TreeTokens(NamedTuple):
    """The tokens of one tree, as matches of `TOKENS`, and the number of its first line.

    A tree that could not be read has None.
    """

    line: int
    tokens: list[re.Match[str]] | None


def split_trees(text: str, source: str, first_line: int = 1, on_error: OnError = fail) -> Iterator[TreeTokens]:
    """The trees of a text, also those without words, such as "(())".

    Args:
        text: the text of a whole file.
        source: its name, for messages.
        first_line: the number of the text's first line in the file.
        on_error: called with the error of a tree; the default raises it. In a text with brackets that do not match, a
            tree begins with a bracket that begins a line.

    Raises:
        InputError: for brackets that do not match, empty brackets in a tree with words, or words outside brackets; the
            message names the line.
    """
    if on_error is fail or _is_well_formed(text):
        yield from _trees(text, source, first_line)
        return
    line = first_line
    for part in re.split(r"^(?=\()", text, flags=re.MULTILINE):
        whole: list[TreeTokens] = []
        try:
            for tree in _trees(part, source, line):
                whole.append(tree)  # one by one, to keep those before an error
        except _Surplus as error:
            on_error(error)
            whole[-1:] = [TreeTokens(line, None)]
        except InputError as error:
            on_error(error)
            whole.append(TreeTokens(line, None))
        yield from whole
        line += part.count("\n")


def words_of_trees(text: str, source: str, on_error: OnError = fail) -> Iterator[tuple[int, list[str]]]:
    """The number of each tree, from 1, and its words without traces; none in a tree of only traces.

    A tree that cannot be read counts too.

    Args:
        text: the text of a whole file.
        source: its name, for messages.
        on_error: see `split_trees`.

    Raises:
        InputError: see `split_trees`.
    """
    for number, (_, tokens) in enumerate(split_trees(text, source, on_error=on_error), start=1):
        if tokens is not None:
            yield number, [word for token in tokens if (word := leaf_word(token)) and token[1] != TRACE]


class _Surplus(InputError):
    """A closing bracket after the end of a tree, which is therefore in doubt."""


def _is_well_formed(text: str) -> bool:
    try:
        for _ in _trees(text, "", 1):
            pass
    except InputError:
        return False
    return True


def _trees(text: str, source: str, first_line: int) -> Iterator[TreeTokens]:
    tokens: list[re.Match[str]] = []
    empty: InputError | None = None  # of the tree's first empty brackets
    depth, position, start = 0, 0, first_line
    for token in TOKENS.finditer(text):
        kind = token.lastindex
        if token.end() - token.start() > LONGEST_LINE:
            raise InputError(f"{source}, line {start}: longer than {LONGEST_LINE:,} characters")
        if not depth:
            start += text.count("\n", position, token.start())
            position = token.start()
            if kind == CLOSE:
                raise _Surplus(f"{source}, line {start}: a closing bracket without an opening one")
            if kind == WORD:
                word = shortened(token[0], 60)
                raise InputError(f"{source}, line {start}: {word!r} is outside all brackets; is this a treebank?")
        tokens.append(token)
        if kind == OPEN:
            depth += 1
        elif kind == CLOSE:
            if tokens[-2].lastindex == OPEN and empty is None:
                line = start + text.count("\n", position, token.start())
                empty = InputError(f"{source}, line {line}: empty brackets ({tokens[-2][3]})")
            depth -= 1
        if not depth:
            if empty is not None and any(each.lastindex in (TAGGED_WORD, WORD) for each in tokens):
                raise empty
            yield TreeTokens(start, tokens)
            tokens, empty = [], None
    if depth:
        raise InputError(f"{source}: the tree that starts on line {start} lacks {counted(depth, 'closing bracket')}")
