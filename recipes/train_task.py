"""Train a model of a paper on a formal task with several seeds, or all models of one of the papers' tables.

TABLE is the name of a table, such as hao2018/table1, or a YAML file of one; PRESET and TASK make a table of one row.
Any key of model, training and options (those of the task) can be overridden, and output_dir:
`training.epochs=20 model.hidden_size=16`. Each finished trial is one line of results.jsonl in output_dir;
`stack-lm results DIR` shows them beside the paper's numbers.

Example:
    python recipes/train_task.py hao2018/linear_stack hao2018/reversal --seeds 10 --jobs 2
    python recipes/train_task.py hao2018/table1 --jobs 2 --resume
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from stack_lm.config_files import parse_overrides
from stack_lm.console import positive_int, print_json, run_command, script_parser
from stack_lm.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = make_parser()
    options, others = parser.parse_known_args(arguments)
    return run_command("train_task", lambda: _run(options, others))


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = script_parser(__doc__, "train_task.py")
    parser.add_argument("name", metavar="TABLE|PRESET", help="a table, or a preset; `stack-lm presets` lists them")
    parser.add_argument("rest", metavar="TASK|KEY=VALUE", nargs="*", help="a task with a preset; keys to override")
    parser.add_argument("--seeds", type=positive_int, metavar="N", help="trials of each row, with seeds from 0")
    parser.add_argument("--jobs", type=positive_int, metavar="N", default=1, help="worker processes (default: 1)")
    parser.add_argument(
        "--together",
        type=positive_int,
        metavar="N",
        default=10,
        help="trials of a row to train at once in a process, at most (default: 10)",
    )
    parser.add_argument("--rows", metavar="REGEX", help="run only rows of the table whose name this finds")
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument("--resume", action="store_true", help="keep the trials that are finished, and run the others")
    earlier.add_argument("--overwrite", action="store_true", help="run all trials of these rows again")
    parser.add_argument("--json", action="store_true", help="print the table as one JSON object")
    return parser


def _run(options: argparse.Namespace, others: list[str]) -> None:
    # A task after an option is none of the parser's.
    unknown = [argument for argument in others if "=" not in argument and argument.startswith("-")]
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}; an override is written key.key=value")
    rest = options.rest + others
    tasks = [argument for argument in rest if "=" not in argument]
    if len(tasks) > 1:
        raise InputError(f"give one task; got {', '.join(tasks)}")
    overrides: dict[str, Any] = parse_overrides([argument for argument in rest if "=" in argument])
    from stack_lm.commands.results import describe, print_results
    from stack_lm.experiments.run import Experiment, load_table

    output_dir = overrides.pop("output_dir", None)
    experiment = Experiment(
        load_table(options.name, *tasks),
        overrides=overrides,
        output_dir=output_dir,
        seeds=options.seeds,
        rows=options.rows,
        jobs=options.jobs,
        together=options.together,
        resume=options.resume,
        overwrite=options.overwrite,
    )
    results = experiment.run()
    if options.json:
        print_json({"output_dir": experiment.table.output_dir} | describe(results))
    else:
        print_results(results)


if __name__ == "__main__":
    sys.exit(main())
