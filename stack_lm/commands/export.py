"""`stack-lm export`: export a model with its tokenizer and card, in half precision or for ONNX runtimes."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, get_args

from ..console import print_json, print_table
from ..errors import InputError
from ..hub.export import Storage, export_model

EXAMPLE = "stack-lm export runs/wikipedia-u1 my-model"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm export`."""
    parser.add_argument("model", metavar="MODEL", help="a model directory, such as a run or one of its checkpoints")
    parser.add_argument("output", metavar="DIRECTORY", help="folder for the copy; it must be absent or empty")
    parser.add_argument(
        "--format",
        choices=("transformers", "onnx"),
        default="transformers",
        help="transformers (default): a smaller copy; onnx: one step of a language model as a graph for ONNX runtimes",
    )
    parser.add_argument(
        "--dtype",
        choices=get_args(Storage),
        help="dtype of the weights stored for transformers (default: float16); the model still loads and computes in "
        "float32",
    )
    parser.add_argument(
        "--max-elements",
        type=int,
        metavar="N",
        help="with onnx: fix the memory's size, and drop its weakest element when it is full (default: it grows)",
    )


def run(options: argparse.Namespace) -> None:
    """Write the copy, and print a summary."""
    if options.format == "onnx":
        _run_onnx(options)
        return
    if options.max_elements is not None:
        raise InputError(f"--max-elements {options.max_elements} needs --format onnx")
    dtype: Storage = options.dtype or "float16"
    exported = export_model(options.model, options.output, dtype)
    if options.json:
        described = {"model": options.model, "output": options.output, "dtype": dtype}
        print_json(described | dataclasses.asdict(exported))
        return
    print_table(
        f"{options.output}, stored in {dtype}",
        ["parameters", "MB", "largest rounding error"],
        [(exported.parameters, exported.bytes / 1e6, f"{exported.largest_error:.1e}")],
        caption=", ".join(exported.files),
        text_columns=0,
    )


def _run_onnx(options: argparse.Namespace) -> None:
    from ..hub.onnx_export import export_onnx

    if options.dtype not in (None, "float32"):
        raise InputError(f"--dtype {options.dtype} does not go with --format onnx, whose weights are float32")
    if options.max_elements is not None and not 1 <= options.max_elements <= 2**20:
        raise InputError(f"--max-elements must be from 1 to {2**20:,}; got {options.max_elements}")
    exported = export_onnx(options.model, options.output, options.max_elements)
    if options.json:
        print_json({"model": options.model, "output": options.output, "format": "onnx"} | dataclasses.asdict(exported))
        return
    tensors = [("in", *_row(each)) for each in exported.inputs] + [("out", *_row(each)) for each in exported.outputs]
    print_table(
        f"{options.output}, {exported.bytes / 1e6:.1f} MB",
        ["", "name", "type", "shape"],
        tensors,
        caption=", ".join(exported.files),
        text_columns=4,
    )


def _row(tensor: dict[str, Any]) -> tuple[str, str, str]:
    return tensor["name"], tensor["dtype"], " x ".join(map(str, tensor["shape"]))
