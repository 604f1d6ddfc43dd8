"""`stack-lm train`: the recipes, which train language models, classifiers, parsers and models of formal tasks."""

from __future__ import annotations

import argparse

from ...core.console import add_command
from ...core.errors import InputError
from . import train_classifier, train_lm, train_parser, train_task

EXAMPLE = f"{train_lm.EXAMPLE}\n  {train_task.EXAMPLE}"
KINDS = {"lm": train_lm, "classifier": train_classifier, "parser": train_parser, "task": train_task}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the recipes."""
    kinds = parser.add_subparsers(title="kinds", metavar="KIND")
    for name, recipe in KINDS.items():
        _, _, description = str(recipe.__doc__).partition("\n\n")
        added = add_command(
            kinds,
            name,
            recipe.run,
            summary=recipe.SUMMARY,
            example=recipe.EXAMPLE,
            description=description,
            nested=True,
        )
        recipe.add_options(added)


def run(options: argparse.Namespace) -> None:
    """Report an error: without a kind there is nothing to train."""
    raise InputError(f"say what to train: {', '.join(KINDS)}; stack-lm train --help describes them")
