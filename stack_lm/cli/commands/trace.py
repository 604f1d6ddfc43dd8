"""`stack-lm trace`: all that a network computes at each step of strings, as arrays."""

from __future__ import annotations

import argparse

import numpy as np

from ...core.errors import InputError
from ...core.messages import counted
from ...text.plain import read_lines
from ...training.trials.config import is_task_model
from ..files import check_files
from ..options import option, shared
from ..printing import PrintedTable
from ..report import Report

EXAMPLE = (
    'stack-lm trace runs/hao2018-table1/models/1/0 "1 0 0 1" --output traces.json\n'
    "  stack-lm trace runs/suzgun2019-dyck2/models/1/0 --data strings.txt --output traces.npz\n"
    "  stack-lm trace runs/suzgun2019-dyck2/models/1/0 --split test --limit 1000 --output traces.npz\n"
    "  stack-lm trace gpt2 --data sentences.txt --output traces.parquet"
)
ENDINGS = (".npz", ".parquet", ".json")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm trace`."""
    shared(parser, "MODEL")
    option(parser, "[STRING ...]", "strings of the model's task, or texts", dest="strings")
    option(parser, "--data FILE", "a file with a string on each line; - is standard input")
    option(parser, "--split NAME", "in place of strings: those of this split of the model's task")
    option(parser, "--limit N", "only the first N strings")
    option(parser, "-o, --output FILE", f"the arrays: {', '.join(ENDINGS)}", required=True, endings=ENDINGS)


def run(options: argparse.Namespace) -> Report:
    """Trace the strings, and write the arrays."""
    check_files(options, options.model, options.data)
    if sum(map(bool, (options.strings, options.data, options.split))) != 1:
        raise InputError("give strings, or --data FILE, or --split NAME")
    if options.split and not is_task_model(options.model):
        raise InputError(f"--split is for models of tasks; {options.model} is none")
    strings = options.strings
    if options.data:
        strings = [line for _, line in read_lines(options.data)]
    from ...training.trials.computation import load_task_model
    from ...training.trials.traces import traces, write_traces

    model = load_task_model(options.model) if is_task_model(options.model) else options.model
    if options.split:
        examples = model.task.split(options.split, 0)[: options.limit]
        strings = [model.encoding.encode([example]).inputs[0].tolist() for example in examples]
    found = traces(model, strings[: options.limit])
    if not found:
        raise InputError(f"{options.data or options.split} has no strings")
    write_traces(options.output, found)
    shapes = {name: list(np.shape(value)) for name, value in found[0].items()}
    record = {"model": options.model, "strings": len(found), "arrays": shapes, "written": [options.output]}
    title = f"{counted(len(found), 'string')}; the arrays of the first"
    rows = [[name, " x ".join(map(str, shape))] for name, shape in shapes.items()]
    return Report(record, [PrintedTable(title, ["array", "size"], rows, 2)], [options.output])
