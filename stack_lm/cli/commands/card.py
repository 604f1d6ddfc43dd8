"""`stack-lm card`: write a model's card, with its data, training and scores."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...hub.card import methods, write_card
from ...hub.evaluations import read_evaluations
from ...text.plain import read_text
from ..options import option
from ..report import Report

EXAMPLE = (
    "stack-lm agreement runs/brown-u1 --data linzen/ --format linzen-gulordava --json > agreement.json\n"
    "  stack-lm card runs/brown-u1 --results agreement.json --license cc-by-sa-4.0"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm card`."""
    option(parser, "MODEL", "a model directory; the card is its README.md")
    results = "output of perplexity, parse-f1, agreement, minimal-pairs or strengths with --json; results of earlier "
    option(parser, "--results FILE ...", f"{results}cards stay")
    option(parser, "--license ID", "license of the weights, by its name on the hub, such as apache-2.0")
    notes = "Markdown to add, such as the sources of the training text and the model's limits; notes of an earlier "
    option(parser, "--notes FILE", f"{notes}card stay")
    option(parser, "--methods", "write nothing, but print a paragraph on the model for the methods of a paper")
    option(parser, "--name NAME", "name of the model (default: the directory's)")


def run(options: argparse.Namespace) -> Report:
    """Write the card."""
    directory = Path(options.model)
    if options.methods:
        paragraph = methods(directory)
        return Report({"model": options.model, "methods": paragraph}, [paragraph])
    results = [result for path in options.results for result in read_evaluations(Path(path), directory)]
    notes = None if options.notes is None else read_text(options.notes)
    path = write_card(directory, results=results, license=options.license, name=options.name, notes=notes)
    return Report({"model": options.model, "card": str(path), "n_results": len(results)}, [str(path)])
