"""The commands that parse: `stack-lm parse` and `stack-lm parse-f1`."""

from stack_lm.console import Subparsers

from . import parse, parse_f1


def add_commands(subparsers: Subparsers) -> None:
    """Add the commands of this package."""
    parse.add_command_parse(subparsers)
    parse_f1.add_command_parse_f1(subparsers)
