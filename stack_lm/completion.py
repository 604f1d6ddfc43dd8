"""Tab completion for `stack-lm`: argcomplete handles shells and parsers, this module the names of ours.

The program itself answers each Tab, because the completions depend on the installation and on the words before.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

SHELLS = ("bash", "zsh", "fish", "powershell")
Completer = Callable[..., Iterable[str]]


class PrintCompletion(argparse.Action):
    """The option that prints code for a shell to evaluate."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, value: Any, option: str | None = None) -> None:
        import argcomplete

        print(argcomplete.shellcode([parser.prog], shell=str(value)))
        parser.exit()


def answer(make_parser: Callable[[list[str]], argparse.ArgumentParser]) -> None:
    """Answer the shell that asks for completions, and end the process.

    Args:
        make_parser: the command's parser for some words of the command line.
    """
    import argcomplete

    parser = make_parser(os.environ.get("COMP_LINE", "").split())
    _add_completers(parser)
    argcomplete.autocomplete(parser, always_complete_options="long")


def _add_completers(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_completers(below)
        completer = _BY_PLACE.get((parser.prog, action.dest)) or _BY_NAME.get(action.dest)
        if completer is not None:
            action.completer = completer  # type: ignore[attr-defined]  # argcomplete's way


def models(prefix: str, **_: Any) -> Iterator[str]:
    """Directories that contain a model, and those that may contain one further down."""
    folder, name = os.path.split(prefix)
    for path in sorted(Path(folder or ".").expanduser().glob("*/")):
        if path.name.startswith(name) and (name or not path.name.startswith(".")):
            shown = os.path.join(folder, path.name)
            yield shown if (path / "config.json").is_file() else f"{shown}/"


def conventions(**_: Any) -> Iterable[str]:
    """Parsing conventions."""
    from .parsing.conventions import CONVENTIONS

    return list(CONVENTIONS)


def presets(**_: Any) -> Iterable[str]:
    """Presets."""
    from .config_files import preset_names

    return preset_names()


def tasks(**_: Any) -> Iterable[str]:
    """Formal tasks."""
    from .tasks import task_names

    return task_names()


def _tables(**_: Any) -> Iterable[str]:
    from .config_files import preset_names, table_names

    return [*table_names(), *preset_names(), *_yaml_files()]


def _task_run(prefix: str, **_: Any) -> Iterator[str]:
    from .experiments.config import TaskConfig

    yield from tasks()
    yield from _overrides(TaskConfig, prefix)


def _language_model_run(prefix: str, **_: Any) -> Iterator[str]:
    from .training.config import RunConfig

    yield from _run(RunConfig, prefix, presets())


def _classifier_run(prefix: str, **_: Any) -> Iterator[str]:
    from .training.config import ClassificationConfig

    yield from _run(ClassificationConfig, prefix, presets())


def _parser_run(prefix: str, **_: Any) -> Iterator[str]:
    from .training.config import SpanParserTrainingConfig

    yield from _run(SpanParserTrainingConfig, prefix, [])


def _run(config_class: type, prefix: str, presets: Iterable[str]) -> Iterator[str]:
    if "=" not in prefix:
        yield from (*presets, *_yaml_files())
    yield from _overrides(config_class, prefix)


def _yaml_files() -> Iterator[str]:
    return (str(path) for path in Path().glob("*.y*ml"))


def _overrides(config_class: type, prefix: str, where: str = "") -> Iterator[str]:
    """Overrides `key.key=value` of a configuration: its keys, those below a typed key, and values."""
    from .checks import Nested, checks_of

    for name, check in checks_of(config_class).items():
        key = where + name
        if name == "model" and not where:
            yield from _below("model.", _model_config() if prefix.startswith("model.") else None, prefix)
        elif isinstance(check, Nested):
            yield from _below(f"{key}.", check.kind, prefix)
        elif prefix.startswith(f"{key}="):
            yield from (f"{key}={value}" for value in _values(check))
        else:
            yield f"{key}="


def _below(key: str, config_class: type | None, prefix: str) -> Iterator[str]:
    if config_class is None or not prefix.startswith(key):
        yield key
    else:
        yield from _overrides(config_class, prefix, key)


def _model_config() -> type:
    from .configuration_stack_rnn import StackRNNConfig

    return StackRNNConfig


def _values(check: Any) -> Iterator[str]:
    from .checks import AnyOf, Instance, OneOf

    if isinstance(check, AnyOf):
        for option in check.options:
            yield from _values(option)
    elif isinstance(check, OneOf):
        yield from map(str, check.options() if callable(check.options) else check.options)
    elif isinstance(check, Instance) and check.kind is bool:
        yield from ("true", "false")
    elif isinstance(check, Instance) and check.kind is type(None):
        yield "null"


# By the name of the argument in any command, and also by the command if the name alone does not decide.
_BY_NAME: dict[str, Completer] = {
    "model": models,
    "models": models,
    "against": models,
    "ensemble": models,
    "convention": conventions,
}
_BY_PLACE: dict[tuple[str, str], Completer] = {
    ("stack-lm train lm", "overrides"): _language_model_run,
    ("stack-lm train classifier", "overrides"): _classifier_run,
    ("stack-lm train parser", "overrides"): _parser_run,
    ("stack-lm train task", "name"): _tables,
    ("stack-lm train task", "overrides"): _task_run,
    ("stack-lm presets show", "name"): presets,
    ("stack-lm presets copy", "name"): presets,
    ("stack-lm tasks show", "name"): tasks,
    ("stack-lm tasks check", "name"): tasks,
}
