"""The common part of `stack-lm train lm`, `classifier` and `parser`: configuration, overrides, and earlier runs."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from ..core.checks import build
from ..core.config_files import merge, parse_overrides, preset_names, read_config
from ..core.errors import InputError
from ..training.freed_memory import keep_freed_memory
from ..training.preemption import STOPPED_STATUS, Stopped, StopSignals
from .options import option
from .printing import PrintedTable
from .report import Report

# A key, and its value, which may be a file: data.source=notes.yml.
_OVERRIDE = re.compile(r"(--)?[\w.-]+=")


def add_options(parser: argparse.ArgumentParser, *, presets: bool = True) -> None:
    """Add the options of a recipe.

    Args:
        parser: the parser of its command.
        presets: whether there are presets for the command.
    """
    kinds = ", or a preset, which `stack-lm presets` lists" * presets
    option(parser, "[CONFIG|KEY=VALUE ...]", f"a YAML file{kinds}; keys to override", dest="overrides")
    option(parser, "-o, --output DIR", "the output_dir of the configuration")
    earlier = parser.add_mutually_exclusive_group()
    option(earlier, "--resume", "continue from the last checkpoint in output_dir, or start if there is none")
    option(earlier, "--overwrite", "remove what an earlier run wrote in output_dir, and start again")


def run_recipe(
    options: argparse.Namespace,
    config_class: type[Any],
    trainer: str,
    show: Callable[[str, dict[str, Any]], Iterable[PrintedTable | str]],
) -> int | Report:
    """Run a recipe.

    Args:
        options: the options of the command line; see `add_options`.
        config_class: the dataclass of the configuration.
        trainer: its module in stack_lm.training and its class, which takes a configuration, `resume` and `overwrite`.
        show: the tables and lines of the results for people, given output_dir and the trainer's results. In the record
            for --json, each value with a method `record` is replaced by its result.

    Returns:
        A report; or the exit status: `STOPPED_STATUS` if a signal ended the run early, 0 in all processes but the main.
    """
    configs, pairs = split_arguments(options.overrides)
    if len(configs) > 1:
        raise InputError(f"give one configuration; got {', '.join(configs)}. An override is written key.key=value")
    values = read_config(configs[0]) if configs else {}
    if configs and configs[0] in preset_names() and not _fits(config_class, values):
        from ..training.config import ClassificationConfig, RunConfig  # heavy, and `tasks` imports this module

        recipes = {"lm": RunConfig, "classifier": ClassificationConfig}
        recipe = next((name for name, kind in recipes.items() if _fits(kind, values)), "task")
        raise InputError(f"the preset {configs[0]} is for `stack-lm train {recipe}`")
    merge(values, parse_overrides(pairs))
    if options.output is not None:
        values["output_dir"] = options.output
    config = build(config_class, values)
    config.check()
    config.find_data()  # before torch loads, which takes seconds
    keep_freed_memory()
    try:
        with StopSignals(at_once=True):
            module, _, name = trainer.partition(".")
            train = getattr(import_module(f"stack_lm.training.{module}"), name)
            result = train(config, resume=options.resume, overwrite=options.overwrite).train()
    except Stopped as stopped:
        if os.environ.get("RANK", "0") == "0":
            print(f"stack-lm: {stopped}", file=sys.stderr)
        return STOPPED_STATUS
    from accelerate import PartialState

    is_main = PartialState().is_main_process
    PartialState().destroy_process_group()
    if not is_main:
        return 0
    return Report({"output_dir": config.output_dir} | _records(result), show(config.output_dir, result))


def _fits(config_class: type[Any], values: dict[str, Any]) -> bool:
    """True if a preset alone is a configuration of this class."""
    try:
        build(config_class, values)
    except InputError:
        return False
    return True


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of a recipe into names and overrides.

    Raises:
        InputError: for an unknown option.
    """
    unknown = next((argument for argument in arguments if argument.startswith("-") and "=" not in argument), None)
    if unknown is not None:
        such = "training.epochs=2 or, of train lm, data.source=FILE"
        raise InputError(f"unknown option {unknown!r}; an override is written key.key=value, such as {such}")
    names = [argument for argument in arguments if not _OVERRIDE.match(argument) or os.path.isfile(argument)]
    return names, [argument for argument in arguments if argument not in names]


def _records(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _records(item) for key, item in value.items()}
    return value.record() if hasattr(value, "record") else value
