"""The state of trials in training: a file from which interrupted trials resume.

unfinished/ROW/SEED.safetensors  of trials that train at once, the first of them with this seed: their tensors, and as
                                 JSON metadata their configurations and other numbers
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError, safe_open

from ...core.atomic import atomic_file
from ...core.errors import InputError
from ...core.messages import explaining

if TYPE_CHECKING:
    from torch import Tensor

UNFINISHED = "unfinished"
_SUFFIX = ".safetensors"
# Seconds of training between two writes; shorter training writes nothing.
SECONDS = 60.0


class State(NamedTuple):
    """The state from which unfinished trials continue.

    Attributes:
        numbers: the other numbers, for JSON.
        tensors: the tensors, by name.
    """

    numbers: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class StateFile:
    """The file of trials that train at once.

    Attributes:
        path: the path of the file.
        row: the name of their row.
        configs: all settings that determine each outcome, including the seed.
    """

    path: Path
    row: str
    configs: list[dict[str, Any]]

    @classmethod
    def of(cls, directory: Path, number: int, row: str, configs: list[dict[str, Any]]) -> StateFile:
        """The file in a directory of results.

        Args:
            directory: the directory of the results.
            number: the number of the row, from 0.
            row: its name.
            configs: see the class.
        """
        configs = json.loads(json.dumps(configs))  # as they are in the file
        path = directory / UNFINISHED / str(number + 1) / f"{configs[0]['seed']}{_SUFFIX}"
        return cls(path, row, configs)

    @property
    def number(self) -> int:
        """The number of the row, from 0."""
        return int(self.path.parent.name) - 1

    @property
    def seeds(self) -> list[int]:
        """The seeds of the trials."""
        return [config["seed"] for config in self.configs]

    def save(self, state: State) -> None:
        """Write a state durably: the file is complete at every moment.

        Raises:
            InputError: if it cannot be written.
        """
        from safetensors.torch import save_file

        about = json.dumps({"row": self.row, "configs": self.configs, "numbers": state.numbers})
        # Copies, because parameters of trials that train at once share their memory.
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.tensors.items()}
        with atomic_file(self.path) as path:
            with explaining(f"cannot write {self.path}", SafetensorError):  # its own form of errors of the system
                save_file(tensors, path, {"about": about})
            with open(path, "rb") as file:
                os.fsync(file.fileno())

    def load(self) -> State | None:
        """The state in the file; None if it has no state of exactly these trials.

        Raises:
            InputError: if the file is damaged, or of another kind.
        """
        if not self.path.is_file():
            return None
        file, state = _read(self.path)
        return state if file == self else None

    def remove(self) -> None:
        """Remove the file, and any directories left empty."""
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()
            self.path.parent.parent.rmdir()


def state_files(directory: Path, rows: Container[int]) -> list[StateFile]:
    """The states of rows in a directory of results, by row and seed.

    Args:
        directory: the directory of the results.
        rows: numbers of the rows, from 0.

    Raises:
        InputError: if a file is damaged, or of another kind.
    """
    return [_read(path)[0] for number, _, path in _find(directory) if number in rows]


def begun_rows(directory: Path) -> set[int]:
    """The numbers, from 0, of rows that have a state."""
    return {number for number, _, _ in _find(directory)}


def _find(directory: Path) -> list[tuple[int, int, Path]]:
    """The state files: row number, from 0, first seed and path."""
    return sorted(
        (int(path.parent.name) - 1, int(path.stem), path)
        for path in (directory / UNFINISHED).glob(f"*/*{_SUFFIX}")
        if path.stem.isdecimal() and path.parent.name.isdecimal()
    )


def remove_partial(directory: Path) -> None:
    """Remove partial files of processes killed while writing a state."""
    for path in (directory / UNFINISHED).glob("*/.*.partial*"):
        path.unlink(missing_ok=True)


def _read(path: Path) -> tuple[StateFile, State]:
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return StateFile(path, about["row"], about["configs"]), State(about["numbers"], tensors)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no state of trials, or damaged; remove it, and its trials begin anew") from error
