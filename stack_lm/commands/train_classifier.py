"""`stack-lm train classifier`: train a number prediction classifier, and test it by attractors.

The data are the files of the number prediction task of Linzen et al. (2016): a verb's tag (VBZ or VBP), a tab, and the
words before the verb. Any key can be overridden: `training.patience=3 model.hidden_size=200`. Without data.validation
(null), a share of the training file is held out to decide when to stop.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..console import print_table
from .recipe import add_options, run_recipe

SUMMARY = "train a number prediction classifier, and test it by attractors"
EXAMPLE = (
    "stack-lm train classifier merrill2019/numpred_u1 data.train=numpred.val data.validation=null "
    "'data.test=[numpred.test.1, numpred.test.2]'"
)
__all__ = ["EXAMPLE", "SUMMARY", "add_options", "run"]


def run(options: argparse.Namespace) -> int:
    """Train and test; returns the exit status."""
    return run_recipe(options, _load, _show)


def _load() -> tuple[type[Any], Callable[..., Any]]:
    from ..training.classification import ClassificationTrainer
    from ..training.config import ClassificationConfig

    return ClassificationConfig, ClassificationTrainer


def _show(output_dir: str, result: dict[str, Any]) -> None:
    tests = result["test"]
    caption = f"best validation: accuracy {result['eval_accuracy']:.2f} after epoch {result['best_epoch']}"
    print_table(
        f"number prediction accuracy in %, {output_dir}",
        ["test file", "accuracy", "always the more frequent number", "n"],
        [(Path(path).name, test.accuracy, test.overall.majority, test.n) for path, test in tests.items()],
        caption=f"{caption} of {result['epochs']}",
    )
