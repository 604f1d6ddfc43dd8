"""`stack-lm train parser`: train a parser on trees, or on the votes of several parsers' trees.

data.trees is a file of trees, such as a treebank; or files of trees of the same sentences, one for each voter, such as
those that `stack-lm parse --output` writes for several models. The parser learns how many of them have each span, and
needs no gold tree. Then it parses by itself (`stack-lm parse`, `parse-f1`). Any key can be overridden:
`model.hidden_size=200 training.epochs=8`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..training.config import SpanParserTrainingConfig
from .recipe import add_options, run_recipe

SUMMARY = "train a parser on trees, or on the votes of several parsers"
EXAMPLE = (
    "stack-lm train parser 'data.trees=[u1.mrg, free.mrg, exit.mrg]' output_dir=runs/parser\n"
    "  stack-lm train parser data.trees=train.mrg data.validation=dev.mrg training.epochs=8"
)
__all__ = ["EXAMPLE", "SUMMARY", "add_options", "run"]


def run(options: argparse.Namespace) -> int:
    """Train; returns the exit status."""
    return run_recipe(options, SpanParserTrainingConfig, _load, _show)


def _load() -> Callable[..., Any]:
    from ..training.span_parser import SpanParserTrainer

    return SpanParserTrainer


def _show(output_dir: str, result: dict[str, Any]) -> None:
    print(
        f"{output_dir}: {result['step']:,} updates, {result['epoch']} epochs, {result['seconds']:.0f} s; validation "
        f"loss {result['eval_loss']:.4f}, F1 against the trees of the votes {result['eval_f1']:.2f}"
    )
