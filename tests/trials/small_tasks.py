"""Tasks of each kind, small enough for tests; and the recipe that trains on them."""

import random
from pathlib import Path

import yaml
from conftest import recipe

from stack_lm.tasks import Example, Split, Task, register_task, task_names

RECIPE = Path(__file__).parents[2] / "recipes" / "train_task.py"
TRAIN = recipe("train_task")

PLAN = {"train": Split(12, 2, 4), "validation": Split(6, 2, 4), "test": Split(8, 3, 6)}


class _Echo(Task):
    """Strings of a and b, answered by themselves."""

    paper = "none"
    default_plan = PLAN
    vocabulary = ("a", "b")

    def sample(self, rng: random.Random, length: int) -> Example:
        return self.example(tuple(rng.randrange(2) for _ in range(length)))

    def example(self, string) -> Example:
        return Example(tuple(string), tuple(string), (True,) * len(string))


class EchoPerStep(_Echo):
    """The first answer is not scored."""

    vocabulary = ("a", "b", "#")
    step_reduction = "mean"

    def example(self, string) -> Example:
        return super().example(string)._replace(mask=(False,) + (True,) * (len(string) - 1))


class EchoSummed(EchoPerStep):
    vocabulary = ("a", "b")
    step_reduction = "sum"


class EchoSets(_Echo):
    """b may always come."""

    kind = "next_symbols"

    def example(self, string) -> Example:
        return super().example(string)._replace(target=tuple(frozenset({symbol, 1}) for symbol in string))


class EchoPair(_Echo):
    kind = "transduction"


class EchoLanguage(_Echo):
    """Any strings of a and b."""

    kind = "language"
    vocabulary = ("a", "b", "<s>", "</s>")

    def example(self, string) -> Example:
        return Example((2, *string), (*string, 3), (True,) * (len(string) + 1))


for _name, _task in {
    "test/per_step": EchoPerStep,
    "test/summed": EchoSummed,
    "test/sets": EchoSets,
    "test/pair": EchoPair,
    "test/language": EchoLanguage,
}.items():
    if _name not in task_names():
        register_task(_name)(_task)

FIELDS = {
    "StackRNNForTokenClassification": {"input_encoding": "one_hot", "hidden_size": 4, "memory_size": 2},
    "StackRNNForKHotPrediction": {"input_encoding": "one_hot", "hidden_size": 4, "memory_size": 2},
    "StackRNNForCausalLM": {"embedding_size": 3, "hidden_size": 4, "memory_size": 2},
    "BufferedStackRNNForTransduction": {"input_encoding": "one_hot", "hidden_size": 4, "memory_size": 2},
}
MODEL_OF = {
    "test/per_step": "StackRNNForTokenClassification",
    "test/summed": "StackRNNForTokenClassification",
    "test/sets": "StackRNNForKHotPrediction",
    "test/pair": "StackRNNForCausalLM",
    "test/language": "StackRNNForCausalLM",
}


def config_values(task, architecture=None, **training):
    """What a YAML file would say of a trial."""
    architecture = architecture or MODEL_OF[task]
    model = {"architectures": [architecture], **FIELDS[architecture]}
    return {"task": task, "model": model, "training": {"epochs": 2, "batch_size": 5, **training}}


def write_table(folder, title, rows, **settings):
    """Write table.yaml, whose rows all have the preset beside it; the file's path.

    Args:
        rows: by their cells, the task and whatever else is theirs.
        settings: of the table.
    """
    values = config_values("test/per_step")
    del values["task"]
    preset = folder / "preset.yaml"
    preset.write_text(yaml.safe_dump(values))
    rows = [{"cells": list(cells), "preset": str(preset), **row} for cells, row in rows.items()]
    table = {"title": title, "output_dir": str(folder / "runs"), **settings, "rows": rows}
    path = folder / "table.yaml"
    path.write_text(yaml.safe_dump(table))
    return path
