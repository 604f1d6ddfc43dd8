"""Run all unfinished trials of a table, and write their results one by one."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import platform
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...core.config_files import merge, preset_names, preset_path, read_yaml
from ...core.console import LineClock, print_note, progress
from ...core.errors import InputError
from ...core.messages import counted, explaining, unknown_key
from ...hub.loading import find_device
from ...tasks import FileTask, Task, make_task
from ...tasks.checks import check_own
from ...tasks.kinds import KINDS, score_names
from ...tasks.scores import overall
from ..base_config import differences
from .config import OVERRIDES, Row, Table, TaskConfig, choose_rows, comparable, is_table, parse_measure, single_row
from .results import TABLE_FILE, ResultsDirectory
from .unfinished import StateFile, begun_rows, state_files
from .workers import Job, run_jobs


@dataclasses.dataclass(frozen=True)
class PlannedTrial:
    """A trial of a table."""

    number: int  # of the row, from 0
    row: Row
    config: TaskConfig

    @property
    def key(self) -> tuple[str, int]:
        """The key that identifies the trial in a directory of results."""
        return self.row.name, self.config.seed


class Experiment:
    """The trials of a table, run by `run`.

    Args:
        table: the table.
        overrides: overrides of the configurations of all rows: model, training and options.
        output_dir: replaces the table's.
        seeds: number of trials of each row; replaces the table's.
        rows: run only rows whose name matches this regular expression; None runs all.
        jobs: number of worker processes.
        together: maximum number of trials of a row to train at once.
        device: for training, such as "cuda"; on devices other than the CPU each trial is trained separately.
        resume: keep finished trials.
        overwrite: remove the results of these rows, and run them again.
        quiet: no progress bar and no notes.

    Raises:
        InputError: if a row is invalid, or the directory has results of another configuration. Nothing is changed
            then.
    """

    def __init__(
        self,
        table: Table,
        *,
        overrides: Mapping[str, Any] | None = None,
        output_dir: str | None = None,
        seeds: int | None = None,
        rows: str | None = None,
        jobs: int = 1,
        together: int = 10,
        device: str = "cpu",
        resume: bool = False,
        overwrite: bool = False,
        quiet: bool = False,
    ) -> None:
        if resume and overwrite:
            raise InputError("trials are either resumed or run again: give --resume or --overwrite, not both")
        output_dir = table.output_dir if output_dir is None else output_dir
        self.table = _overridden(table, overrides or {}, output_dir, seeds)
        self.jobs, self.together, self.device = jobs, together, find_device(device)
        self.resume, self.overwrite, self.quiet = resume, overwrite, quiet
        self.chosen = choose_rows(self.table, rows)
        self.notes: list[str] = []  # printed by `run`
        self._alone: set[int] = set()  # rows whose trials cannot be trained at once
        self.planned = self._plan()
        self.results = ResultsDirectory(self.table.output_dir)
        self._check_directory()

    def run(self) -> ResultsDirectory:
        """Run the unfinished trials.

        Raises:
            InputError: if the directory cannot be written, or a trial cannot be run.
        """
        with self.results.open():
            self.results.begin(self.table)
            if self.overwrite:
                self.results.remove([*self.chosen], [self.table.rows[i].name for i in self.chosen])
            self._check_finished()
            for note in dict.fromkeys(self.notes):
                self._note(note)
            finished = {(record["row"], record["seed"]) for record in self.results.records}
            waiting = [trial for trial in self.planned if trial.key not in finished]
            begun = self._take_up(waiting)
            if self.resume:
                resumed = sum(len(group) for group, _ in begun)
                self._note(
                    f"{len(self.planned) - len(waiting)} of {len(self.planned)} trials are finished"
                    + (f", and {resumed} continue from where they were interrupted" if resumed else "")
                )
            self._run(waiting, begun)
        return self.results

    def _note(self, text: str) -> None:
        if not self.quiet:
            print_note(text)

    def _plan(self) -> list[PlannedTrial]:
        """The trials of the chosen rows; one of each row is made, without numbers, to find mistakes before any runs."""
        from .learning import can_join
        from .trial import Trial

        planned = []
        for i, row in self.chosen.items():
            with explaining(row.name, InputError) if len(self.table.rows) > 1 else nullcontext():
                config = self._fitted(self.table.config(row), row)
                trial = Trial(config, "meta")
                task = trial.encoding.task
                _check_measures(self.table.measures, task)
                if config.options:  # a changed plan may ask for strings that do not exist
                    task.check_plan(config.seed)
                if isinstance(task, FileTask):
                    self.notes.append(f"{task.summary()}; trains a {trial.encoding.architecture}")
                check_own(task, config.seed)
                self.notes += _about_slow_memories(trial.model)
                if not can_join(trial):
                    self._alone.add(i)
            seeds = range(self.table.number_of_seeds(row))
            planned += [PlannedTrial(i, row, dataclasses.replace(config, seed=seed)) for seed in seeds]
        return planned

    def _fitted(self, config: TaskConfig, row: Row) -> TaskConfig:
        """A row's configuration fitted to its task: its head, and a preset's losses and scores; with its data's digest.

        What the table or the row names stays as it is.
        """
        from .auxiliary import has_continuations
        from .encoding import fit_head

        task = make_task(config.task, **config.options)
        named = {"architectures", "model_type"} & self.table.given(row, "model").keys()
        model = config.model if named else fit_head(config.model, task)
        changes: dict[str, Any] = {}
        if config.training.auxiliary and not has_continuations(task):
            changes["auxiliary"] = None
        if config.training.validation_score not in (None, *KINDS[task.kind].scores):
            changes["validation_score"] = None
        for key in [key for key in changes if key in self.table.given(row, "training")]:
            del changes[key]
        if changes:
            self.notes.append(f"{row.preset}'s training.{' and training.'.join(changes)} do not fit {task}: left out")
        training = dataclasses.replace(config.training, **changes)
        return dataclasses.replace(config, model=model, training=training, data=task.digest)

    def _check_directory(self) -> None:
        path = self.results.path
        if not path.is_dir() or not any(path.iterdir()):
            return
        if not (path / TABLE_FILE).is_file():
            raise InputError(f"{path} is not empty, and has no results of trials; name another output_dir")
        # Without them a run has failed at once, perhaps because of its table.
        begun = self.results.records or begun_rows(path)
        if begun and not (self.resume or self.overwrite):
            raise InputError(f"{path} is not empty: --resume its trials, --overwrite them, or name another output_dir")
        self._check_rows()
        self._check_finished()

    def _check_rows(self) -> None:
        """Check that rows keep their numbers, which name their models' directories."""
        numbers = {row.name: i for i, row in enumerate(self.table.rows, 1)}
        begun = begun_rows(self.results.path)
        for before, row in enumerate(self.results.table().rows, 1):
            now = numbers.get(row.name)
            if now != before and (before - 1 in begun or self.results.of_row(row)):
                place = "is not in this table" if now is None else f"is row {now} of this table"
                trials = f"{self.results.path} has trials of its row {before}, {row.name!r}"
                raise InputError(f"{trials}, which {place}; name another output_dir")

    def _check_finished(self) -> None:
        """Check that all trials of a row have the same configuration."""
        if self.overwrite:
            return
        configs = {trial.key: comparable(trial.config) for trial in self.planned}
        earlier = [(record["row"], record["seed"], record["config"]) for record in self.results.records]
        for file in state_files(self.results.path, self.chosen):
            earlier += [(file.row, seed, config) for seed, config in zip(file.seeds, file.configs, strict=True)]
        for row, seed, config in earlier:
            if (row, seed) not in configs:
                continue
            for key, before, now in differences(config, configs[row, seed]):
                trials = f"{self.results.path} has trials of {row!r} in which {key} was {before!r}; it is {now!r} now"
                raise InputError(f"{trials}. Run the row again with --overwrite --rows, or name another output_dir")

    def _take_up(self, waiting: Sequence[PlannedTrial]) -> list[tuple[list[PlannedTrial], StateFile]]:
        """The started trials, in their groups; removes other saved states of these rows."""
        trials = {trial.key: trial for trial in waiting}
        begun = []
        for file in state_files(self.results.path, self.chosen):
            keys = [(file.row, seed) for seed in file.seeds]
            if all(key in trials for key in keys):
                begun.append(([trials.pop(key) for key in keys], file))
            else:
                file.remove()
        return begun

    def _run(self, trials: Sequence[PlannedTrial], begun: Sequence[tuple[list[PlannedTrial], StateFile]]) -> None:
        taken = {trial.key for group, _ in begun for trial in group}
        new = [trial for trial in trials if trial.key not in taken]
        most = min(self.together, max(1, math.ceil(len(new) / self.jobs))) if self.device == "cpu" else 1
        files = [*begun]
        for number, of_row in itertools.groupby(new, key=lambda trial: trial.number):
            trials_of_row, size = list(of_row), 1 if number in self._alone else most
            for start in range(0, len(trials_of_row), size):
                group = trials_of_row[start : start + size]
                configs = [comparable(trial.config) for trial in group]
                files.append((group, StateFile.of(self.results.path, number, group[0].row.name, configs)))
        files.sort(key=lambda pair: pair[1].number)
        groups = [group for group, _ in files]
        path = self.results.model_directory
        jobs = [
            Job([t.config for t in group], [path(t.number, t.config.seed) for t in group], file, self.device)
            for group, file in files
        ]
        with progress("trials", len(trials), quiet=self.quiet, lines=False) as advance:
            shares, clocks = [0.0] * len(groups), [LineClock() for _ in groups]

            def report(job: int, share: float, text: str = "") -> None:
                advance((share - shares[job]) * len(groups[job]))
                shares[job] = share
                if text and not self.quiet and (share == 0 or clocks[job].due()):
                    print_note(f"{_describe_group(groups[job])}: {text}")

            for i, results in run_jobs(jobs, self.jobs, report):
                pairs = list(zip(groups[i], results, strict=True))
                self.results.add([_record(*pair) for pair in pairs])
                files[i][1].remove()
                report(i, 1)
                for pair in pairs:
                    self._note(_describe(*pair))


def _about_slow_memories(model: Any) -> list[str]:
    """A note for a memory from outside the package, whose steps run one by one in torch."""
    from ...nn import memories

    return [
        f"memory={layer.memory.name!r} has no compiled block, so it runs step by step in torch; larger batches and "
        "more --together cost hardly more time (docs/own.md#speed)"
        for layer in memories(model)
        if not type(layer.memory).__module__.startswith("stack_lm.")
    ]


def _check_measures(measures: Sequence[str], task: Task) -> None:
    """Check that the task has the split and the score of each measure."""
    for measure in measures:
        split, score, _ = parse_measure(measure)
        splits = [name for name in task.plan if name != "train"]
        if split not in splits:
            raise InputError(f"{measure}: {task} has no split {split!r} to score; it has {', '.join(splits) or 'none'}")
        if score not in score_names(task):
            raise InputError(f"{measure}: {task} has no score {score!r}; it has {', '.join(score_names(task))}")


def load_table(name: str, task: str | None = None, options: Mapping[str, Any] | None = None) -> Table:
    """The table that a name stands for.

    Args:
        name: a file or the name of a table, such as "hao2018/table1"; or, with a task, of a preset or its file.
        task: makes a table of one row, of the preset and this task.
        options: the task's options that affect its scores.

    Raises:
        InputError: if there is no such file, table, preset or task, a file is not a table, or a preset has no task.
    """
    if task is None:
        path = Path(name) if Path(name).exists() else preset_path(name, tables=True)
        content = read_yaml(path)
        if not is_table(content):
            raise InputError(f"{name} is not a table of trials; a preset for tasks needs a task (`stack-lm tasks`) too")
        return Table.build(content)
    scores = KINDS[make_task(task, **(options or {})).kind].shown
    if not Path(name).exists() and name not in preset_names():
        preset_path(name)
    return single_row(name, task, scores)


def _overridden(table: Table, overrides: Mapping[str, Any], output_dir: str, seeds: int | None) -> Table:
    for key, values in overrides.items():
        if key not in OVERRIDES:
            raise unknown_key("", key, (*OVERRIDES, "output_dir"))
        if not isinstance(values, dict):
            raise InputError(f"an override names a key below model, training or options; got {values!r}")
    if not output_dir:
        raise InputError("output_dir must name a directory; it is empty")
    rows = []
    for row in table.rows:
        changes = copy.deepcopy({key: getattr(row, key) for key in overrides})
        merge(changes, dict(overrides))
        rows.append(dataclasses.replace(row, seeds=seeds or row.seeds, **changes))
    return dataclasses.replace(table, rows=rows, output_dir=output_dir, seeds=seeds or table.seeds)


def _describe_group(trials: Sequence[PlannedTrial]) -> str:
    """Describe trials of a row in a few words."""
    seeds = [trial.config.seed for trial in trials]
    if seeds == [*range(seeds[0], seeds[0] + len(seeds))] and len(seeds) > 1:
        seeds_text = f"{seeds[0]} to {seeds[-1]}"
    else:
        seeds_text = ", ".join(map(str, seeds))
    return f"{trials[0].row.name}, seed{'s' * (len(seeds) > 1)} {seeds_text}"


def _record(trial: PlannedTrial, result: dict[str, Any]) -> dict[str, Any]:
    packages = ("torch", "transformers", "numba", "numpy")
    return {
        "row": trial.row.name,
        "preset": trial.row.preset,
        "task": trial.row.task,
        "seed": trial.config.seed,
        "config": comparable(trial.config),
        **result,
        "model": f"models/{trial.number + 1}/{trial.config.seed}",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "stack-lm": version("stack-lm"),
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        "machine": platform.machine(),
    }


def _describe(trial: PlannedTrial, result: dict[str, Any]) -> str:
    scores = ", ".join(f"{name} {value:.4f}" for name, value in overall(result["scores"]["test"]).items())
    diverged = ", diverged" if result["diverged"] else ""
    epochs = counted(result["epochs"], "epoch")
    return f"{trial.row.name}, seed {trial.config.seed}: {scores} after {epochs}{diverged} ({result['seconds']:.1f} s)"
