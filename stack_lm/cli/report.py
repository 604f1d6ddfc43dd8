"""The result of a command: a record and tables, which are printed here, and the problems of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..core.console import print_json, print_note, print_written
from ..core.errors import InputError, OnError, fail
from .printing import PrintedTable


@dataclass
class Report:
    """The result of a command.

    Attributes:
        record: what `--json` prints.
        shown: tables and lines for people.
        written: the files that were written; None is one that was not.
        finish: called last; it raises the error of what was left out.
        form: the form of the tables, one of `printing.FORMS`.
        status: the exit status.
    """

    record: dict[str, Any]
    shown: Iterable[PrintedTable | str] = ()
    written: Sequence[str | None] = ()
    finish: Callable[[], None] | None = None
    form: str = "text"
    status: int = 0

    def print(self, as_json: bool) -> int:
        """Print the record, or the tables and lines; returns the exit status."""
        if as_json:
            print_json(self.record)
        else:
            for i, part in enumerate(self.shown):
                if isinstance(part, str):
                    print(part)
                    continue
                if i and self.form != "text":
                    print()
                part.print_as(self.form)
            print_written(*self.written)
        if self.finish is not None:
            self.finish()
        return self.status


class Problems:
    """Unreadable input: the first problem stops the command; with `--keep-going` the command continues without it.

    Args:
        keep_going: collect problems, and fail at the end.
    """

    def __init__(self, keep_going: bool) -> None:
        self._found: dict[str, None] = {}  # each once, even if its source is read twice
        self._keep_going = keep_going

    @property
    def on_error(self) -> OnError:
        """An error handler for readers that can skip a part: it collects the error, or raises it."""
        return (lambda error: self.add([str(error)])) if self._keep_going else fail

    def add(self, messages: Sequence[str]) -> None:
        """Collect problems, and print the first ten."""
        for message in messages:
            if message in self._found:
                continue
            self._found[message] = None
            if len(self._found) <= 10:
                print_note(f"left out: {message}")

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """Run a part of the work, which is skipped if its input is invalid."""
        try:
            yield
        except InputError as error:
            self.on_error(error)

    def finish(self) -> None:
        """End the command.

        Raises:
            InputError: if anything was left out.
        """
        if self._found:
            more = f", and {len(self._found) - 1} more" if len(self._found) > 1 else ""
            raise InputError(f"something was left out: {next(iter(self._found))}{more}")
