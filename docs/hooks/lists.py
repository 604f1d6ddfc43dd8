"""The lists of tasks and presets in the pages: `<!-- stack-lm tasks -->` becomes the table of what is registered.

mkdocs calls `on_page_markdown`.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import re
from collections.abc import Sequence
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the lists in place of their comments."""
    lists = {"tasks": tasks, "presets": presets}
    return re.sub(r"^<!-- stack-lm (tasks|presets) -->$", lambda found: lists[found[1]](), markdown, flags=re.MULTILINE)


def tasks() -> str:
    """The tasks, those of one paper with the same splits in one row."""
    from stack_lm.cli.commands.tasks import _summary
    from stack_lm.tasks import make_task, task_names
    from stack_lm.tasks.registry import TASKS

    rows: dict[tuple[str, ...], list[str]] = {}
    for name in task_names():
        task = make_task(name)
        options = [option for option in inspect.signature(TASKS.find(name)).parameters if option != "splits"]
        number = "always new" if task.online else ", all different" if task.distinct else ""
        splits = {split: _summary(plan) for split, plan in task.plan.items()}
        if task.online:
            splits["train"] = re.sub(r"^[\d,]+", number, splits["train"])
        elif task.distinct:
            splits = {split: text + number for split, text in splits.items()}
        sizes = "" if task.unit == "length" else f" (sizes: {task.unit})"
        row = task.paper, task.kind, "; ".join(f"{split} {text}" for split, text in splits.items()) + sizes
        rows.setdefault((*row, ", ".join(map("`{}`".format, options))), []).append(f"`{name}`")
    head = ("tasks", "kind", "splits", "options")
    return _table(head, [(", ".join(names), *row[1:]) for row, names in rows.items()])


def presets() -> str:
    """The presets, paper by paper, and the tables of presets."""
    from stack_lm.cli.commands.presets import run

    report = run(argparse.Namespace()).record
    papers: dict[str, list[tuple[str, ...]]] = {}
    for preset in report["presets"]:
        row = (f"`{preset['name']}`", preset["table"], _network(preset["name"]), f"{preset['parameters']:,}")
        papers.setdefault(preset["paper"], []).append(row)
    head = ("preset", "table", "network", "parameters")
    parts = [f"### {paper}\n\n{_table(head, rows)}" for paper, rows in papers.items()]
    tables = [(f"`{table['name']}`", table["title"], str(table["rows"])) for table in report["tables"]]
    return "\n".join([*parts, f"### Tables of presets\n\n{_table(('table', 'content', 'rows'), tables)}"])


def _network(name: str) -> str:
    """The controller and the memory of a preset, or its layers from the first to the last."""
    import stack_lm
    from stack_lm.core.config_files import preset_path, read_yaml

    model = read_yaml(preset_path(name))["model"]
    if model["architectures"][0] not in dir(stack_lm):
        return model["model_type"]  # of transformers
    number = model.get("num_hidden_layers") or model.get("num_layers", 1)
    layers = model.get("layers") or [{"controller": "lstm"} | model] * number
    kinds = itertools.groupby(map(_layer, layers))
    runs = [(len([*same]), kind) for kind, same in kinds]
    return ", ".join(f"{times} × {kind}" if times > 1 else kind for times, kind in runs)


def _layer(layer: Any) -> str:
    if isinstance(layer, str):
        return layer
    if "module" in layer:
        return layer["module"].rpartition(".")[2]
    names = [layer.get("controller", ""), layer.get("memory", "stack")]
    return " + ".join(name for name in names if name not in ("", "none"))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, ("---",) * len(head), *rows])
