"""`stack-lm presets`: the configurations of the papers' models."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
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


@dataclass(frozen=True)
class Preset:
    """A preset as `stack-lm presets` describes it.

    Attributes:
        name: such as "merrill2019/brown_u1".
        note: its paper, table and task.
        model_class: name of the model's class.
        parameters: number of parameters, with the data's sizes in `note.sizes`.
        config: the whole configuration, the `preset` key included.
    """

    name: str
    note: PresetNote
    model_class: str
    parameters: int
    config: dict[str, Any]

    @classmethod
    def read(cls, name: str) -> Preset:
        """Read a preset and count its parameters.

        Raises:
            InputError: if there is no preset of that name.
        """
        config = read_yaml(preset_path(name))
        note = build(PresetNote, config["preset"], "preset.")
        (architecture,) = config["model"]["architectures"]
        parameters = _known_counts().get(name) or count_parameters(config)
        return cls(name, note, architecture, parameters, config)

    def record(self) -> dict[str, Any]:
        """The description for JSON."""
        return {
            "name": self.name,
            "paper": self.note.paper,
            "table": self.note.table,
            "task": self.note.task,
            "class": self.model_class,
            "parameters": self.parameters,
            "sizes": self.note.sizes,
        }

    def text(self) -> str:
        """The configuration as one YAML file, headed by a description and the comments of the files it is made of."""
        sizes = ", ".join(f"{key} {value}" for key, value in self.note.sizes.items())
        head = [
            f"# {self.name}: {self.note.paper}, {self.note.table}; {self.note.task}.",
            f"# {self.model_class} with {self.parameters:,} parameters for {sizes}.",
        ]
        for path, _ in read_layers(preset_path(self.name)):
            lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
            comments = [line for line in lines if line.startswith("#")]
            head += ["#", *comments] if comments else []
        body = dump_yaml(self.config, allow_unicode=True, width=100)
        return "\n".join(head) + "\n" + body


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm presets`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    summary = "print a preset or a table as one YAML file, with the comments of its parts"
    example = "stack-lm presets show suzgun2019/stack_rnn_softmax"
    show = add_command(actions, "show", show_preset, summary=summary, example=example, nested=True)
    option(show, "NAME", "a name from the list, such as merrill2019/brown_u1")


def run(options: argparse.Namespace) -> Report:
    """Describe all presets."""
    presets = [Preset.read(name) for name in preset_names()]
    tables = {name: Table.build(read_yaml(preset_path(name, tables=True))) for name in table_names()}
    of_tables = [_record_of(name, table) for name, table in tables.items()]
    shown: list[PrintedTable | str] = []
    for paper, group in groupby(presets, key=lambda preset: preset.note.paper):
        rows = [(preset.name, preset.note.table, preset.model_class, preset.parameters) for preset in group]
        shown.append(PrintedTable(paper, ["preset", "table", "class", "parameters"], rows, 3))
    contents = [tuple(record.values()) for record in of_tables]
    shown.append(
        PrintedTable("Tables of presets, for `stack-lm train task`", ["table", "content", "rows"], contents, 2)
    )
    shown.append("Parameters are counted with the vocabulary sizes that `stack-lm presets show NAME` prints.")
    return Report({"presets": [preset.record() for preset in presets], "tables": of_tables}, shown)


def _record_of(name: str, table: Table) -> dict[str, Any]:
    return {"name": name, "title": table.title, "rows": len(table.rows)}


def show_preset(options: argparse.Namespace) -> Report:
    """Describe one preset or table."""
    name = options.name
    path = preset_path(name, tables=True)
    if name in table_names():
        config, text = read_yaml(path), path.read_text(encoding="utf-8")
        record = _record_of(name, Table.build(config))
    else:
        preset = Preset.read(name)
        config, text, record = preset.config, preset.text(), preset.record()
    return Report(record | {"config": config}, [text.removesuffix("\n")])


def count_parameters(config: dict[str, Any]) -> int:
    """The number of parameters of a preset's model with the data's sizes; the model is built without allocation."""
    import torch

    from ...models.kinds import TEXT, TREES, class_named
    from ...tasks.kinds import KINDS

    (architecture,) = config["model"]["architectures"]
    model_class: Any = class_named(architecture, TEXT, TREES, *KINDS)
    model_config = model_class.config_class(**config["model"] | config["preset"]["sizes"])
    with torch.device("meta"):
        model = model_class(model_config)
    return sum(parameter.numel() for parameter in model.parameters())


@cache
def _known_counts() -> dict[str, int]:
    """Stored numbers of parameters by preset, since loading torch to count them takes seconds."""
    return read_yaml(Path(str(files("stack_lm.configs"))) / "parameters.yaml")
