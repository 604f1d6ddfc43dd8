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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ..atomic import atomic_file, reason_of, write_text
from ..config_files import read_yaml
from ..errors import InputError
from ..messages import similar_path
from ..plugins import used
from ..tasks.scores import overall
from ..training.lock import RunLock
from . import unfinished
from .config import IN_NATS, Row, Table, choose_rows, parse_measure

TABLE_FILE, RESULTS_FILE, MODELS = "table.yaml", "results.jsonl", "models"
# The keys of every record, besides those meant only for human readers.
_KEYS: dict[str, type | tuple[type, ...]] = {
    "row": str,
    "seed": int,
    "config": dict,
    "scores": dict,
    "history": list,
    "seconds": (int, float),
}
Record = dict[str, Any]


class Trials(ABC):
    """Finished trials of a table.

    Attributes:
        records: the records of the trials.
    """

    records: list[Record]

    @abstractmethod
    def table(self) -> Table:
        """The table of the experiment.

        Raises:
            InputError: if it is missing.
        """

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
        return self if pattern is None else _OfRows(self, choose_rows(self.table(), pattern).values())


class Results(Trials):
    """The results of an experiment's trials, in its directory.

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
                if any(not isinstance(record[key], kind) for key, kind in _KEYS.items()):
                    raise ValueError
                _ = record["scores"]["test"]["by_length"].items(), [entry["strings"] for entry in record["history"]]
                _ = record["history"][-1]["loss"]
                # A trial that diverged has no loss at its end.
                numbers = [entry["loss"] for entry in record["history"] if entry["loss"] is not None]
                for scores in record["scores"].values():
                    numbers += overall(scores).values()
                if any(type(number) not in (int, float) for number in numbers):
                    raise ValueError
            except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
                raise InputError(
                    f"{file}, line {number} is not the result of a trial; fix the line or remove it (a trial without "
                    "a line is run again)"
                ) from None
            first = seen.setdefault((record["row"], record["seed"]), number)
            if first != number:
                raise InputError(
                    f"{file}, lines {first} and {number} are of one trial, seed {record['seed']} of "
                    f"{record['row']!r}; remove one of them"
                )
            records.append(record)
        return records

    def table(self) -> Table:
        """See `Trials.table`."""
        file = self.path / TABLE_FILE
        if not file.is_file():
            if not self.path.exists():
                raise InputError(f"{self.path} does not exist{similar_path(self.path)}")
            if self.path.is_file():
                raise InputError(f"{self.path} is a file; the results of trials are a directory with a {TABLE_FILE}")
            raise InputError(f"{self.path} has no results: there is no {TABLE_FILE} in it")
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
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise InputError(f"cannot write in output_dir {self.path}: {reason_of(error)}") from error
        try:
            self.records = self._read()
            unfinished.remove_partial(self.path)
            yield
        finally:
            lock.release()

    def begin(self, table: Table, memories: Sequence[str] = ()) -> None:
        """Write the table.

        Args:
            table: the table.
            memories: the names of its models' memories.
        """
        content = dataclasses.asdict(table) | used(memory=memories, task=[row.task for row in table.rows])
        write_text(self.path / TABLE_FILE, yaml.safe_dump(content, sort_keys=False))

    def add(self, records: Sequence[Record]) -> None:
        """Add trials durably: the results file is complete at every moment."""
        self.records += records
        self._write()

    def replace(self, records: list[Record]) -> None:
        """Replace all records."""
        self.records = records
        self._write()

    def _write(self) -> None:
        with atomic_file(self.path / RESULTS_FILE) as path, open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in self.records)
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
            shutil.rmtree(self.path / MODELS / str(row + 1), ignore_errors=True)
        unfinished.remove_rows(self.path, rows)


class _OfRows(Trials):
    """The trials of some rows of a table.

    Args:
        trials: the trials of the table.
        rows: some of its rows.
    """

    def __init__(self, trials: Trials, rows: Iterable[Row]) -> None:
        self._table = dataclasses.replace(trials.table(), rows=list(rows))
        self.records = [record for row in self._table.rows for record in trials.of_row(row)]

    def table(self) -> Table:
        """See `Trials.table`."""
        return self._table


def save_trials(trials: Trials, directory: str | Path) -> None:
    """Write trials to a separate directory, without scores by length and by edits, which take most of the space.

    Raises:
        InputError: if the directory has other trials, or cannot be written.
    """
    saved = Results(directory)
    with saved.open():
        known = {(record["row"], record["seed"]) for record in trials.records}
        for record in saved.records:
            if (record["row"], record["seed"]) not in known:
                raise InputError(
                    f"{directory} has seed {record['seed']} of {record['row']!r}, which the given directories lack; "
                    "give it as one of them, or save elsewhere"
                )
        saved.begin(dataclasses.replace(trials.table(), output_dir=""))  # a place of that machine
        saved.replace([_without_lengths(record) for record in trials.records])


def _without_lengths(record: Record) -> Record:
    scores = {split: {**overall(of_split), "by_length": {}} for split, of_split in record["scores"].items()}
    return {**record, "scores": scores}


def same_outcome(first: Record, second: Record) -> bool:
    """Return True if two records of a trial agree; one may lack scores by length."""
    of_both = [_without_lengths(record) for record in (first, second)]
    return all(of_both[0][key] == of_both[1][key] for key in ("scores", "history"))


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
    # Earlier versions did not record the score: it was the first of the kind's.
    name = record.get("decisive_score") or training.get("validation_score") or next(iter(validation))
    return float(validation[name]) * (1 if name in IN_NATS else -1)
