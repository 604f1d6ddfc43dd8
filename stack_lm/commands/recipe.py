"""The command line that training recipes share: a configuration, overrides, and what to do with an earlier run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..checks import build
from ..config_files import merge, parse_overrides, read_config
from ..console import print_json, run_command, script_parser
from ..errors import InputError
from ..training.preemption import STOPPED_STATUS, Stopped, StopSignals


class TrainingRun(Protocol):
    """What a recipe runs."""

    def train(self) -> dict[str, Any]:
        """Train, and return the results."""


def run_recipe(
    name: str,
    description: str,
    arguments: Sequence[str] | None,
    load: Callable[[], tuple[type[Any], Callable[..., TrainingRun]]],
    show: Callable[[str, dict[str, Any]], None],
) -> int:
    """Run a training recipe's command.

    Args:
        name: of the command.
        description: its help, with a paragraph that begins with "Example:".
        arguments: the command line; None takes the process's own.
        load: imports and returns the dataclass of the configuration, and the trainer, which takes a configuration,
            `resume` and `overwrite`.
        show: prints the results for people, given output_dir and what the trainer returned. With --json they are one
            JSON object instead, for which each value with a method `record` is replaced by what that returns.

    Returns:
        The exit status: that of `run_command`, or `STOPPED_STATUS` where a signal ended the run early.
    """
    parser = script_parser(description, f"{name}.py")
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", help="a YAML file, or a preset; `stack-lm presets` lists them"
    )
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="keys to override")
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument(
        "--resume",
        action="store_true",
        help="continue from the last checkpoint in output_dir, or start where there is none",
    )
    earlier.add_argument(
        "--overwrite", action="store_true", help="remove what an earlier run wrote in output_dir, and start"
    )
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object")
    options, others = parser.parse_known_args(arguments)
    overrides = [*options.overrides, *others]
    if options.config is not None and "=" in options.config:
        overrides.insert(0, options.config)
        options.config = None

    def run() -> None:
        unknown = [argument for argument in others if "=" not in argument]
        if unknown:
            raise InputError(f"unknown option {unknown[0]!r}; an override is written key.key=value")
        config_class, trainer = load()
        values = read_config(options.config) if options.config else {}
        merge(values, parse_overrides(overrides))
        config = build(config_class, values)
        with StopSignals(at_once=True):
            result = trainer(config, resume=options.resume, overwrite=options.overwrite).train()
        from accelerate import PartialState

        if PartialState().is_main_process:
            if options.json:
                print_json({"output_dir": config.output_dir} | _records(result))
            else:
                show(config.output_dir, result)
        PartialState().destroy_process_group()

    try:
        return run_command(name, run)
    except Stopped as stopped:
        if os.environ.get("RANK", "0") == "0":
            print(f"{name}: {stopped}", file=sys.stderr)
        return STOPPED_STATUS


def _records(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _records(item) for key, item in value.items()}
    return value.record() if hasattr(value, "record") else value
