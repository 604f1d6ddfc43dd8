"""The file formats of minimal pairs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from stack_lm.core.errors import InputError, OnError, fail
from stack_lm.core.messages import check_name, shortened, similar_path
from stack_lm.text.files import check_file
from stack_lm.text.formats import cell_value, format_of, is_table, read_rows

from .minimal_pairs import MinimalPair

Words = Literal["given", "split"]
Method = Literal["sentence", "prefix"]
ToWords = Callable[[str], tuple[str, ...]]
Reader = Callable[[Path, Method, ToWords, OnError], Iterator[MinimalPair]]

# Sentences of the templates with a negative polarity item are in groups of three.
_NPI = ("grammatical", "intrusive", "ungrammatical")
_PAIR_KEYS = ("good", "bad", "prefix", "prefix_good", "prefix_bad")


def split_words(text: str) -> tuple[str, ...]:
    """Words as in the Penn Treebank, by NLTK's tokenizer: punctuation and "n't" are separate words."""
    from nltk.tokenize import NLTKWordTokenizer

    return tuple(NLTKWordTokenizer().tokenize(text))


def _given_words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class _PlainUnpickler(pickle.Unpickler):
    """A reader of dictionaries, lists, tuples and strings only: a pickle can name any function, but none is called."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise InputError(f"it wants to import {module}.{name}, which is refused: templates are plain lists of strings")


def _read_marvin_linzen(path: Path, method: Method, words: ToWords, on_error: OnError) -> Iterator[MinimalPair]:
    if method != "sentence":
        raise InputError(f"the templates of Marvin and Linzen have no prefixes; method must be sentence, got {method}")
    check_file(path)
    try:
        with open(path, "rb") as file:
            cases = _PlainUnpickler(file, encoding="utf-8").load()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle may fail in any way
        raise InputError(f"{path} is not a pickle of templates: {str(error) or type(error).__name__}") from error
    if not isinstance(cases, dict) or not all(isinstance(items, list) for items in cases.values()):
        raise InputError(f"{path} must be a dictionary from cases to lists of sentences")
    for case, items in cases.items():
        for number, sentences in enumerate(items, start=1):
            texts = sentences if isinstance(sentences, (tuple, list)) else ()
            if len(texts) not in (2, 3) or not all(isinstance(text, str) and text.strip() for text in texts):
                on_error(InputError(f"{path}, case {case!r}, item {number}: two or three sentences are needed"))
                continue
            properties = {"construction": path.stem, "case": str(case)}
            if len(texts) == 2:
                yield MinimalPair(words(texts[0]), words(texts[1]), properties=properties)
                continue
            for (better, good), (worse, bad) in combinations(zip(_NPI, texts, strict=True), 2):
                compared = {"comparison": f"{better}, {worse}"}
                yield MinimalPair(words(good), words(bad), properties=properties | compared)


MakePair = Callable[[dict[str, Any], str, Path, Method, ToWords], MinimalPair]
"""A pair of a row; the string is its place, for messages."""


def _row_reader(make_pair: MakePair) -> Reader:
    """The reader of tables, and of JSON lines in files with any other ending; each row makes one pair."""

    def read(path: Path, method: Method, words: ToWords, on_error: OnError) -> Iterator[MinimalPair]:
        unit, rows = read_rows(path, None, on_error, format_of(path) if is_table(path) else "jsonl")
        for number, row in rows:
            if not isinstance(row, dict):  # an empty line
                continue
            try:
                pair = make_pair(row, f"{path}, {unit} {number}", path, method, words)
            except InputError as error:
                on_error(error)
            else:
                yield pair

    return read


def _make_blimp_pair(row: dict[str, Any], where: str, path: Path, method: Method, words: ToWords) -> MinimalPair:
    properties: dict[str, str | int] = {"construction": str(row.get("UID", path.stem))}
    for name, key in (("phenomenon", "linguistics_term"), ("field", "field")):
        if key in row:
            properties[name] = str(row[key])
    if isinstance(row.get("dependency_length"), int):
        properties["distance"] = row["dependency_length"]

    def text(key: str) -> tuple[str, ...]:
        return _text(row, key, where, words)

    if method == "sentence":
        return MinimalPair(text("sentence_good"), text("sentence_bad"), properties=properties)
    if row.get("one_prefix_method"):
        prefix = text("one_prefix_prefix")
        good, bad = text("one_prefix_word_good"), text("one_prefix_word_bad")
        return MinimalPair(good, bad, prefix, prefix, properties)
    if row.get("two_prefix_method"):
        # The sentences differ before the word that is compared, which is the same in both.
        word = text("two_prefix_word")
        return MinimalPair(word, word, text("two_prefix_prefix_good"), text("two_prefix_prefix_bad"), properties)
    raise InputError(f"{where}: this pair can be compared by whole sentences only; use the method sentence")


def _make_pair(row: dict[str, Any], where: str, path: Path, method: Method, words: ToWords) -> MinimalPair:
    good, bad = (_text(row, key, where, words) for key in ("good", "bad"))
    sides = [
        next((_text(row, name, where, words) for name in (key, "prefix") if row.get(name) not in (None, "")), ())
        for key in ("prefix_good", "prefix_bad")
    ]
    if method == "prefix" and not any(sides):
        raise InputError(f'{where}: the method prefix needs "prefix", or "prefix_good" and "prefix_bad"')
    rests = [
        side[len(prefix) :] if side[: len(prefix)] == prefix else ()
        for side, prefix in zip((good, bad), sides, strict=True)
    ]
    if all(rests):  # whole sentences, which begin with their prefixes
        good, bad = rests
    if method == "sentence":
        good, bad, sides = sides[0] + good, sides[1] + bad, [(), ()]
    values = ((key, _property(value)) for key, value in row.items() if key not in _PAIR_KEYS)
    properties = {key: value for key, value in values if value is not None}
    return MinimalPair(good, bad, sides[0], sides[1], properties)


def _property(value: Any) -> str | int | None:
    """A property of a pair: whole numbers as such, also from the text of a table; None for an empty cell."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return cell_value(value)
    return value if isinstance(value, int) else None


def _text(row: dict[str, Any], key: str, where: str, words: ToWords) -> tuple[str, ...]:
    if key not in row:
        raise InputError(f"{where} has no {key!r}; it has {shortened(', '.join(row), 200) or 'nothing'}")
    value = row[key]
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return tuple(value)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: {key!r} must be a sentence or a list of words; got {value!r}")
    return words(value)


PAIR_FORMATS: dict[str, tuple[Reader, tuple[str, ...]]] = {
    "blimp": (_row_reader(_make_blimp_pair), (".jsonl",)),
    "marvin-linzen": (_read_marvin_linzen, (".pickle",)),
    "pairs": (_row_reader(_make_pair), (".jsonl", ".csv", ".tsv")),
}
"""Readers by the format's name, and how their files' names end."""


def pair_files(source: str, format_name: str) -> list[str]:
    """The file itself, or a directory's files of a format, in order of their names.

    Raises:
        InputError: for an unknown format, or if there is no such file.
    """
    check_name("format", format_name, PAIR_FORMATS)
    path, endings = Path(source), PAIR_FORMATS[format_name][1]
    if not path.exists():
        raise InputError(f"{path} does not exist{similar_path(path)}")
    if not path.is_dir():
        return [source]
    files = sorted(str(file) for ending in endings for file in path.glob(f"*{ending}"))
    if not files:
        raise InputError(f"the directory {path} has no {' or '.join(endings)} files")
    return files


def read_minimal_pairs(
    source: str,
    format_name: str,
    *,
    method: Method = "sentence",
    words: Words = "given",
    on_error: OnError = fail,
) -> list[MinimalPair]:
    """Read minimal pairs.

    Args:
        source: a file, or a directory of them.
        format_name: "blimp" (Warstadt et al. 2020), "marvin-linzen" (the pickled templates of Marvin and Linzen 2018),
            or "pairs": JSON lines, .csv or .tsv with "good" and "bad", optionally "prefix" or "prefix_good" and
            "prefix_bad", and any other property to group by ("construction", "number", "attractors", ...). "good" and
            "bad" may be whole sentences, both with their prefix, or what follows it.
        method: "sentence" compares whole sentences; "prefix" compares the words after given prefixes: one prefix and
            two words, or, if the sentences differ earlier, two prefixes and one word.
        words: "given" splits at white space, for models that read raw text; "split" separates punctuation and
            contractions, for word-level models.
        on_error: called with the error of a pair, which is then left out; the default raises it.

    Raises:
        InputError: for an unknown name, a missing or malformed file, with the line, or a pickle that imports anything.
    """
    for name, value, allowed in (("method", method, get_args(Method)), ("words", words, get_args(Words))):
        check_name(name, value, allowed)
    to_words = split_words if words == "split" else _given_words
    pairs: list[MinimalPair] = []
    for file in pair_files(source, format_name):
        before = len(pairs)
        pairs += PAIR_FORMATS[format_name][0](Path(file), method, to_words, on_error)
        if len(pairs) == before:
            raise InputError(f"{file} has no pairs")
    return pairs
