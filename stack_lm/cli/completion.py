"""Tab completion for `stack-lm`: argcomplete handles shells, commands and options; this module names models."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

SHELLS = ("bash", "zsh", "fish", "powershell")


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
        elif action.dest in _COMPLETERS:
            action.completer = _COMPLETERS[action.dest]  # type: ignore[attr-defined]  # argcomplete's way


def models(prefix: str, **_: Any) -> Iterator[str]:
    """Directories that contain a model, and those that may contain one further down."""
    folder, name = os.path.split(prefix)
    for path in sorted(Path(folder or ".").expanduser().glob("*/")):
        if path.name.startswith(name) and (name or not path.name.startswith(".")):
            shown = os.path.join(folder, path.name)
            yield shown if (path / "config.json").is_file() else f"{shown}/"


def names(**_: Any) -> Iterator[str]:
    """Tables, presets, formal tasks, and YAML files."""
    from ..core.config_files import preset_names, table_names
    from ..tasks import task_names

    yield from (*table_names(), *preset_names(), *task_names(), *map(str, Path().glob("*.y*ml")))


def conventions(**_: Any) -> list[str]:
    """Parsing conventions."""
    from ..parsing.conventions import CONVENTIONS

    return list(CONVENTIONS)


_COMPLETERS: dict[str, Callable[..., Iterable[str]]] = {
    **dict.fromkeys(("model", "models", "against", "ensemble"), models),
    **dict.fromkeys(("name", "overrides"), names),
    "convention": conventions,
}
