"""The `stack-lm` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import __version__
from .commands import agreement, demo, inspect, minimal_pairs, parse, parse_f1, perplexity, presets, strengths, warmup
from .console import quiet_libraries, run_command

COMMANDS = (demo, parse, parse_f1, agreement, minimal_pairs, perplexity, warmup, inspect, strengths, presets)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command and all its subcommands."""
    parser = argparse.ArgumentParser(
        prog="stack-lm",
        description="Stack RNN language models: parse with their push strengths, and score them.",
        epilog="example:\n  stack-lm demo        trains a small model and shows all of it, in a minute or two",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"stack-lm {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status: 0, or 2 after one line on standard error that says what is wrong.
    """
    options = make_parser().parse_args(arguments)

    def run() -> None:
        quiet_libraries()
        options.run(options)

    return run_command("stack-lm", run)


if __name__ == "__main__":
    sys.exit(main())
