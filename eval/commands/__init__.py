"""`stack-lm agreement`, `stack-lm minimal-pairs` and `stack-lm perplexity`."""

from stack_lm.console import Subparsers

from .choices import add_agreement, add_minimal_pairs
from .perplexity import add_perplexity


def add_commands(subparsers: Subparsers) -> None:
    """Add the commands of this package."""
    add_agreement(subparsers)
    add_minimal_pairs(subparsers)
    add_perplexity(subparsers)
