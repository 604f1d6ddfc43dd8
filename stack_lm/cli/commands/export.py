"""`stack-lm export`: a small copy of a model with its tokenizer and card, its weights in half precision."""

from __future__ import annotations

import argparse
import dataclasses
from typing import get_args

from ...hub.export import Storage, export_model
from ..options import option
from ..printing import PrintedTable
from ..report import Report

EXAMPLE = "stack-lm export runs/wikipedia-u1 my-model"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm export`."""
    option(parser, "MODEL", "a model directory, such as a run or one of its checkpoints")
    option(parser, "DIRECTORY", "folder for the copy; it must be absent or empty", dest="output")
    dtype = "dtype of the stored weights; the model still loads and computes in float32"
    option(parser, "--dtype", dtype, choices=get_args(Storage), default="float16")


def run(options: argparse.Namespace) -> Report:
    """Write the copy, and describe it."""
    exported = export_model(options.model, options.output, options.dtype)
    record = {"model": options.model, "output": options.output, "dtype": options.dtype} | dataclasses.asdict(exported)
    columns = ["parameters", "MB", "largest rounding error"]
    row = (exported.parameters, exported.bytes / 1e6, f"{exported.largest_error:.1e}")
    title = f"{options.output}, stored in {options.dtype}"
    return Report(record, [PrintedTable(title, columns, [row], 0, ", ".join(exported.files))])
