"""Train a number prediction classifier, from a YAML configuration and overrides, and test it by attractors.

The data are the files of the number prediction task of Linzen et al. (2016): a verb's tag (VBZ or VBP), a tab, and the
words before the verb. Any key can be overridden: `training.patience=3 model.hidden_size=200`. Without data.validation
(null), a share of the training file is held out to decide when to stop.

Example:
    python recipes/train_classifier.py merrill2019/numpred_u1 data.train=numpred.val \
        data.validation=null 'data.test=[numpred.test.1, numpred.test.2]'
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    from stack_lm.commands.recipe import run_recipe

    return run_recipe("train_classifier", str(__doc__), arguments, _load, _show)


def _load() -> tuple[type[Any], Callable[..., Any]]:
    from stack_lm.training.config import NumberPredictionConfig
    from stack_lm.training.number_prediction import NumberPredictionTrainer

    return NumberPredictionConfig, NumberPredictionTrainer


def _show(output_dir: str, result: dict[str, Any]) -> None:
    from stack_lm.console import print_table

    tests = result["test"]
    caption = f"best validation: accuracy {result['eval_accuracy']:.2f} after epoch {result['best_epoch']}"
    print_table(
        f"number prediction accuracy in %, {output_dir}",
        ["test file", "accuracy", "always the more frequent number", "n"],
        [(Path(path).name, test.accuracy, test.overall.majority, test.n) for path, test in tests.items()],
        caption=f"{caption} of {result['epochs']}",
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while modules load; all else is a matter of `run_recipe`
        print("train_classifier: interrupted", file=sys.stderr)
        sys.exit(130)
