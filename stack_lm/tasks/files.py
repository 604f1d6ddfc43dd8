"""Your own tasks: the strings and targets of a file, or of a folder with a file for each split."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from ..core.checks import Count, Number, Probability
from ..core.errors import InputError
from .base import Example, Split, SplitChanges, Task, changed, check_changes, language_example, unscored_example
from .kinds import BEGIN, END, PAD, SEPARATOR
from .rows import OwnKind, Reading, TaskRow, find_files, held_out, read, stamps, unread_tables, unseparated

# Symbols that networks get in addition to those of the strings.
_RESERVED: dict[OwnKind, tuple[str, ...]] = {
    "transduction": (BEGIN, SEPARATOR, END),
    "classification": (PAD,),
    "language": (BEGIN, END),
}
UNKNOWN = "<unk>"


def split_set(symbols: str) -> list[str]:
    """The symbols of a set written as `a/b`; `</s>` is one symbol."""
    return re.split(r"(?<!<)/", symbols)


class FileTask(Task):
    """A task whose strings are in files; their columns define its kind.

    `input,output` makes a tagging task, if each output has its input's length, or else a transduction; `string,label` a
    classification; `text` a language. A folder has the files train, validation (or valid, dev) and test; a split
    without a file is held out of the training strings, provided that all symbols remain in training. Vocabulary and
    labels are those of the training strings. The plan has all rows; `splits` can select the first `number` of them with
    a length in a window.

    Args:
        path: the path of a file (.csv, .tsv, .jsonl, .json, .parquet; also compressed) or a folder.
        kind: "tagging", "transduction", "next_symbols" (each output symbol a set, as `a/b`), "classification" or
            "language", in place of the detected one.
        symbols: "words", separated by white space, or "characters", each on its own.
        validation: the share of the strings to hold out for validation, if no file has them; 0 for none.
        test: likewise for the test.
        test_from: the length from which on all strings are for the test, in place of a share; shorter ones train.
        seed: the seed of this choice, independent of the seed of a trial.
        unknown: treatment of a symbol of a validation or test string that no training string has: "refuse" it, or
            "replace" it by `<unk>` where it is only read. Symbols of answers must occur in training.
        begin: for a classification, begin each string with `<s>`, so that the empty string can be classified too.
        columns: the names of the columns in place of these, separated by commas; labels need `kind`.
        splits: see `Task`.

    Attributes:
        own_kind: the kind, as the option names it.
        digest: a digest of the content of the files.

    Raises:
        InputError: in one line that names the file and the row.
    """

    step_reduction = "mean"

    def __init__(
        self,
        path: str,
        *,
        kind: OwnKind | None = None,
        symbols: Literal["words", "characters"] = "words",
        validation: Probability = 0.1,
        test: Annotated[float, Number(above=0, below=1)] = 0.1,
        test_from: Count | None = None,
        seed: int = 0,
        unknown: Literal["refuse", "replace"] = "refuse",
        begin: bool = False,
        columns: str | None = None,
        splits: SplitChanges | None = None,
    ) -> None:
        self.name = path
        names = None if columns is None else tuple(name.strip() for name in columns.split(","))
        self._reading = Reading(kind, symbols, names)
        files = find_files(Path(path))
        self._unread = unread_tables(Path(path), files)
        content = read(tuple(files.items()), stamps(files.values()), self._reading)
        self.own_kind, self.digest = content.kind, content.digest
        self.kind = "per_step" if self.own_kind == "tagging" else self.own_kind
        if unknown == "replace" and self.own_kind == "language":
            raise InputError(f"{self}: unknown=replace is for symbols that are only read; a language predicts its own")
        if begin and self.own_kind != "classification":
            raise InputError(f"{self}: begin=true is for strings with labels; a {self.own_kind} task needs none")
        self._begin = begin
        shares = {"test": test, "validation": validation}
        parts = held_out(content, shares, seed, replace=unknown == "replace", test_from=test_from)
        splits = splits or {}
        check_changes(splits)
        parts["train"] = self._within(parts["train"], splits.get("train", {}))
        self._make_vocabularies(parts["train"], unknown)
        self._unseparated = unseparated(parts["train"])
        self._examples = {name: [self._encode(row) for row in rows] for name, rows in parts.items()}
        self._known = {example.source: example for rows in self._examples.values() for example in rows}
        self._numbered: set[str] = set()  # splits of which a number of strings was requested
        super().__init__()
        self.plan = {name: _plan(self, rows) for name, rows in self._examples.items()}
        self.change(splits)

    def change(self, splits: SplitChanges) -> None:
        """See `Task.change`."""
        super().change(splits)
        self._numbered |= {name for name, changes in splits.items() if "number" in changes}

    def _within(self, rows: Sequence[TaskRow], changes: Mapping[str, Any]) -> list[TaskRow]:
        """The rows that training reads: only their symbols and labels are known.

        Raises:
            InputError: if there are none, or for an impossible window.
        """
        lengths = [len(row.source) for row in rows]
        window = changed("train", Split(len(rows), min(lengths), max(lengths)), changes)
        fitting = [row for row in rows if window.shortest <= len(row.source) <= window.longest]
        if not fitting:
            raise InputError(f"{self} has no train string of a length from {window.shortest} to {window.longest}")
        return fitting[: window.number]

    def _make_vocabularies(self, train: Sequence[TaskRow], unknown: str) -> None:
        """Collect the symbols of the training strings and of the answers, together if they share one vocabulary."""
        read = {symbol for row in train for symbol in row.source}
        answered = {part for row in train for symbol in row.target for part in self._answers(symbol)}
        added = (*([BEGIN] if self._begin else []), *([UNKNOWN] if unknown == "replace" else []))
        for symbol in (*_RESERVED.get(self.own_kind, ()), *added):
            row = next((row for row in train if symbol in row.source or symbol in row.target), None)
            if row is not None:
                raise InputError(f"{row.where}: the symbol {symbol!r} is one that a {self.own_kind} task adds itself")
        if self.own_kind == "classification" and len(answered) < 2:
            raise InputError(f"{self}: classes need two labels or more; all training strings have {min(answered)!r}")
        if self.own_kind == "language":
            self.vocabulary = self._target_vocabulary = (*sorted(read), BEGIN, END)
        elif self.own_kind == "transduction":
            self.vocabulary = self._target_vocabulary = (*sorted(read | answered), *added)
        else:
            self.vocabulary, self._target_vocabulary = (*sorted(read), *added), tuple(sorted(answered))
        self._ids = {symbol: number for number, symbol in enumerate(self.vocabulary)}
        self._answer_ids = {symbol: number for number, symbol in enumerate(self._target_vocabulary)}

    @property
    def target_vocabulary(self) -> tuple[str, ...]:
        """See `Task.target_vocabulary`."""
        return self._target_vocabulary

    def _answers(self, symbol: str) -> list[str]:
        return split_set(symbol) if self.own_kind == "next_symbols" else [symbol]

    def _encode(self, row: TaskRow) -> Example:
        """A row in symbol ids.

        Raises:
            InputError: for a symbol or label that no training string has, or lengths that the kind does not allow.
        """
        if self.own_kind in ("tagging", "next_symbols") and len(row.source) != len(row.target):
            sizes = f"got {len(row.target)} for {len(row.source)}"
            raise InputError(f"{row.where}: a {self.own_kind} task has an output symbol for each input symbol; {sizes}")
        if not row.source and self.own_kind in ("tagging", "next_symbols", "classification") and not self._begin:
            hint = "; begin=true lets it be classified" if self.own_kind == "classification" else ""
            raise InputError(f"{row.where}: the string is empty{hint}")
        source = self._source(tuple(self._id(symbol, row) for symbol in row.source))
        if self.own_kind == "language":
            return language_example(self, source)
        sets = [[self._answer_id(part, row) for part in self._answers(symbol)] for symbol in row.target]
        sets_wanted = self.own_kind == "next_symbols"
        target = tuple(frozenset(ids) if sets_wanted else ids[0] for ids in sets)
        return Example(source, target, (True,) * len(target))

    def _source(self, string: Sequence[int]) -> tuple[int, ...]:
        """The symbols that a network reads for a string, in any task but a language."""
        return (self._ids[BEGIN], *string) if self._begin else tuple(string)

    def _id(self, symbol: str, row: TaskRow) -> int:
        number = self._ids.get(symbol, self._ids.get(UNKNOWN))
        if number is None:
            hint = "" if self.own_kind == "language" else "; trained with unknown=replace, a network reads it as <unk>"
            raise InputError(f"{row.where}: no training string has the symbol {symbol!r}{self._unseparated or hint}")
        return number

    def _answer_id(self, symbol: str, row: TaskRow) -> int:
        if symbol not in self._answer_ids or symbol == UNKNOWN:
            what = "label" if self.own_kind == "classification" else "output symbol"
            raise InputError(f"{row.where}: no training string has the {what} {symbol!r}")
        return self._answer_ids[symbol]

    def read_file(self, path: str | Path) -> list[Example]:
        """The examples of another file with the same columns.

        Raises:
            InputError: for a file that cannot be read, or a symbol that the task does not have.
        """
        _, rows = replace(self._reading, kind=self.own_kind).rows(Path(path))
        return [self._encode(row) for row in rows]

    def split(self, name: str, seed: int) -> list[Example]:
        """The first rows of a split with a length in its window, in the order of the file; the seed has no effect.

        Raises:
            InputError: if the plan has no such split, or there are fewer.
        """
        plan = self.planned(name)
        if plan.balanced or name not in self._examples:
            raise InputError(f"{self} has the splits {', '.join(self._examples)} of its files, and none balanced")
        fitting = [e for e in self._examples[name] if plan.shortest <= self._length(e) <= plan.longest]
        number = plan.number if name in self._numbered else len(fitting)
        if not fitting or number > len(fitting):
            window = f"lengths from {plan.shortest} to {plan.longest}"
            raise InputError(f"{self} has {len(fitting)} {name} strings of {window}; {number} were asked for")
        return fitting[:number]

    def check_plan(self, seed: int) -> None:
        """See `Task.check_plan`."""
        for name in self.plan:
            self.split(name, seed)

    def _length(self, example: Example) -> int:
        return len(example.source) - (self._begin or self.own_kind == "language")

    def length_weights(self, shortest: int, longest: int) -> Mapping[int, float]:
        """The lengths of strings, weighted by their number."""
        counts = Counter(self._length(example) for example in self._known.values())
        return {size: float(n) for size, n in sorted(counts.items()) if shortest <= size <= longest}

    def sample(self, rng: random.Random, length: int) -> Example:
        """One of the strings of a length."""
        return rng.choice([example for example in self._known.values() if self._length(example) == length])

    def example(self, string: Sequence[int]) -> Example:
        """The string's row, or, if no file has it, the string without scored targets.

        Raises:
            InputError: in a transduction, whose targets have any length.
        """
        if self.own_kind == "language":
            return language_example(self, string)
        source = self._source(string)
        example = self._known.get(source)
        if example is not None:
            return example
        if self.own_kind == "transduction":
            raise InputError(f"{self} has no such string, and so no target for it")
        return unscored_example(self, source)

    def summary(self) -> str:
        """Describe the files in one line."""
        parts = {name: self.split(name, 0) for name in self.plan}
        numbers = ", ".join(f"{len(examples):,} {name}" for name, examples in parts.items())
        summary = f"{self}: {self.own_kind}; {numbers} strings; {len(self.vocabulary)} symbols"
        if self.target_vocabulary != self.vocabulary:
            what = "labels" if self.own_kind == "classification" else "output symbols"
            shown = ", ".join(self.target_vocabulary[:10]) + (", ..." if len(self.target_vocabulary) > 10 else "")
            summary += f"; {len(self.target_vocabulary)} {what}: {shown}"
        unread = [f"not read, as its name is not that of a split: {name}" for name in self._unread]
        return "; ".join([summary + self._unseparated, *_repetitions(parts), *unread])


def _repetitions(parts: Mapping[str, Sequence[Example]]) -> Iterator[str]:
    """Describe the strings that a split shares with training, and those with several answers."""
    trained = {example.source for example in parts["train"]}
    for name, examples in parts.items():
        repeated = sum(example.source in trained for example in examples)
        if name != "train" and repeated:
            yield f"{repeated:,} of {len(examples):,} {name} strings are training strings too"
    answers: dict[tuple[int, ...], set[Any]] = {}
    for example in (example for examples in parts.values() for example in examples):
        answers.setdefault(example.source, set()).add(example.target)
    several = sum(len(different) > 1 for different in answers.values())
    if several:
        yield f"{several:,} strings have several answers"


def _plan(task: FileTask, examples: Sequence[Example]) -> Split:
    sizes = [task._length(example) for example in examples]
    return Split(len(sizes), min(sizes), max(sizes))
