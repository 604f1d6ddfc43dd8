"""`stack-lm card`: write a model's card, with its data, training and scores."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...core.console import print_json
from ...hub.card import write_card
from ...hub.evaluations import read_evaluations
from ...text.plain import read_text

EXAMPLE = (
    "stack-lm agreement runs/brown-u1 --data linzen/ --format linzen-gulordava --json > agreement.json\n"
    "  stack-lm card runs/brown-u1 --results agreement.json --license cc-by-sa-4.0"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm card`."""
    parser.add_argument("model", metavar="MODEL", help="a model directory; the card is its README.md")
    parser.add_argument(
        "--results",
        nargs="+",
        default=[],
        metavar="F",
        help="output of perplexity, parse-f1, agreement, minimal-pairs or strengths with --json; results of earlier "
        "cards stay",
    )
    parser.add_argument(
        "--license", metavar="ID", help="license of the weights, by its name on the hub, such as apache-2.0"
    )
    parser.add_argument(
        "--notes",
        metavar="FILE",
        help="Markdown to add, such as the sources of the training text and the model's limits; notes of an earlier "
        "card stay",
    )
    parser.add_argument("--name", help="name of the model (default: the directory's)")


def run(options: argparse.Namespace) -> None:
    """Write the card."""
    directory = Path(options.model)
    results = [result for path in options.results for result in read_evaluations(Path(path), directory)]
    notes = None if options.notes is None else read_text(options.notes)
    path = write_card(directory, results=results, license=options.license, name=options.name, notes=notes)
    if options.json:
        print_json({"model": options.model, "card": str(path), "n_results": len(results)})
    else:
        print(path)
