"""Options that set how a model reads sentences, and the models that commands open with them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.checks import is_number
from ..core.console import positive_int
from ..text.plain import check_encodable
from .options import option
from .printing import PrintedTable

if TYPE_CHECKING:
    from ..scoring.parser import Parser
    from ..scoring.sentences import ModelScorer


def dropout_samples(text: str) -> tuple[int, float | None]:
    """An argument N or N:P: the number of readings with dropout, and the share that is dropped; None is the default."""
    number, colon, share = text.partition(":")
    if colon and not (is_number(share) and 0 < float(share) < 1):
        raise argparse.ArgumentTypeError(f"P of N:P must be above 0 and below 1; got {text!r}")
    return positive_int(number), float(share) if colon else None


def add_dropout_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets several readings of a sentence vote for its tree."""
    option(
        parser,
        "--dropout-samples N[:P]",
        "also read each sentence N times with a share P (0.2) of the embeddings' units dropped; the trees of these "
        "readings vote for the spans of one tree, which takes N + 1 times as long (Monte Carlo dropout; 16 is a good "
        "number)",
        type=dropout_samples,
    )
    parser.set_defaults(dropout_samples=(0, None))


def first_given(options: argparse.Namespace, names: Sequence[str]) -> str | None:
    """The first of some options that does not have its default, as typed; None if all have theirs."""
    defaults = {"word_strength": "last", "dropout_samples": (0, None)}
    given = (name for name in names if getattr(options, name) != defaults.get(name))
    return next((f"--{name.replace('_', '-')}" for name in given), None)


def reading_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that control how a model reads sentences."""
    return {name: getattr(options, name) for name in ("device", "batch_tokens", "layer", "word_strength")}


def open_scorer(model: str, options: argparse.Namespace, **settings: Any) -> ModelScorer:
    """Load the model at a path to trace sentences, with further settings of `ModelScorer`."""
    from ..scoring.sentences import ModelScorer

    return ModelScorer.from_pretrained(model, **reading_options(options), **settings)


def open_parser(model: str, options: argparse.Namespace, *, ensemble: Sequence[str] = ()) -> Parser:
    """Load the model at a path, and others that vote with it, to parse sentences."""
    from ..scoring.parser import Parser

    samples, share = options.dropout_samples
    how = {"signal": options.signal, "decoder": options.decoder, "dropout_samples": samples}
    how |= reading_options(options) | ({} if share is None else {"dropout": share})
    return Parser.from_pretrained(model, ensemble=ensemble, **how)


def words_of(text: str, name: str) -> list[str]:
    """The words of a sentence given as an argument.

    Raises:
        InputError: if its bytes are not UTF-8.
    """
    check_encodable(text, name)
    return text.split()


def shown_words(words: Sequence[str], unknown: np.ndarray | None) -> list[str]:
    """Words for a table, with a mark at those that the model does not know.

    Args:
        words: n words.
        unknown: whether the model does not know a word [n]; None if it knows all.
    """
    if unknown is None:
        return list(words)
    return [f"{word} (unknown)" if rare else word for word, rare in zip(words, unknown, strict=True)]


def signals_table(words: Sequence[str], unknown: np.ndarray | None, signals: Mapping[str, np.ndarray]) -> PrintedTable:
    """A table with a row for each word and a column for each signal; `words` and `unknown` as `shown_words`.

    Of several heads it has the mean.
    """
    shown = {name.replace("_", " "): values.tolist() for name, values in signals.items() if "_head_" not in name}
    rows = zip(shown_words(words, unknown), *shown.values(), strict=True)
    return PrintedTable("", ["word", *shown], list(rows))
