"""`stack-lm train classifier`: train a classifier of texts, and test it.

The data are tables (.csv, .tsv, .json, .jsonl, .parquet; compressed too) with a column of texts (data.column) and one
of labels (data.label_column): any strings or integers. Or they are the files of the number prediction task of Linzen et
al. (2016): a verb's tag (VBZ or VBP), a tab, and the words before the verb. Any key can be overridden:
`training.patience=3 model.hidden_size=200`. Without data.validation (null), a share of the training file is held out to
decide when to stop.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ...training.config import ClassificationConfig
from ..files import short_names
from ..printing import PrintedTable
from ..recipe import add_options, run_recipe
from ..report import Report

SUMMARY = "train a classifier of texts, and test it"
EXAMPLE = (
    "stack-lm train classifier data.train=reviews.csv data.test=test.csv data.column=review model.embedding_size=50\n  "
    "stack-lm train classifier merrill2019/numpred_u1 data.train=numpred.val data.validation=null "
    "'data.test=[numpred.test.1, numpred.test.2]'"
)
__all__ = ["EXAMPLE", "SUMMARY", "add_options", "run"]


def run(options: argparse.Namespace) -> int | Report:
    """Train and test."""
    return run_recipe(options, ClassificationConfig, "classification.ClassificationTrainer", _show)


def _show(output_dir: str, result: dict[str, Any]) -> Iterator[PrintedTable | str]:
    tests = dict(zip(short_names(list(result["test"])), result["test"].values(), strict=True))
    tables = {name: test for name, test in tests.items() if hasattr(test, "macro_f1")}
    note = f"kept: epoch {result['best_epoch']} of {result['epochs']}, whose validation loss is the lowest "
    note += f"(accuracy {result['eval_accuracy']:.2f})"
    numbers = {name: test for name, test in tests.items() if name not in tables}
    if numbers:
        rows = [(name, test.accuracy, test.overall.majority, test.n) for name, test in numbers.items()]
        columns = ["test file", "accuracy", "always the more frequent number", "n"]
        yield PrintedTable(f"number prediction accuracy in %, {output_dir}", columns, rows, note=note)
    if tables:
        scores = [(name, test.accuracy, test.macro_f1, test.majority, test.n) for name, test in tables.items()]
        columns = ["test file", "accuracy", "macro F1", "always the most frequent label", "n"]
        yield PrintedTable(f"classification in %, {output_dir}", columns, scores, note=note)
    for name, test in tables.items():
        labels = [(one.label, one.precision, one.recall, one.f1, one.n) for one in test.labels]
        yield PrintedTable(f"labels of {name}, in %", ["label", "precision", "recall", "F1", "n"], labels)
    if not tests:
        yield f"{output_dir}: {note}"
