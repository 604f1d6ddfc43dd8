"""The commands that interpret: `stack-lm inspect` and `stack-lm strengths`."""

from ...console import Subparsers
from . import inspect, strengths


def add_commands(subparsers: Subparsers) -> None:
    """Add the commands of this package."""
    inspect.add_command_inspect(subparsers)
    strengths.add_command_strengths(subparsers)
