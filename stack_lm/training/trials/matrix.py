"""A table as a matrix: its tasks down, by the Chomsky hierarchy, and its networks across."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import InputError
from ...tasks.hierarchy import LEVELS, level_of
from .config import Row, Table

OTHERS = "other tasks"
_TASKS = ("task", "language")


@dataclass(frozen=True)
class Matrix:
    """The rows of a table by task and network.

    Attributes:
        networks: their names, in the table's order.
        levels: the names of the tasks, in the table's order, by level of the hierarchy from the smallest; tasks of
            unknown level come last. If no level is known, the only one is "".
        rows: the rows by task and network.
    """

    networks: list[str]
    levels: dict[str, list[str]]
    rows: dict[tuple[str, str], Row]


def make_matrix(table: Table) -> Matrix:
    """The matrix of a table: one column has the tasks (see `task_column`), the others the networks.

    Raises:
        InputError: if the table has only one column.
    """
    if len(table.columns) < 2:
        raise InputError(f"a matrix has columns of tasks and of networks; {table.title!r} has {table.columns}")
    rows = dict(zip(split_cells(table), table.rows, strict=True))
    tasks = {task: level_of(row.task) for (task, _), row in reversed(rows.items())}
    levels: dict[str, list[str]] = {}
    for level in (*LEVELS, ""):
        level_tasks = [task for task in dict.fromkeys(task for task, _ in rows) if tasks[task] == level]
        if level_tasks:
            levels[level or (OTHERS if levels else "")] = level_tasks
    return Matrix(list(dict.fromkeys(network for _, network in rows)), levels, rows)


def task_column(table: Table) -> int:
    """The index of the column with the tasks: the first one named so, else the first."""
    names = [str(column).lower() for column in table.columns]
    return next((i for i, name in enumerate(names) if name in _TASKS), 0)


def split_cells(table: Table) -> list[tuple[str, str]]:
    """The task of each row and, from its other cells, its network; "" and the cell for rows of one cell."""
    last, task_columns = task_column(table), _columns_of_tasks(table)
    split = []
    for row in table.rows:
        cells = [
            f"{column}: {cell}" if cell in ("yes", "no") else str(cell)
            for column, cell in zip(table.columns, row.cells, strict=True)
        ]
        network = ", ".join(cell for i, cell in enumerate(cells) if i not in task_columns)
        split.append((cells[last], network) if len(cells) > 1 else ("", cells[0]))
    return split


def _columns_of_tasks(table: Table) -> set[int]:
    """The task's column, and the columns before it that describe tasks, not networks, such as their class."""
    last = task_column(table)
    tasks = {row.cells[last] for row in table.rows}
    same = {i for i in range(last) if len({(row.cells[last], row.cells[i]) for row in table.rows}) == len(tasks)}
    return {last, *same} if len(same) + 1 < len(table.columns) else {last}
