"""`stack-lm train task`: train a paper's model on a formal task with several seeds, or all models of a paper's table.

TABLE is the name of a table, such as hao2018/table1, or a YAML file of one; PRESET and TASK make a table of one row.
TASK may be a file of your own (.csv, .tsv, .jsonl) with the columns input,output or string,label or text, or a folder
with train, validation and test files; or a language: regex:EXPRESSION, grammar:FILE or automaton:FILE. It takes the
preset's network, with a head for its kind (docs/tasks.md).
Any key of model, training and options (those of the task) can be overridden, and output_dir:
`training.epochs=20 model.hidden_size=16`. Each finished trial is one line of results.jsonl in output_dir;
`stack-lm results DIR` shows them beside the paper's numbers.
"""

from __future__ import annotations

import argparse
from typing import Any

from ...core.config_files import parse_overrides
from ...core.errors import InputError
from ..options import option
from ..recipe import split_arguments
from ..report import Report

SUMMARY = "train a paper's model on a formal task with several seeds, or all models of a paper's table"
EXAMPLE = (
    "stack-lm train task hao2018/linear_stack hao2018/reversal --seeds 10 --jobs 2\n"
    "  stack-lm train task hao2018/table1 --jobs 2 --resume\n"
    "  stack-lm train task hao2018/table1 --jobs 2 --resume --rows reversal -o runs/reversal\n"
    "  stack-lm train task suzgun2019/lstm labels.csv --seeds 3 --jobs 2 options.test=0.2\n"
    "  stack-lm train task flare/lstm 'regex:(ab|b)*' --seeds 3"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm train task`."""
    option(parser, "TABLE|PRESET", "a table, or a preset; `stack-lm presets` lists them", dest="name")
    keys = "a task or a file, with a preset; keys to override"
    option(parser, "[TASK|KEY=VALUE ...]", keys, dest="overrides")
    option(parser, "-o, --output DIR", "the output_dir of the table")
    option(parser, "--seeds N", "trials of each row, with seeds from 0")
    option(parser, "--jobs N", "worker processes", default=1)
    option(parser, "--together N", "train up to N trials of a row at once in a process", default=10)
    device = "or a GPU such as cuda, where each trial trains by itself: give several --jobs"
    option(parser, "--device NAME", device, default="cpu")
    option(parser, "--rows REGEX", "run only the rows of the table whose names match")
    earlier = parser.add_mutually_exclusive_group()
    option(earlier, "--resume", "keep the trials that are finished, and run the others")
    option(earlier, "--overwrite", "run all trials of these rows again")


def run(options: argparse.Namespace) -> Report:
    """Run the trials that are missing, and describe the table."""
    names, pairs = split_arguments([options.name, *options.overrides])
    if not names:
        raise InputError("give a table, or a preset and a task; `stack-lm presets` lists tables and presets")
    name, *tasks = names
    if len(tasks) > 1:
        raise InputError(f"give one task; got {', '.join(tasks)}")
    task = tasks[0] if tasks else None
    overrides: dict[str, Any] = parse_overrides(pairs)
    from ...training.trials.run import Experiment, load_table
    from .results import describe, results_table

    configured = overrides.pop("output_dir", None)
    given = overrides.get("options")
    experiment = Experiment(
        load_table(name, task, options=given if isinstance(given, dict) else {}),
        overrides=overrides,
        output_dir=options.output or configured,
        seeds=options.seeds,
        rows=options.rows,
        jobs=options.jobs,
        together=options.together,
        device=options.device,
        resume=options.resume,
        overwrite=options.overwrite,
    )
    results = experiment.run().of_rows(options.rows)
    return Report({"output_dir": experiment.table.output_dir} | describe(results), results_table(results))
