"""The pages of settings, made from the code: the keys of configurations, and the options of the commands.

A field's type gives the values that a key takes, its class's docstring the meaning. mkdocs calls `on_files`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

TRAINING = """# Configuration keys

The keys of `stack-lm train`, from the code that checks them. [Training](training.md#configurations) explains how
configurations inherit and how the command line overrides a key. The keys of `model` are [here](model-configuration.md).
"""
TABLES = """## Tables of experiments

The keys of a table's file for `stack-lm train task` ([experiments](experiments.md)); a row has those below `rows[]`.
"""
MODELS = """# Model configuration

The fields of each kind of model, as the keys `model.*` of a configuration file and as arguments in Python. Where the
default is a dash, the memory or another field decides. `model.model_type` selects the kind; the default is `stack_rnn`.
"""
COMMANDS = """# Commands

Every command has `--help`, and `--json` prints one JSON object on standard output. The exit status is 0, 2 for wrong
input, 1 where the machine refuses (a full disk, no memory left) and 130 after an interruption. `eval "$(stack-lm
--print-completion bash)"` completes commands, options, models and presets at Tab (also zsh, fish, powershell).
"""
# The words of `Check.allowed`, as the tables have them.
SHORT = {
    r"\bone of ": "",
    r"\ban? (?:finite )?": "",
    " of at least ": " ≥ ",
    " above ": " > ",
    " below ": " < ",
    "True or False": "true, false",
    "None": "null",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    from mkdocs.structure.files import File

    for uri, content in made_pages().items():
        files.append(File.generated(config, uri, content=content))
    return files


def made_pages() -> dict[str, str]:
    """The pages of settings by their names."""
    from stack_lm.cli.main import make_parser
    from stack_lm.training.config import ClassificationConfig, RunConfig, SpanParserTrainingConfig
    from stack_lm.training.trials.config import Table, TaskConfig

    kinds = {
        "lm": RunConfig,
        "classifier": ClassificationConfig,
        "parser": SpanParserTrainingConfig,
        "task": TaskConfig,
    }
    training = TRAINING + "".join(f"\n## stack-lm train {name}\n\n{table(cls)}" for name, cls in kinds.items())
    commands = COMMANDS + "".join(f"\n{text}" for text in command_sections(make_parser()))
    return {
        "configuration.md": f"{training}\n{TABLES}\n{table(Table)}",
        "model-configuration.md": MODELS + "".join(f"\n{text}" for text in model_sections()),
        "commands.md": commands,
    }


def model_sections() -> Iterator[str]:
    """A section for each kind of model, and for what is nested in one."""
    from stack_lm import (
        BufferedStackRNNConfig,
        DeepStackRNNConfig,
        SpanParserConfig,
        StackRNNConfig,
        StackTransformerConfig,
    )
    from stack_lm.models.configuration_deep import LayerConfig
    from stack_lm.models.configuration_layers import AuxiliaryLoss, Decay, RecurrentLayer

    yield f"## stack_rnn\n\n{_summary(StackRNNConfig)}\n\n{table(StackRNNConfig)}"
    own = vars(BufferedStackRNNConfig)["__annotations__"]
    yield f"## buffered_stack_rnn\n\n{_summary(BufferedStackRNNConfig)}\n\n{table(BufferedStackRNNConfig, only=own)}"
    yield f"## deep_stack_rnn\n\n{_summary(DeepStackRNNConfig)}\n\n{table(DeepStackRNNConfig)}"
    for key, cls in {"layers[]": LayerConfig, "auxiliary_losses[]": AuxiliaryLoss, "weight": Decay}.items():
        yield f"### {key}\n\n{_summary(cls)}\n\n{table(cls)}"
    yield f"## stack_transformer\n\n{_summary(StackTransformerConfig)}\n\n{table(StackTransformerConfig)}"
    yield f"### layers[] with a controller\n\n{_summary(RecurrentLayer)}\n\n{table(RecurrentLayer)}"
    yield f"## span_parser\n\n{_summary(SpanParserConfig)}\n\n{table(SpanParserConfig)}"


def table(cls: type, only: Any = None) -> str:
    """The keys of a configuration as a table; those of dataclasses in it follow, with their prefix.

    Args:
        cls: a dataclass, or a configuration of a model.
        only: the names of the fields to show; None shows all.
    """
    rows = [("key", "values", "default", "meaning"), ("---",) * 4, *_rows(cls, only)]
    return '<div class="keys" markdown>\n\n' + "".join(f"| {' | '.join(cells)} |\n" for cells in rows) + "\n</div>\n"


def _rows(cls: type, only: Any = None, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    from stack_lm.core.checks import ListOf, Nested, checks_of

    meanings, checks = descriptions(cls), checks_of(cls)
    nested = []
    for field in dataclasses.fields(cls):
        if field.name not in checks or (only is not None and field.name not in only):
            continue
        check, key = checks[field.name], prefix + field.name
        if isinstance(check, Nested):
            nested.append((check.kind, f"{key}."))
            continue
        if isinstance(check, ListOf) and isinstance(check.entry, Nested):
            nested.append((check.entry.kind, f"{key}[]."))
        values, default = _of_memories(field.name) if field.name == "memory" or field.default is None else ("", "")
        values, default = values or check.allowed(None), default or _default(field)
        yield f"`{key}`", _cell(_values(values)), default, _cell(meanings.get(field.name, ""))
    for kind, below in nested:
        yield from _rows(kind, None, below)


def _of_memories(name: str) -> tuple[str, str]:
    """The values of a setting that memories declare, and the default that each has; empty for any other key."""
    from stack_lm.memory.base import MEMORIES
    from stack_lm.memory.settings import setting_check

    if name == "memory":
        return ", ".join(map(repr, MEMORIES.registered)), ""
    check = setting_check("none", name)
    if check is None:
        return "", ""
    declared = {kind: memory.settings[name] for kind, memory in MEMORIES.registered.items() if name in memory.settings}
    defaults = {kind: getattr(setting, "default", setting) for kind, setting in declared.items()}
    values = list(map(_shown, defaults.values()))
    if len(set(values)) == 1:
        return check.allowed(None), values[0]
    return check.allowed(None), ", ".join(f"{kind}: {value}" for kind, value in zip(defaults, values, strict=True))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    elif field.default is dataclasses.MISSING:
        return "required"
    else:
        value = field.default
    return _shown(value) if value is not None or "None" in str(field.type) else "—"


def _shown(value: Any) -> str:
    """A value as YAML has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"`{value}`" if value not in ("", [], {}) else "empty"


def descriptions(cls: type) -> dict[str, str]:
    """Read the descriptions of a class's fields from its docstring and those of its bases.

    Returns:
        The description of each field, in one line; the class's own words come before those of a base.
    """
    found: dict[str, str] = {}
    for base in cls.__mro__:
        text = inspect.cleandoc(vars(base).get("__doc__") or "")
        section = re.search(r"^(?:Attributes|Args):\n((?:[ ]+.*\n|\n)*)", text + "\n", re.MULTILINE)
        entries = re.findall(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE)
        for names, words in entries:
            for name in names.split(", "):
                found.setdefault(name, " ".join(words.split()))
    return found


def _summary(cls: type) -> str:
    """The text of a class's docstring before its sections."""
    return re.split(r"\n\n(?:Attributes|Args):", inspect.cleandoc(cls.__doc__ or ""))[0]


def command_sections(parser: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    """A section for each command below a parser, with its usage, its options and its example."""
    for command in _subcommands(parser):
        without = argparse._HelpAction, argparse._SubParsersAction
        described = [action for action in command._actions if not isinstance(action, without)]
        command.formatter_class = functools.partial(argparse.HelpFormatter, width=72)
        summary = re.sub(r"\bdocs/(\w+\.md)", r"[\1](\1)", _escaped(command.description or ""))
        parts = [f"{'#' * level} {command.prog}", summary, f"```text\n{command.format_usage().strip()}\n```"]
        parts.append("\n".join(f"- `{_invocation(action)}`: {_escaped(action.help or '')}" for action in described))
        if command.epilog:
            example = inspect.cleandoc(command.epilog.partition("\n")[2])
            parts.append(f"```sh\n{example}\n```")
        yield "\n\n".join(filter(None, parts)) + "\n"
        yield from command_sections(command, level + 1)


def _subcommands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _invocation(action: argparse.Action) -> str:
    """An option as it is typed."""
    if action.choices and not action.metavar:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        value = str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return value
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def _escaped(text: str) -> str:
    """A text in which `<` begins no tag, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;").replace("*", r"\*") for part in parts)


def _values(text: str) -> str:
    """The values that a check names in its message, in fewer words."""
    for words, short in SHORT.items():
        text = re.sub(words, short, text)
    return text


def _cell(text: str) -> str:
    """A text in a cell of a table, without the full stop of a single sentence."""
    text = re.sub(r"'([^' ]+)'", r"`\1`", _escaped(text)).replace("|", r"\|")
    return text if ". " in text else text.removesuffix(".")
