"""The common part of `stack-lm train lm`, `classifier` and `parser`: configuration, overrides, and earlier runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..checks import build
from ..config_files import merge, parse_overrides, preset_names, read_config
from ..console import print_json
from ..errors import InputError
from ..training.preemption import STOPPED_STATUS, Stopped, StopSignals


class TrainingRun(Protocol):
    """A training run of a recipe."""

    def train(self) -> dict[str, Any]:
        """Train, and return the results."""


def add_options(parser: argparse.ArgumentParser, *, presets: bool = True) -> None:
    """Add the options of a recipe.

    Args:
        parser: the parser of its command.
        presets: whether there are presets for the command.
    """
    parser.add_argument(
        "overrides",
        metavar="CONFIG|KEY=VALUE",
        nargs="*",
        help=f"a YAML file{', or a preset, which `stack-lm presets` lists' if presets else ''}; keys to override",
    )
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument(
        "--resume",
        action="store_true",
        help="continue from the last checkpoint in output_dir, or start if there is none",
    )
    earlier.add_argument(
        "--overwrite", action="store_true", help="remove what an earlier run wrote in output_dir, and start again"
    )


def run_recipe(
    options: argparse.Namespace,
    config_class: type[Any],
    load: Callable[[], Callable[..., TrainingRun]],
    show: Callable[[str, dict[str, Any]], None],
) -> int:
    """Run a recipe.

    Args:
        options: the options of the command line; see `add_options`.
        config_class: the dataclass of the configuration.
        load: imports and returns the trainer, which takes a configuration, `resume` and `overwrite`.
        show: prints the results for people, given output_dir and the trainer's results. With --json they print as one
            JSON object instead, in which each value with a method `record` is replaced by its result.

    Returns:
        The exit status: 0, or `STOPPED_STATUS` if a signal ended the run early.
    """
    configs, pairs = split_arguments(options.overrides)
    if len(configs) > 1:
        raise InputError(f"give one configuration; got {', '.join(configs)}. An override is written key.key=value")
    values = read_config(configs[0]) if configs else {}
    merge(values, parse_overrides(pairs))
    try:
        config = build(config_class, values)
    except InputError as error:
        # The preset alone fails in the same way, so it belongs to another command.
        if configs and configs[0] in preset_names() and _why_not(config_class, configs[0]) == str(error):
            raise InputError(f"the preset {configs[0]} is for `stack-lm train {_recipe_of(configs[0])}`") from error
        raise
    try:
        with StopSignals(at_once=True):
            trainer = load()
            result = trainer(config, resume=options.resume, overwrite=options.overwrite).train()
    except Stopped as stopped:
        if os.environ.get("RANK", "0") == "0":
            print(f"stack-lm: {stopped}", file=sys.stderr)
        return STOPPED_STATUS
    from accelerate import PartialState

    if PartialState().is_main_process:
        if options.json:
            print_json({"output_dir": config.output_dir} | _records(result))
        else:
            show(config.output_dir, result)
    PartialState().destroy_process_group()
    return 0


def _why_not(config_class: type[Any], preset: str) -> str:
    """The reason why a preset alone is not a configuration of this class."""
    try:
        build(config_class, read_config(preset))
    except InputError as error:
        return str(error)
    return ""


def _recipe_of(preset: str) -> str:
    """The recipe that a preset is for."""
    from ..training.config import ClassificationConfig, RunConfig

    recipes = {"lm": RunConfig, "classifier": ClassificationConfig}
    return next((name for name, config_class in recipes.items() if not _why_not(config_class, preset)), "task")


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of a recipe into names and overrides.

    Raises:
        InputError: for an unknown option.
    """
    unknown = next((argument for argument in arguments if argument.startswith("-") and "=" not in argument), None)
    if unknown is not None:
        such = "training.epochs=2 or, of train lm, data.source=FILE"
        raise InputError(f"unknown option {unknown!r}; an override is written key.key=value, such as {such}")
    names = [a for a in arguments if "=" not in a or a.lower().endswith((".yaml", ".yml"))]
    return names, [a for a in arguments if a not in names]


def _records(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _records(item) for key, item in value.items()}
    return value.record() if hasattr(value, "record") else value
