"""Reading trees: the Penn Treebank, NLTK's sample of it, binary parses in JSON lines, and one tree a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from nltk.tree import Tree

from stack_lm.errors import InputError

from .trees import LocatedTree, clean, read_binary_parse, read_brackets

BINARY_PARSE_KEYS = ("sentence1_binary_parse", "binary_parse", "tree", "parse")
NLTK_TREEBANK = "nltk:treebank"


def read_treebank(source: str) -> list[Tree]:
    """Read trees, without traces.

    Args:
        source: one of
            "nltk:treebank", NLTK's sample of the Penn Treebank;
            a .mrg or .tree file, or any text file of bracketed trees, each on one line or over several;
            a .jsonl file whose lines have a binary parse under `sentence1_binary_parse` (Htut et al. 2018);
            a directory: its .mrg files, sorted by name, or its .jsonl, .tree and .txt files if it has none;
            "-", bracketed trees on standard input.

    Returns:
        The trees. Sentences that consist of traces alone are left out.

    Raises:
        InputError: for a missing or empty file, or a malformed tree; the message names file and line.
    """
    trees = [tree for located in _read(source) if (tree := clean(located.tree)) is not None]
    if not trees:
        raise InputError(f"{source} has no trees")
    return trees


def _read(source: str) -> Iterator[LocatedTree]:
    if source == NLTK_TREEBANK:
        yield from _read_nltk()
    elif source.startswith("nltk:"):
        raise InputError(f"the only treebank of NLTK that can be read is {NLTK_TREEBANK}; got {source!r}")
    elif Path(source).is_dir():
        for file in _files(Path(source)):
            yield from _read_file(str(file))
    else:
        yield from _read_file(source)


def _files(directory: Path) -> list[Path]:
    for patterns in (("*.mrg",), ("*.jsonl", "*.tree", "*.txt")):
        files = sorted(file for pattern in patterns for file in directory.rglob(pattern) if file.is_file())
        if files:
            return files
    raise InputError(f"the directory {directory} has no .mrg, .jsonl, .tree or .txt files")


def _read_file(source: str) -> Iterator[LocatedTree]:
    from stack_lm.data.text import read_lines

    lines = read_lines(source)
    if not source.endswith((".jsonl", ".json")):
        # Lines that begin with an asterisk are remarks in the Penn Treebank's own files.
        yield from read_brackets(((n, line) for n, line in lines if not line.startswith("*x*")), source)
        return
    for number, line in lines:
        where = f"{source}, line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{where}: not JSON ({error.msg})") from error
        keys = [key for key in BINARY_PARSE_KEYS if isinstance(record, dict) and isinstance(record.get(key), str)]
        if not keys:
            raise InputError(f"{where}: no binary parse; one of {', '.join(BINARY_PARSE_KEYS)} must be a string")
        yield LocatedTree(read_binary_parse(record[keys[0]], where), number)


def _read_nltk() -> Iterator[LocatedTree]:
    import nltk.corpus

    try:
        trees = nltk.corpus.treebank.parsed_sents()
    except LookupError as error:
        raise InputError(
            "NLTK's treebank sample is not installed: run `python -m nltk.downloader treebank`, "
            "or set NLTK_DATA to where it is"
        ) from error
    for number, tree in enumerate(trees, start=1):
        yield LocatedTree(tree, number)
