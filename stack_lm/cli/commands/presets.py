"""`stack-lm presets`: the configurations of the papers' models."""

from __future__ import annotations

import argparse
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from ...core.checks import build
from ...core.config_files import PresetNote, dump_yaml, preset_names, preset_path, read_layers, read_yaml, table_names
from ...core.console import add_command
from ...training.trials.config import Table
from ..options import option
from ..printing import PrintedTable
from ..report import Report

EXAMPLE = (
    "stack-lm presets\n"
    "  stack-lm presets show merrill2019/brown_u1\n"
    "  stack-lm presets show merrill2019/brown_u1 > mine.yaml\n"
    "  stack-lm train lm merrill2019/brown_u1 training.epochs=2"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm presets`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    summary = "print a preset or a table as one YAML file, with the comments of its parts"
    example = "stack-lm presets show suzgun2019/stack_rnn_softmax"
    show = add_command(actions, "show", show_preset, summary=summary, example=example, nested=True)
    option(show, "NAME", "a name from the list, such as merrill2019/brown_u1")


def run(options: argparse.Namespace) -> Report:
    """Describe all presets."""
    counts = _counts()
    presets = [_describe(name, read_yaml(preset_path(name)), counts) for name in preset_names()]
    tables = [_describe_table(name, Table.build(read_yaml(preset_path(name, tables=True)))) for name in table_names()]
    shown: list[PrintedTable | str] = []
    for paper, group in groupby(presets, key=itemgetter("paper")):
        rows = [[preset[key] for key in ("name", "table", "class", "parameters")] for preset in group]
        shown.append(PrintedTable(paper, ["preset", "table", "class", "parameters"], rows, 3))
    contents = [tuple(table.values()) for table in tables]
    shown.append(
        PrintedTable("Tables of presets, for `stack-lm train task`", ["table", "content", "rows"], contents, 2)
    )
    shown.append("Parameters are counted with the vocabulary sizes that `stack-lm presets show NAME` prints.")
    return Report({"presets": presets, "tables": tables}, shown)


def show_preset(options: argparse.Namespace) -> Report:
    """Describe one preset or table."""
    path = preset_path(options.name, tables=True)
    config = read_yaml(path)
    if options.name in table_names():
        text, record = path.read_text(encoding="utf-8"), _describe_table(options.name, Table.build(config))
    else:
        record = _describe(options.name, config, _counts())
        text = _text(record, config)
    return Report(record | {"config": config}, [text.removesuffix("\n")])


def _describe(name: str, config: dict[str, Any], counts: dict[str, int]) -> dict[str, Any]:
    """A preset for JSON."""
    note = build(PresetNote, config["preset"], "preset.")
    (architecture,) = config["model"]["architectures"]
    about = {"paper": note.paper, "table": note.table, "task": note.task, "class": architecture}
    return {"name": name, **about, "parameters": counts[name], "sizes": note.sizes}


def _describe_table(name: str, table: Table) -> dict[str, Any]:
    return {"name": name, "title": table.title, "rows": len(table.rows)}


def _text(preset: dict[str, Any], config: dict[str, Any]) -> str:
    """The configuration as one YAML file, headed by a description and the comments of the files it is made of."""
    sizes = ", ".join(f"{key} {value}" for key, value in preset["sizes"].items())
    head = [
        "# {name}: {paper}, {table}; {task}.".format(**preset),
        f"# {preset['class']} with {preset['parameters']:,} parameters for {sizes}.",
    ]
    for path, _ in read_layers(preset_path(preset["name"])):
        lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
        comments = [line for line in lines if line.startswith("#")]
        head += ["#", *comments] if comments else []
    return "\n".join(head) + "\n" + dump_yaml(config, allow_unicode=True, width=100)


def _counts() -> dict[str, int]:
    """The numbers of parameters by preset: a file, since loading torch to count them takes seconds."""
    return read_yaml(Path(str(files("stack_lm.configs"))) / "parameters.yaml")
