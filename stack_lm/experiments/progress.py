"""The progress of trials on standard error: a bar on a terminal, elsewhere lines."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..console import LineClock


class TrialProgress:
    """A context manager that shows the progress of jobs.

    Args:
        names: the names of the jobs.
        sizes: number of trials of each.
        quiet: show nothing.
    """

    def __init__(self, names: Sequence[str], sizes: Sequence[int], quiet: bool = False) -> None:
        self._names, self._sizes, self._quiet = names, sizes, quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._done, self._total = 0, sum(sizes)
        self._shares = [0.0] * len(sizes)
        self._clocks: dict[int, LineClock] = {}  # by job
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        hidden = quiet or not self._console.is_terminal
        self._bar = Progress(*columns, console=self._console, transient=True, disable=hidden)
        self._task = self._bar.add_task("", total=self._total or None)

    def __enter__(self) -> Self:
        self._bar.start()
        self._update()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, job: int, share: float, said: str) -> None:
        """Show a job's progress after an epoch; without a terminal, at most about once a minute.

        Args:
            job: its number.
            share: fraction completed.
            said: description of its progress.
        """
        self._shares[job] = share
        self._update()
        if self._clocks.setdefault(job, LineClock()).due():
            self._print(f"{self._names[job]}: {said}")

    def finish(self, job: int, lines: Sequence[str]) -> None:
        """Show that a job is done, with a line for each of its trials."""
        self._shares[job] = 1.0
        self._done += self._sizes[job]
        self._update()
        for line in lines:
            self._print(line)

    def _update(self) -> None:
        completed = sum(share * size for share, size in zip(self._shares, self._sizes, strict=True))
        self._bar.update(self._task, completed=completed, description=f"{self._done} of {self._total} trials")

    def _print(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, markup=False)
