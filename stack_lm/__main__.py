"""`python -m stack_lm`: the `stack-lm` command, also for launchers that start modules."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
