"""The directory of an experiment: its table, a JSON line for each finished trial, and the trained models.

table.yaml       the table, as its file or the command line described it
results.jsonl    a line for each trial: row, seed, configuration, scores, history, versions, time
models/ROW/SEED  the trained models; ROW counts from 1
unfinished/      the state of trials in training; see `unfinished`
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.atomic import atomic_file, make_directories, write_text
from ...core.config_files import dump_yaml, read_yaml
from ...core.console import print_note
from ...core.errors import InputError
from ...core.messages import explaining, similar_path
from ...tasks.scores import overall
from ..base_config import differences
from ..lock import RunLock
from . import unfinished
from .config import IN_NATS, Row, Table, choose_rows, parse_measure

TABLE_FILE, RESULTS_FILE, MODELS = "table.yaml", "results.jsonl", "models"
Record = dict[str, Any]


class Trials:
    """Finished trials of a table.

    Args:
        table: the table.
        records: the records of the trials.

    Attributes:
        records: the records of the trials.
    """

    def __init__(self, table: Table, records: Sequence[Record]) -> None:
        self._table, self.records = table, list(records)

    def table(self) -> Table:
        """The table of the experiment.

        Raises:
            InputError: if it is missing.
        """
        return self._table

    def of_row(self, row: Row) -> list[Record]:
        """The trials of a row, by seed."""
        return sorted((record for record in self.records if record["row"] == row.name), key=lambda r: r["seed"])

    def of_rows(self, pattern: str | None) -> Trials:
        """The trials of some rows of the table.

        Args:
            pattern: a regular expression that matches the names of the rows; None selects all.

        Raises:
            InputError: if it matches no row or is invalid.
        """
        if pattern is None:
            return self
        table = dataclasses.replace(self.table(), rows=list(choose_rows(self.table(), pattern).values()))
        return Trials(table, [record for row in table.rows for record in self.of_row(row)])


class ResultsDirectory(Trials):
    """The directory of an experiment, with the results of its trials.

    Args:
        path: the path of the directory.

    Attributes:
        records: the records of the finished trials, in order of completion.

    Raises:
        InputError: if a line of the results file is not such a record; nothing is changed then.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.records = self._read()

    def _read(self) -> list[Record]:
        file = self.path / RESULTS_FILE
        if not file.is_file():
            return []
        records: list[Record] = []
        seen: dict[tuple[str, int], int] = {}
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                record = json.loads(line)
                first = seen.setdefault((record["row"], record["seed"]), number)
            except (ValueError, KeyError, TypeError):
                hint = "without the line the trial is run again"
                raise InputError(f"{file}, line {number} is not the result of a trial; {hint}") from None
            if first != number:
                raise InputError(f"{file}, lines {first} and {number} are of one trial; remove one of them")
            records.append(record)
        return records

    def table(self) -> Table:
        """See `Trials.table`."""
        file = self.path / TABLE_FILE
        if not file.is_file():
            raise InputError(f"{self.path} has no results: there is no {TABLE_FILE} in it{similar_path(self.path)}")
        return Table.build(read_yaml(file))

    def model_directory(self, row: int, seed: int) -> Path:
        """Return the directory of a trial's model.

        Args:
            row: its number, from 0.
            seed: the seed of the trial.
        """
        return self.path / MODELS / str(row + 1) / str(seed)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Lock the directory for writing by this process only.

        Raises:
            InputError: if another process has locked it, or it cannot be written.
        """
        lock = RunLock(self.path)
        with explaining(f"cannot write in output_dir {self.path}", OSError):
            make_directories(self.path)
            lock.acquire()
        try:
            self.records = self._read()
            unfinished.remove_partial(self.path)
            yield
        finally:
            lock.release()

    def begin(self, table: Table) -> None:
        """Write the table."""
        write_text(self.path / TABLE_FILE, dump_yaml(dataclasses.asdict(table)))

    def add(self, records: Sequence[Record]) -> None:
        """Add trials durably: the results file is complete at every moment."""
        self.replace([*self.records, *records])

    def replace(self, records: list[Record]) -> None:
        """Replace all records."""
        self.records = records
        with atomic_file(self.path / RESULTS_FILE) as path, open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, rows: Sequence[int], names: Sequence[str]) -> None:
        """Remove the results, the models and the unfinished trials of rows.

        Args:
            rows: their numbers, from 0.
            names: their names.
        """
        self.replace([record for record in self.records if record["row"] not in names])
        for row in rows:
            for folder in (MODELS, unfinished.UNFINISHED):
                shutil.rmtree(self.path / folder / str(row + 1), ignore_errors=True)


def save_trials(trials: Trials, directory: str | Path) -> None:
    """Write trials to a separate directory, without scores by length and by edits, which take most of the space.

    Raises:
        InputError: if the directory has other trials, or cannot be written.
    """
    saved = ResultsDirectory(directory)
    with saved.open():
        known = {(record["row"], record["seed"]) for record in trials.records}
        for record in saved.records:
            if (record["row"], record["seed"]) not in known:
                trial = f"seed {record['seed']} of {record['row']!r}"
                raise InputError(f"{directory} has {trial}, which the given directories lack; save elsewhere")
        saved.begin(dataclasses.replace(trials.table(), output_dir=""))  # a place of that machine
        saved.replace([_without_lengths(record) for record in trials.records])


def _without_lengths(record: Record) -> Record:
    scores = {split: {**overall(values), "by_length": {}} for split, values in record["scores"].items()}
    return {**record, "scores": scores}


def same_outcome(first: Record, second: Record) -> bool:
    """Return True if two records of a trial agree; one may lack scores by length."""
    one, other = _without_lengths(first), _without_lengths(second)
    return all(one[key] == other[key] for key in ("scores", "history"))


def differ_by_rounding(first: Record, second: Record) -> bool:
    """Return True if two trainings began alike and then drifted apart, as trials do that run at once with others."""
    one, other = first["history"], second["history"]
    losses = [history[0]["loss"] for history in (one, other)]
    return one != other and None not in losses and math.isclose(*losses, rel_tol=1e-3)


def has_trials(directory: str | Path) -> bool:
    """True if a directory has a table of trials."""
    return (Path(directory) / TABLE_FILE).is_file()


def _described(table: Table) -> dict[str, Any]:
    values = dataclasses.asdict(table)
    rows = {row.name: dataclasses.asdict(row) for row in table.rows}
    del values["output_dir"]
    return values | {"rows": rows}


def read_trials(*directories: str | Path) -> Trials:
    """Read the trials of runs of one table from their directories.

    Args:
        directories: the directories of the runs.

    Raises:
        InputError: if there are none, they are of different tables or configurations, or they disagree about a trial.
            A trial that was run twice, at once with other trials and so with other rounding, counts once, with a note.
    """
    parts = [ResultsDirectory(directory) for directory in directories]
    tables = [part.table() for part in parts]
    if len(parts) == 1:
        return parts[0]
    origins: dict[tuple[str, int], tuple[Path, Record]] = {}
    rows: dict[str, tuple[Path, Record]] = {}
    for part, table in zip(parts, tables, strict=True):
        for key, one, other in differences(_described(tables[0]), _described(table)):
            raise InputError(f"{parts[0].path} and {part.path} are of different tables: {key} is {one!r} and {other!r}")
        for record in part.records:
            row = record["row"]
            path, other_record = rows.setdefault(row, (part.path, record))
            before, now = ({**config, "seed": None} for config in (other_record["config"], record["config"]))
            for key, one, other in differences(before, now):
                raise InputError(
                    f"{path} and {part.path} have trials of {row!r} in which {key} is {one!r} and {other!r}"
                )
            origin, first = origins.setdefault((record["row"], record["seed"]), (part.path, record))
            if not same_outcome(first, record):
                trial = f"seed {record['seed']} of {record['row']!r}"
                if not differ_by_rounding(first, record):
                    raise InputError(f"{origin} and {part.path} have different results of {trial}; remove one of them")
                print_note(f"{origin} and {part.path} both ran {trial}, with other rounding; {origin}'s counts")
    return Trials(tables[0], [record for _, record in origins.values()])


def measure(records: Sequence[Record], name: str) -> float | None:
    """The value of a measure over the trials of a row; None without trials.

    Args:
        records: the records of the trials.
        name: "score.statistic" or "split/score.statistic", such as "accuracy.median"; see `Table.measures`.

    Raises:
        InputError: for a score that they do not have.
    """
    split, score, statistic = parse_measure(name)
    if not records:
        return None
    for record in records:
        scores = record["scores"].get(split, {})
        if score not in scores:
            known = ", ".join(overall(scores)) or "none"
            raise InputError(f"the trials of {record['row']!r} have no {split} score {score!r}; they have {known}")
    values = [float(record["scores"][split][score]) for record in records]
    if statistic == "mean_of_best_loss":
        by_losses: dict[frozenset[str], list[float]] = {}
        for record, value in zip(records, values, strict=True):
            by_losses.setdefault(frozenset(record.get("auxiliary", ())), []).append(value)
        best = min if score in IN_NATS else max
        return best(map(statistics.fmean, by_losses.values()))
    if statistic == "best":
        return min(zip(map(_selection, records), range(len(values)), values, strict=True))[2]
    functions = {"minimum": min, "median": statistics.median, "maximum": max, "mean": statistics.fmean}
    return float(functions[statistic](values))  # type: ignore[operator]


def _selection(record: Record) -> float:
    """Return the value that the best trial minimises: nats or errors in validation, or else the training loss."""
    training = record["config"].get("training", {})
    split = training.get("validate", True)
    validation = record["scores"].get("validation" if isinstance(split, bool) else split)
    if validation is None:
        loss = record["history"][-1]["loss"]
        return math.inf if loss is None else float(loss)
    # Records of earlier versions do not name the score, but have it first.
    name = record.get("validation_score") or training.get("validation_score") or next(iter(validation))
    return float(validation[name]) * (1 if name in IN_NATS else -1)
