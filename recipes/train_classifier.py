"""Train a classifier of texts; the same as `stack-lm train classifier`, for launchers that start a file."""

import sys
from collections.abc import Sequence

from stack_lm.cli.main import main as stack_lm


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return stack_lm(["train", "classifier", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
