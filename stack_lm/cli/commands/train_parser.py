"""`stack-lm train parser`: train a parser on trees, or on the votes of several parsers' trees.

data.trees is a file of trees, such as a treebank; or files of trees of the same sentences, one for each voter, such as
those that `stack-lm parse --output` writes for several models. The parser learns how many of them have each span, and
needs no gold tree. Then it parses by itself (`stack-lm parse`, `parse-f1`).

data.prior=right-branching adds a right-branching tree to the votes, data.prior_votes=N with N votes. A file whose trees
are unlike the others' has no vote (data.outlier_share). data.held_out sentences, or those of data.validation, validate.
Any key can be overridden: `model.hidden_size=200 training.epochs=8`.
"""

from __future__ import annotations

import argparse
from typing import Any

from ...core.messages import counted
from ...training.config import SpanParserTrainingConfig
from ..recipe import add_options as add_recipe_options
from ..recipe import run_recipe
from ..report import Report

SUMMARY = "train a parser on trees, or on the votes of several parsers"
EXAMPLE = (
    "stack-lm train parser 'data.trees=[u1.mrg, free.mrg, exit.mrg]' output_dir=runs/parser\n"
    "  stack-lm train parser data.trees=train.mrg data.validation=dev.mrg training.epochs=8"
)
__all__ = ["EXAMPLE", "SUMMARY", "add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm train parser`."""
    add_recipe_options(parser, presets=False)


def run(options: argparse.Namespace) -> int | Report:
    """Train."""
    return run_recipe(options, SpanParserTrainingConfig, "span_parser.SpanParserTrainer", _show)


def _show(output_dir: str, result: dict[str, Any]) -> list[str]:
    took = f"{result['step']:,} updates, {counted(result['epoch'], 'epoch')}, {result['seconds']:.0f} s"
    scores = f"validation loss {result['eval_loss']:.4f}, F1 against the trees of the votes {result['eval_f1']:.2f}"
    return [f"{output_dir}: {took}; {scores}"]
