"""`stack-lm train task`: train a paper's model on a formal task with several seeds, or all models of a paper's table.

TABLE is the name of a table, such as hao2018/table1, or a YAML file of one; PRESET and TASK make a table of one row.
TASK may be a file of your own (.csv, .tsv, .jsonl) with the columns input,output or string,label or text, or a folder
with train, validation and test files. It takes the preset's network, with a head for its kind (docs/tasks.md).
Any key of model, training and options (those of the task) can be overridden, and output_dir:
`training.epochs=20 model.hidden_size=16`. Each finished trial is one line of results.jsonl in output_dir;
`stack-lm results DIR` shows them beside the paper's numbers.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..config_files import parse_overrides
from ..console import positive_int, print_json
from ..errors import InputError
from .recipe import split_arguments

SUMMARY = "train a paper's model on a formal task with several seeds, or all models of a paper's table"
EXAMPLE = (
    "stack-lm train task hao2018/linear_stack hao2018/reversal --seeds 10 --jobs 2\n"
    "  stack-lm train task hao2018/table1 --jobs 2 --resume\n"
    "  stack-lm train task hao2018/table1 --jobs 2 --resume --shard 1/4\n"
    "  stack-lm train task suzgun2019/lstm labels.csv --seeds 3 --jobs 2 options.test=0.2"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm train task`."""
    parser.add_argument("name", metavar="TABLE|PRESET", help="a table, or a preset; `stack-lm presets` lists them")
    parser.add_argument(
        "overrides", metavar="TASK|KEY=VALUE", nargs="*", help="a task or a file, with a preset; keys to override"
    )
    parser.add_argument("--seeds", type=positive_int, metavar="N", help="trials of each row, with seeds from 0")
    parser.add_argument("--jobs", type=positive_int, metavar="N", default=1, help="worker processes (default: 1)")
    parser.add_argument(
        "--together",
        type=positive_int,
        metavar="N",
        default=10,
        help="train up to N trials of a row at once in a process (default: 10)",
    )
    parser.add_argument(
        "--device",
        metavar="NAME",
        default="cpu",
        help="cpu (default), or a GPU such as cuda, where each trial trains by itself: give several --jobs",
    )
    parser.add_argument("--rows", metavar="REGEX", help="run only the rows of the table whose names match")
    parser.add_argument(
        "--shard", metavar="I/N", help="run only the I-th of N parts of the trials, in output_dir/shards/I-of-N"
    )
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument("--resume", action="store_true", help="keep the trials that are finished, and run the others")
    earlier.add_argument("--overwrite", action="store_true", help="run all trials of these rows again")


def run(options: argparse.Namespace) -> None:
    """Run the trials that are missing, and print the table."""
    names, pairs = split_arguments([options.name, *options.overrides])
    if not names:
        raise InputError("give a table, or a preset and a task; `stack-lm presets` lists tables and presets")
    name, *tasks = names
    if len(tasks) > 1:
        raise InputError(f"give one task; got {', '.join(tasks)}")
    task = tasks[0] if tasks else None
    overrides: dict[str, Any] = parse_overrides(pairs)
    from ..experiments.run import Experiment, load_table
    from ..experiments.shards import Shard
    from .results import describe, print_results

    output_dir = overrides.pop("output_dir", None)
    given = overrides.get("options")
    experiment = Experiment(
        load_table(name, task, options=given if isinstance(given, dict) else {}),
        overrides=overrides,
        output_dir=output_dir,
        seeds=options.seeds,
        rows=options.rows,
        jobs=options.jobs,
        together=options.together,
        device=options.device,
        resume=options.resume,
        overwrite=options.overwrite,
        shard=None if options.shard is None else Shard.parse(options.shard),
    )
    results = experiment.run()
    if options.json:
        print_json({"output_dir": experiment.table.output_dir} | describe(results))
    else:
        print_results(results)
