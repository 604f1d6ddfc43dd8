"""Configurations of experiments: of one trial, from a preset and a task; and of tables, from a YAML file."""

from __future__ import annotations

import copy
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from ...core.checks import Count, CountOrZero, NotNegative, Positive, build, compile_pattern
from ...core.config_files import merge, read_config
from ...core.errors import InputError
from ...core.messages import explaining, similar_path
from ..base_config import BaseConfig, resume_invariants

# A file saved beside a model that was trained on a task.
TASK_FILE = "task.json"
# Scores that are not fractions, and never percentages.
IN_NATS = ("nats", "difference", "difference_given_length", "loss")
STATISTICS = ("minimum", "median", "maximum", "mean", "best", "mean_of_best_loss")


@dataclass(frozen=True)
class LogUniform:
    """A range from which each trial draws a number, log-uniformly.

    Attributes:
        low: lower end.
        high: upper end.
    """

    low: Positive
    high: Positive

    def draw(self, rng: random.Random) -> float:
        """Draw a number."""
        return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))


@dataclass(frozen=True)
class AuxiliaryLosses:
    """Losses beside that of the label, of the members of a language to recognise (Butoi et al. 2025, section 3.3).

    Each has a weight; {low, high}, between which each trial draws its own, log-uniformly; or null: there is none.

    Attributes:
        next_symbol: the cross-entropy of the next symbol, or of the end, a mean over the prefixes of a string.
        next_symbols: the binary cross-entropy of which symbols may come next, a mean over prefixes and symbols.
    """

    next_symbol: Positive | LogUniform | None = None
    next_symbols: Positive | LogUniform | None = None

    def weights(self) -> dict[str, float | LogUniform]:
        """The weights of the losses in use, by name."""
        return {entry.name: weight for entry in fields(self) if (weight := getattr(self, entry.name)) is not None}


@dataclass(frozen=True)
class TaskTrainingConfig:
    """The training on a task.

    Attributes:
        epochs: maximum number of passes over the training strings. A task that draws new strings has as many per epoch
            as its plan says.
        shuffle: draw a new order of strings in each epoch.
        batch_size: strings in a batch.
        batch_by_length: make batches of strings of equal or neighbouring length, anew in each epoch. It needs
            `shuffle`, which then draws the order of batches too; the order of lengths is the same for all seeds.
        one_boundary: in a language, end strings with the symbol that begins them, `<s>`: the network never reads `</s>`
            nor predicts `<s>`, so it needs one symbol fewer.
        auxiliary: losses beside that of the label, in a language to recognise: a list, of which seed s takes entry s
            modulo its length. Their heads are not saved. null has none.
        drop_last: leave out a last batch that is smaller than the others.
        loss_reduction: "mean" over all scored positions of a batch; "strings": the sum over the positions of a string,
            then the mean over strings; "steps": a sum over steps, at each of which the batch's scored positions are
            summed or averaged, as the task says (`Task.step_reduction`).
        optimizer: optimizer; Adam, RMSprop or SGD.
        learning_rate: learning rate; a list, of which seed s takes entry s modulo its length; or {low, high}, from
            which each trial draws its own log-uniformly.
        schedule: the learning rate after the warm-up: "constant", or "cosine", along which it falls, to nearly 0 in the
            last epoch.
        warmup_epochs: epochs over which the learning rate rises.
        weight_decay: weight decay, an L2 term in the gradient.
        max_grad_norm: maximum norm of the gradient; null does not clip.
        max_grad_value: maximum of each number of the gradient; null does not clip.
        patience: epochs in a row without a better score on the validation strings before training stops; null never
            stops.
        solved_patience: epochs in a row with all validation strings right before training stops; null never stops.
        decay_patience: epochs in a row without a better score before the learning rate falls.
        decay_factor: factor of the learning rate then.
        keep: model to test: that of the "last" epoch, or the one "best" on the validation strings.
        validate: score the model on the validation strings, if the task has some, after each epoch; the name of another
            split takes its strings for these.
        validation_score: score on the validation strings, such as "nats", that decides whether an epoch was better;
            null takes the task's first.
        temperature_decay: factor exp(-decay) by which the temperature of controls that have one falls; see
            `TemperatureSchedule`.
        temperature_minimum: lowest temperature.
        initial_model: directory of the model of an earlier trial, whose weights this one begins with, as for strings
            that get longer; `{seed}` in it stands for the trial's seed. null draws new weights.
        dtype: type of the model's numbers.
    """

    epochs: Count = 100
    shuffle: bool = True
    batch_size: Count = 10
    batch_by_length: bool = False
    one_boundary: bool = False
    auxiliary: list[AuxiliaryLosses] | None = None
    drop_last: bool = False
    loss_reduction: Literal["mean", "strings", "steps"] = "mean"
    optimizer: Literal["adam", "rmsprop", "sgd"] = "adam"
    learning_rate: Positive | list[Positive] | LogUniform = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_epochs: CountOrZero = 0
    weight_decay: NotNegative = 0.0
    max_grad_norm: Positive | None = None
    max_grad_value: Positive | None = None
    patience: Count | None = None
    solved_patience: Count | None = None
    decay_patience: Count | None = None
    decay_factor: Positive = 0.9
    keep: Literal["last", "best"] = "last"
    validate: bool | str = True
    validation_score: str | None = None
    temperature_decay: NotNegative = 0.0
    temperature_minimum: Positive = 0.5
    initial_model: str | None = None
    dtype: Literal["float32", "float64"] = "float32"


@dataclass(frozen=True)
class TaskConfig(BaseConfig):
    """One trial: everything that decides its outcome.

    Attributes:
        seed: seed of the data, the initial weights, the order of strings and noise.
        task: name of the task; `stack-lm tasks` lists them.
        options: options of the task.
        data: a digest of the files that the task is read from; empty if the task draws its strings.
    """

    task: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    training: TaskTrainingConfig = field(default_factory=TaskTrainingConfig)
    data: str = ""

    FROM_DATA = ("vocab_size", "num_labels", "target_vocab_size", "pad_token_id", "id2label", "label2id")

    def check(self) -> None:
        """See `BaseConfig.check`."""
        super().check()
        if self.training.batch_by_length and not self.training.shuffle:
            raise InputError("training.batch_by_length needs training.shuffle=true")
        rate = self.training.learning_rate
        if rate == []:
            raise InputError("training.learning_rate must have an entry; got []")
        ranges: dict[str, Any] = {"learning_rate": rate}
        for i, losses in enumerate(self.training.auxiliary or ()):
            ranges |= {f"auxiliary[{i}].{name}": weight for name, weight in losses.weights().items()}
        for name, drawn in ranges.items():
            if isinstance(drawn, LogUniform) and drawn.low > drawn.high:
                raise InputError(f"training.{name} must go from low to high; got {drawn.low} to {drawn.high}")


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Settings of trials that a table, its rows, tasks and networks may change; the last of these counts.

    Attributes:
        model, training, options: overrides of single keys.
    """

    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


# The names of these.
OVERRIDES = tuple(entry.name for entry in fields(Overrides))


@dataclass(frozen=True)
class Row(Overrides):
    """A row of a table.

    Attributes:
        cells: entries of the table's columns.
        preset: configuration of model and training.
        task: name of the task.
        paper: the paper's numbers, one for each measure of the table; null where it has none.
        seeds: number of trials; null takes the table's.
    """

    cells: list
    preset: str
    task: str
    paper: list[float | None] = field(default_factory=list)
    seeds: Count | None = None

    @property
    def name(self) -> str:
        """The row in words."""
        return ", ".join(map(str, self.cells))


@dataclass(frozen=True)
class TableTask(Overrides):
    """A task of a table in which each network meets each task.

    Attributes:
        cells: first cells of its rows.
        task: name of the task; see `make_task`.
        paper: the paper's numbers, by the cells of a network, joined by commas.
    """

    cells: list
    task: str
    paper: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableNetwork(Overrides):
    """A network of such a table.

    Attributes:
        cells: last cells of its rows.
        preset: configuration of model and training.
        seeds: number of trials of each row; null takes the table's.
    """

    cells: list
    preset: str
    seeds: Count | None = None


@dataclass(frozen=True)
class Table(Overrides):
    """Trials by row, and the numbers of a paper to compare them with.

    Attributes:
        title: title of the table.
        columns: names of the columns that tell rows apart.
        rows: rows of the table.
        measures: numbers to print, each "score.statistic", such as "accuracy.median", on the test strings; or
            "validation/accuracy.median" on another split. The statistic, over seeds, is one of `STATISTICS`: "best" is
            the trial with the best validation score or, without validation strings, the lowest training loss;
            "mean_of_best_loss" is a mean over the trials with the same losses (`training.auxiliary`), of those losses
            where it is best.
        percent: print fractions as percentages; nats stay nats.
        decimals: decimals of the printed numbers; unless set, 3 if a measure is in nats.
        seeds: number of trials of each row.
        output_dir: directory of the results and models.
        note: text below the table.
    """

    title: str
    columns: list[str]
    rows: list[Row]
    measures: list
    percent: bool = True
    decimals: CountOrZero = 1
    seeds: Count = 10
    output_dir: str = ""
    note: str = ""

    @classmethod
    def build(cls, values: dict[str, Any]) -> Table:
        """A table from the content of its file: with `rows`, or with `tasks` and `networks` that are crossed.

        Raises:
            InputError: naming the invalid key.
        """
        if "tasks" in values or "networks" in values:
            values = {**values, "rows": _crossed(values.get("tasks", []), values.get("networks", []))}
            values = {key: value for key, value in values.items() if key not in ("tasks", "networks")}
        table = build(cls, values)
        if not table.rows:
            raise InputError("rows must have at least one row")
        scores = [parse_measure(measure)[1] for measure in table.measures]
        if "decimals" not in values and any(score in IN_NATS for score in scores):
            table = replace(table, decimals=3)
        for i, row in enumerate(table.rows):
            if len(row.cells) != len(table.columns):
                raise InputError(f"rows[{i}].cells must have {len(table.columns)} entries; got {row.cells}")
            if row.paper and len(row.paper) != len(table.measures):
                raise InputError(f"rows[{i}].paper must have {len(table.measures)} numbers; got {row.paper}")
        names = [row.name for row in table.rows]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"two rows have the cells {name!r}")
        return table

    def number_of_seeds(self, row: Row) -> int:
        """The number of trials of a row."""
        return row.seeds or self.seeds

    def scale(self, score: str) -> int:
        """Return the factor by which a printed score is multiplied: 100 for a percentage."""
        return 100 if self.percent and score not in IN_NATS else 1

    def given(self, row: Row, section: str) -> dict[str, Any]:
        """The keys of "model", "training" or "options" that the table or a row sets, beside its preset."""
        return {**getattr(self, section), **getattr(row, section)}

    def config(self, row: Row) -> TaskConfig:
        """The configuration of a row's trials, except for the seed.

        Raises:
            InputError: for an unknown preset, an invalid key, or a value out of range.
        """
        own = {"task": row.task, "output_dir": self.output_dir}
        values = read_config(row.preset)
        with explaining(f"{row.preset} does not fit `stack-lm train task`", InputError):
            build(TaskConfig, values | own)
        if self.given(row, "model").get("controller", "lstm") != "lstm":  # the preset's is for an LSTM's gates
            values.get("model", {}).pop("forget_bias", None)
        for source in (self, row):
            # Copies, because merging a later source into these would change them.
            merge(values, copy.deepcopy({key: getattr(source, key) for key in OVERRIDES}))
        config = build(TaskConfig, values | own)
        config.check()
        return config


def comparable(config: TaskConfig) -> dict[str, Any]:
    """Return the settings that decide a trial's outcome."""
    values = resume_invariants(config)
    if not config.data:  # as in results from before there were tasks of files
        del values["data"]
    for name in ("schedule", "warmup_epochs"):  # likewise
        if values["training"][name] == getattr(TaskTrainingConfig, name):
            del values["training"][name]
    return values


def choose_rows(table: Table, pattern: str | None) -> dict[int, Row]:
    """The rows of a table by number, from 0: those whose name matches a regular expression, or all.

    Raises:
        InputError: if the expression is invalid or matches no row.
    """
    finder = compile_pattern(pattern or "")
    chosen = {i: row for i, row in enumerate(table.rows) if finder.search(row.name)}
    if not chosen:
        raise InputError(f"no row matches {pattern!r}; the rows are {'; '.join(row.name for row in table.rows)}")
    return chosen


def is_table(content: dict[str, Any]) -> bool:
    """True if the content of a YAML file is a table, not a preset."""
    return not {"rows", "tasks", "networks"}.isdisjoint(content)


def _crossed(tasks: Any, networks: Any) -> list[dict[str, Any]]:
    """The rows of a table: each task with each network."""
    for name, entries in {"tasks": tasks, "networks": networks}.items():
        if not (isinstance(entries, list) and entries and all(isinstance(entry, dict) for entry in entries)):
            raise InputError(f"{name} must be a list of mappings, beside {'networks' if name == 'tasks' else 'tasks'}")
    made = [build(TableNetwork, network, f"networks[{i}].") for i, network in enumerate(networks)]
    names = [", ".join(map(str, network.cells)) for network in made]
    rows = []
    for i, values in enumerate(tasks):
        task = build(TableTask, values, f"tasks[{i}].")
        for name in task.paper:
            if name not in names:
                raise InputError(f"tasks[{i}].paper has no network {name!r}; they are {'; '.join(names)}")
        for name, network in zip(names, made, strict=True):
            row: dict[str, Any] = {"cells": [*task.cells, *network.cells], "preset": network.preset, "task": task.task}
            row |= {"seeds": network.seeds, "paper": task.paper.get(name, [])}
            for key in OVERRIDES:
                row[key] = copy.deepcopy(getattr(task, key))
                merge(row[key], copy.deepcopy(getattr(network, key)))
            rows.append(row)
    return rows


def is_task_model(directory: str | Path) -> bool:
    """True if a directory has a model that was trained on a task."""
    return (Path(directory) / TASK_FILE).is_file()


def check_task_models(*directories: str | Path) -> None:
    """Check that task models exist before any slow work.

    Raises:
        InputError: if a directory has no task model.
    """
    for directory in directories:
        if not is_task_model(directory):
            raise InputError(f"{directory} has no model of a task (no {TASK_FILE}){similar_path(directory)}")


def parse_measure(name: str) -> tuple[str, str, str]:
    """The split, the score and the statistic of a measure.

    Raises:
        InputError: if it does not have the form "score.statistic" or "split/score.statistic".
    """
    match = re.fullmatch(r"(?:(\w+)/)?(\w+)\.(\w+)", str(name))
    if match is None or match[3] not in STATISTICS:
        raise InputError(f"a measure is a score and one of {', '.join(STATISTICS)}, as accuracy.median; got {name!r}")
    return match[1] or "test", match[2], match[3]


def single_row(preset: str, task: str, scores: Sequence[str]) -> Table:
    """A table of one row, for a preset and a task, with the first statistics of some scores."""
    row = {"cells": [preset, task], "preset": preset, "task": task}
    table: dict[str, Any] = {"title": f"{preset} on {task}", "columns": ["preset", "task"], "rows": [row]}
    table["measures"] = [f"{score}.{statistic}" for score in scores for statistic in STATISTICS[:4]]
    names = (
        Path(name).stem if Path(name).exists() else re.sub(r"[^\w.]+", "-", name).strip("-") for name in (preset, task)
    )
    return Table.build(table | {"output_dir": f"runs/{'-'.join(names)}"})
