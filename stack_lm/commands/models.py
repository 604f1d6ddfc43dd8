"""Options that set how a model reads sentences, and the models that commands open with them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..console import add_model_options, positive_int, print_table
from ..data.text import check_encodable
from ..errors import InputError
from ..messages import check_name
from ..parsing.distances import DECODERS, DEFAULT_DECODER, SHIFTS

if TYPE_CHECKING:
    from ..scoring.parser import Parser
    from ..scoring.sentences import ModelScorer


def add_dropout_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that let several readings of a sentence vote for its tree."""
    parser.add_argument(
        "--dropout-samples",
        type=positive_int,
        metavar="N",
        default=0,
        help="also read each sentence N times with dropout in the embeddings; the trees of these readings vote for the "
        "spans of one tree, which takes N + 1 times as long (Monte Carlo dropout; 16 is a good number)",
    )
    parser.add_argument(
        "--dropout",
        type=float,
        metavar="P",
        help="with --dropout-samples: drop this share of the embeddings' units (default: 0.2)",
    )


def add_parsing_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that turn a model's strengths into trees."""
    parser.add_argument(
        "--signal",
        metavar="NAME",
        help=f"source of the distances: one of {', '.join(SHIFTS)} (default: the push strength; the pop strength if "
        "the push is fixed; run_depth, the depth of the most probable run, for a nondeterministic stack)",
    )
    parser.add_argument(
        "--decoder",
        metavar="NAME",
        help=f"one of {', '.join(DECODERS)} (default: gap for run_depth, because it keeps all spans of the run; "
        f"otherwise {DEFAULT_DECODER})",
    )
    add_layer_option(parser)
    add_model_options(parser)


def add_layer_option(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a memory layer and a word's strength."""
    parser.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="for models with several memory layers: the number of one, from 0 (default: the only one that can parse)",
    )
    add_word_strength_option(parser)


def add_word_strength_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that selects the strength of a word with several tokens."""
    parser.add_argument(
        "--word-strength",
        choices=("first", "last", "sum", "max"),
        default="last",
        help="the strength of a word with several tokens: that of its first or last token, their sum, or the largest "
        "(default: last)",
    )


def first_given(options: argparse.Namespace, names: Sequence[str]) -> str | None:
    """The first of some options that does not have its default, as typed; None if all have theirs."""
    defaults = {"word_strength": "last", "dropout_samples": 0}
    given = (name for name in names if getattr(options, name) != defaults.get(name))
    return next((f"--{name.replace('_', '-')}" for name in given), None)


def check_parsing_options(options: argparse.Namespace) -> None:
    """Check the options before a model is loaded."""
    if options.decoder is not None:
        check_name("--decoder", options.decoder, DECODERS)
    if options.signal is not None:
        check_name("--signal", options.signal, SHIFTS)


def check_dropout_options(options: argparse.Namespace) -> None:
    """Check the options of several readings before a model is loaded."""
    if options.dropout is None:
        return
    if not options.dropout_samples:
        raise InputError("--dropout is for --dropout-samples N; give both")
    if not 0 < options.dropout < 1:
        raise InputError(f"--dropout must be above 0 and below 1; got {options.dropout}")


def reading_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that control how a model reads sentences."""
    return {name: getattr(options, name) for name in ("device", "batch_tokens", "layer", "word_strength")}


def open_scorer(model: str, options: argparse.Namespace) -> ModelScorer:
    """Load the model at a path to trace sentences."""
    from ..scoring.sentences import ModelScorer

    return ModelScorer.from_pretrained(model, **reading_options(options))


def open_parser(model: str, options: argparse.Namespace, *, ensemble: Sequence[str] = ()) -> Parser:
    """Load the model at a path, and others that vote with it, to parse sentences."""
    from ..scoring.parser import Parser

    names = ("signal", "decoder", "dropout_samples")
    how = reading_options(options) | {name: getattr(options, name) for name in names}
    if options.dropout is not None:
        how["dropout"] = options.dropout
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


def print_signals(words: Sequence[str], unknown: np.ndarray | None, signals: Mapping[str, np.ndarray]) -> None:
    """Print a table with a row for each word and a column for each signal; `words` and `unknown` as `shown_words`."""
    rows = zip(shown_words(words, unknown), *(values.tolist() for values in signals.values()), strict=True)
    print_table("", ["word", *(name.replace("_", " ") for name in signals)], list(rows))
