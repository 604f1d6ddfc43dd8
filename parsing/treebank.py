"""Reading trees from files: treebanks, and the trees or distances written by a parser."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stack_lm.core.checks import check_of
from stack_lm.core.errors import InputError, NoTree, OnError, fail
from stack_lm.core.messages import similar_path
from stack_lm.text.brackets import without_remarks
from stack_lm.text.formats import format_of, read_rows, read_tagged_conllu
from stack_lm.text.plain import json_record, read_text

from .dependencies import tree_of_dependencies
from .distances import DEFAULT_DECODER, tree_from_distances
from .trees import ConstituencyTree, read_binary_parse, read_brackets

# Keys of JSON records, by the kind of their values.
BRACKETS_KEY = "brackets"
BINARY_PARSE_KEYS = ("sentence1_binary_parse", "binary_parse", "tree", "parse")
WORDS_KEYS = ("words", "tokens", "sentence")
DISTANCES_KEY = "distances"
NLTK_TREEBANK = "nltk:treebank"
# As in brackets: without ASCII's white space.
_WORD = re.compile(r"\S+", re.ASCII)


def read_treebank(source: str, *, decoder: str = DEFAULT_DECODER, on_error: OnError = fail) -> list[ConstituencyTree]:
    """Read trees, without traces.

    Args:
        source: one of
            "nltk:treebank", NLTK's sample of the Penn Treebank;
            a .mrg, .tree or .ptb file, or any text file of bracketed trees, each on one line or several; labels
            may carry features between ##, as in SPMRL;
            a .jsonl file, whose lines have a tree under `brackets`, a parse without labels under
            `sentence1_binary_parse` (Htut et al. 2018), `binary_parse`, `tree` or `parse`, or a parser's `words` and
            `distances`;
            a .json file, a list of such records;
            a .conllu file of dependency trees: see `tree_of_dependencies`;
            a directory: its .mrg files, sorted by name, or its .jsonl, .tree, .ptb and .txt files if it has none;
            "-", bracketed trees on standard input.
        decoder: decoder for distances; see `tree_from_distances`.
        on_error: called with the error of a tree, or of a file, which is then left out; the default raises it. In a
            file with brackets that do not match, a tree begins with a bracket that begins a line.

    Returns:
        The trees. Sentences that consist only of traces are left out.

    Raises:
        InputError: for a missing or empty file, or a malformed tree; the message names file and line.
    """
    trees = read_every_tree(source, decoder=decoder, on_error=on_error)
    return [tree for tree in trees if tree is not None]


def read_every_tree(
    source: str, *, decoder: str = DEFAULT_DECODER, on_error: OnError = fail
) -> list[ConstituencyTree | None]:
    """Read trees as `read_treebank` does, with None in the place of each that is left out.

    So the trees keep their numbers, and trees of the same sentences their partners.
    """
    trees: list[ConstituencyTree | None] = []
    for name in map(str, _of_directory(Path(source))) if Path(source).is_dir() else [source]:
        before = len(trees)
        try:
            trees += _read_nltk() if name == NLTK_TREEBANK else _read_file(name, decoder, on_error)
            if trees[before:].count(None) == len(trees) - before and on_error is fail:
                raise InputError(f"{name} has no trees")
        except InputError as error:
            on_error(error)
    if trees.count(None) == len(trees):
        raise InputError(f"{source} has no trees that can be read")
    return trees


def read_predictions(
    source: str,
    *,
    gold: Sequence[ConstituencyTree | None] = (),
    sentences: int = 0,
    decoder: str = DEFAULT_DECODER,
    on_error: OnError = fail,
) -> list[ConstituencyTree | None]:
    """Read the trees of a parser, in the order of their sentences.

    If each tree has its own line, each line counts: an empty one is a sentence without a tree.

    Args:
        source: see `read_treebank`.
        gold: the gold trees, as from `read_every_tree`. Where one is missing, the prediction is None, whatever it is; a
            file without any tree in these places is also read.
        sentences: how many sentences were parsed, without gold trees; of the empty lines at the end, those beyond that
            number do not count.
        decoder: see `read_treebank`.
        on_error: called with the error of a line or record, a `NoTree` if it has no words; its tree is then None. The
            default raises the error.

    Raises:
        InputError: see `read_treebank`.
    """
    found = _predictions(source, len(gold) or sentences, decoder, on_error)
    if len(found) == sum(tree is not None for tree in gold) < len(gold):
        rest = iter(found)
        found = [None if tree is None else next(rest) for tree in gold]
    trees: list[ConstituencyTree | None] = []
    for i, result in enumerate(found):
        if i < len(gold) and gold[i] is None:
            result = None
        elif isinstance(result, InputError):
            on_error(result)
            result = None
        trees.append(result)
    return trees


def _predictions(
    source: str, sentences: int, decoder: str, on_error: OnError
) -> list[ConstituencyTree | InputError | None]:
    """The trees of a parser, and errors in the place of others."""
    trees: list[ConstituencyTree | InputError | None] = []
    if source == NLTK_TREEBANK or Path(source).is_dir():
        return [*read_every_tree(source, decoder=decoder, on_error=on_error)]
    if format_of(source) == "json":
        return [*_trees_of_records(source, decoder)]
    lines = read_text(source).removesuffix("\n").split("\n")
    while len(lines) > max(sentences, 1) and not lines[-1].strip():
        lines.pop()
    # Trees that continue on indented lines, as in .mrg files.
    run_on = any(line[:1].isspace() and line.count("(") != line.count(")") for line in lines)
    if run_on and not _is_json(source):
        return [*read_every_tree(source, decoder=decoder, on_error=on_error)]
    for number, line in enumerate(lines, start=1):
        where = f"{source}, line {number}"
        try:
            if not line.strip():
                raise NoTree(f"{where}: the line is empty; each line must have a tree")
            if _is_json(source):
                trees.append(_from_record(json_record(line, where), where, decoder))
            else:
                trees.append(ConstituencyTree.from_brackets(line, source, number))
        except InputError as error:
            trees.append(error)
    return trees


def _of_directory(directory: Path) -> list[Path]:
    for patterns in (("*.mrg",), ("*.jsonl", "*.tree", "*.ptb", "*.txt")):
        files = sorted(file for pattern in patterns for file in directory.rglob(pattern) if file.is_file())
        if files:
            return files
    raise InputError(f"the directory {directory} has no .mrg, .jsonl, .tree, .ptb or .txt files")


def _is_json(source: str) -> bool:
    return format_of(source) in ("json", "jsonl")


def _read_file(source: str, decoder: str, on_error: OnError) -> Iterator[ConstituencyTree | None]:
    if source != "-" and not os.path.exists(source):
        others = f"; trees come from a file, a directory or {NLTK_TREEBANK}"
        raise InputError(f"{source} does not exist{similar_path(source) or others}")
    if format_of(source) == "conllu":
        yield from _read_conllu(source, on_error)
        return
    if _is_json(source):
        for result in _trees_of_records(source, decoder):
            if isinstance(result, InputError) and not isinstance(result, NoTree):
                on_error(result)
            yield None if isinstance(result, InputError) else result
        return
    yield from read_brackets(without_remarks(read_text(source)), source, on_error=on_error)


def _read_conllu(source: str, on_error: OnError) -> Iterator[ConstituencyTree | None]:
    """The phrases of dependency trees; None in the place of each that is left out."""
    last = 0
    errors: list[InputError] = []  # since the last sentence

    def leave_out(error: InputError) -> None:
        errors.append(error)
        on_error(error)

    for number, words, tags, parts in read_tagged_conllu(source, leave_out):
        yield from [None] * (number - last - 1)
        last = number
        errors.clear()
        try:
            yield tree_of_dependencies(words, tags, parts, f"{source}, sentence {number}")
        except InputError as error:
            on_error(error)
            yield None
    yield from [None] * len(errors)


def _trees_of_records(source: str, decoder: str) -> Iterator[ConstituencyTree | InputError]:
    """The trees of JSON lines, or of a JSON list, and errors in the place of others."""
    errors: list[InputError] = []
    unit, rows = read_rows(source, None, errors.append, None)
    for number, record in rows:
        yield from errors
        errors.clear()
        if isinstance(record, str):  # an empty line
            continue
        try:
            yield _from_record(record, f"{source}, {unit} {number}", decoder)
        except InputError as error:
            yield error
    yield from errors


def _from_record(record: dict[str, Any], where: str, decoder: str) -> ConstituencyTree:
    if isinstance(record.get(BRACKETS_KEY), str):
        if not record[BRACKETS_KEY].strip():
            raise NoTree(f"{where}: `{BRACKETS_KEY}` is empty; each record must have a tree")
        return ConstituencyTree.from_brackets(record[BRACKETS_KEY], where)
    for key in BINARY_PARSE_KEYS:
        if isinstance(record.get(key), str):
            return read_binary_parse(record[key], where)
    words = next((record[key] for key in WORDS_KEYS if key in record), None)
    if words is None or DISTANCES_KEY not in record:
        raise InputError(
            f"{where}: no tree; one of {', '.join((BRACKETS_KEY, *BINARY_PARSE_KEYS))} must be a string, or "
            f"`{DISTANCES_KEY}` needs `words` in the same record"
        )
    return _from_distances(words, record[DISTANCES_KEY], where, decoder)


def _from_distances(words: Any, distances: Any, where: str, decoder: str) -> ConstituencyTree:
    words = _WORD.findall(words) if isinstance(words, str) else check_of(list[str])(f"{where}: words", words)
    spaced = next((word for word in words if _WORD.fullmatch(word) is None or not word.strip()), None)
    if spaced is not None:
        raise InputError(f"{where}: a word must have no spaces, but for such as the no-break space; got {spaced!r}")
    distances = check_of(list[float])(f"{where}: {DISTANCES_KEY}", distances)
    try:
        return tree_from_distances(words, distances, decoder)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _read_nltk() -> Iterator[ConstituencyTree | None]:
    from nltk.corpus import treebank

    try:
        for file in treebank.fileids():
            yield from read_brackets(treebank.raw(file), file)
    except LookupError as error:
        raise InputError(
            "NLTK's corpus treebank is not installed: run `python -m nltk.downloader treebank`, or set NLTK_DATA to "
            "where it is"
        ) from error
