"""`stack-lm export`: a small copy of a model with its tokenizer and card, its weights in half precision."""

from __future__ import annotations

import argparse
import dataclasses
from typing import get_args

from ...core.console import print_json, print_table
from ...core.errors import InputError
from ...hub.export import Storage, export_model

EXAMPLE = "stack-lm export runs/wikipedia-u1 my-model"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm export`."""
    parser.add_argument("model", metavar="MODEL", help="a model directory, such as a run or one of its checkpoints")
    parser.add_argument("output", metavar="DIRECTORY", help="folder for the copy; it must be absent or empty")
    parser.add_argument("--format", default="transformers", help=argparse.SUPPRESS)  # of releases that wrote ONNX
    parser.add_argument(
        "--dtype",
        choices=get_args(Storage),
        default="float16",
        help="dtype of the stored weights (default: float16); the model still loads and computes in float32",
    )


def run(options: argparse.Namespace) -> None:
    """Write the copy, and print a summary."""
    if options.format != "transformers":
        raise InputError(
            f"--format {options.format} is not supported; torch.export saves a program for other runtimes "
            "(see docs/deployment.md)"
        )
    exported = export_model(options.model, options.output, options.dtype)
    if options.json:
        described = {"model": options.model, "output": options.output, "dtype": options.dtype}
        print_json(described | dataclasses.asdict(exported))
        return
    print_table(
        f"{options.output}, stored in {options.dtype}",
        ["parameters", "MB", "largest rounding error"],
        [(exported.parameters, exported.bytes / 1e6, f"{exported.largest_error:.1e}")],
        caption=", ".join(exported.files),
        text_columns=0,
    )
