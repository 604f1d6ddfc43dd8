"""A training run's directory: opened, resumed, replaced, logged to and saved in the same way by every trainer.

training_config.yaml   the run's configuration; a directory without it is no run
metrics.jsonl          what was logged
checkpoints/           checkpoint-N of step N, to resume from
epochs/                the models of epochs
tracker/               logs of an Accelerate tracker
config.json, ...       the trained model; .model_files.json lists its files
.partial/              what is being written; renamed when it is complete
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from ..config_files import build
from ..console import print_note
from ..errors import InputError
from .config import BaseConfig, settled

CONFIG_FILE, METRICS_FILE, STATE_FILE = "training_config.yaml", "metrics.jsonl", "trainer_state.json"
CHECKPOINTS, EPOCHS, TRACKER = "checkpoints", "epochs", "tracker"
_MODEL_FILES, _PARTIAL = ".model_files.json", ".partial"

Result = TypeVar("Result")


def on_first_process(make: Callable[[], Result]) -> Result:
    """What a function returns on the first process, on all of them; elsewhere it is not called.

    Raises:
        InputError: on all processes, if it was raised on the first.
    """
    found: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            found[0] = make()
        except InputError as error:
            found[1] = str(error)
    result, refusal = broadcast_object_list(found)
    if refusal is not None:
        raise InputError(refusal)
    return result


class RunDirectory:
    """The directory of a training run, on all processes. Until `begin` nothing in it is changed.

    Args:
        config: the run.
        resume: continue from the last complete checkpoint, or start where there is none.
        overwrite: remove what an earlier run wrote.
        quiet: print no notes.

    Attributes:
        path: the directory.
        checkpoint: to resume from, if any.

    Raises:
        InputError: if the directory holds another run, or anything else that would be lost.
    """

    def __init__(
        self, config: BaseConfig, *, resume: bool = False, overwrite: bool = False, quiet: bool = False
    ) -> None:
        self.path = Path(config.output_dir)
        self._config, self._resume, self._quiet = config, resume, quiet
        self.checkpoint = on_first_process(lambda: self._find_checkpoint(resume, overwrite))

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / CHECKPOINTS

    @property
    def step(self) -> int:
        """The step to resume at; 0 where a run starts."""
        return _number(self.checkpoint) if self.checkpoint else 0

    def begin(self) -> None:
        """Make the directory ready for training: remove what an earlier run wrote, or what it left unfinished.

        Raises:
            InputError: if the directory cannot be written.
        """
        if self._resume and not self._quiet and PartialState().is_main_process:
            start = f"no checkpoint in {self.path}: starting from the beginning"
            print_note(f"resuming at step {self.step:,}" if self.checkpoint else start)
        on_first_process(self._begin)

    def log(self, record: dict[str, Any]) -> None:
        """Append a record, which has its "step", to metrics.jsonl."""
        if PartialState().is_main_process:
            with open(self.path / METRICS_FILE, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    @contextmanager
    def save_checkpoint(self, step: int, keep: int) -> Iterator[Path]:
        """Yield, on all processes, an empty directory that becomes the checkpoint of a step.

        The first process must write `STATE_FILE` into it, a mapping. The newest `keep` checkpoints are kept.
        """
        state = PartialState()
        partial, target = self.path / _PARTIAL / CHECKPOINTS, self.checkpoints / f"checkpoint-{step}"
        if state.is_main_process:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        state.wait_for_everyone()
        yield partial
        state.wait_for_everyone()
        if state.is_main_process:
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(exist_ok=True)
            os.replace(partial, target)
            for old in _complete_checkpoints(self.checkpoints)[:-keep]:
                shutil.rmtree(old)

    def save_epoch(self, epoch: int, write: Callable[[Path], None]) -> None:
        """Keep an epoch's model, which `write` puts into the directory that it is given. Call it on one process."""
        partial, target = self._new_partial("epoch"), self.path / EPOCHS / str(epoch)
        write(partial)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(exist_ok=True)
        os.replace(partial, target)

    def save_model(self, write: Callable[[Path], None]) -> None:
        """Save the trained model, which `write` puts into the directory that it is given. Call it on one process."""
        partial = self._new_partial("model")
        write(partial)
        earlier, new = self._model_files(), sorted(file.name for file in partial.iterdir())
        self._write(_MODEL_FILES, json.dumps(sorted({*earlier, *new})))
        # Without config.json nothing loads a model, so it comes last.
        for name in sorted(new, key=lambda name: name == "config.json"):
            os.replace(partial / name, self.path / name)
        for name in {*earlier} - {*new}:
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / _PARTIAL)

    def _find_checkpoint(self, resume: bool, overwrite: bool) -> Path | None:
        if resume and overwrite:
            raise InputError("a run is either resumed or overwritten: give --resume or --overwrite, not both")
        if not self.path.is_dir() or all(path.name == _PARTIAL for path in self.path.iterdir()):
            return None
        is_run = (self.path / CONFIG_FILE).is_file()
        if overwrite:
            if not is_run:
                raise InputError(f"{self.path} is not a run (it has no {CONFIG_FILE}), so it is not overwritten")
            return None
        if not resume or not is_run:
            raise InputError(
                f"{self.path} is not empty; resume its run with --resume, replace it with --overwrite, or name "
                "another output_dir"
            )
        self._check_same_run()
        checkpoint = next(reversed(_complete_checkpoints(self.checkpoints)), None)
        if checkpoint is None and self._model_files():
            raise InputError(
                f"{self.path} has a trained model but no checkpoint to resume from; replace it with --overwrite, or "
                "name another output_dir"
            )
        return checkpoint

    def _check_same_run(self) -> None:
        """A run may be resumed for longer, but not as another one."""
        file = self.path / CONFIG_FILE
        try:
            # With the defaults of settings that are newer than the run.
            earlier = settled(build(type(self._config), yaml.safe_load(file.read_text(encoding="utf-8")) or {}))
        except (InputError, yaml.YAMLError, UnicodeDecodeError, AttributeError, TypeError) as error:
            raise InputError(f"cannot resume {self.path}: {file}: {error}") from error
        for section, now in settled(self._config).items():
            before = earlier[section]
            if isinstance(now, dict):
                keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
                before, now = ({key: side[key] for key in keys if key in side} for side in (before, now))
            if before != now:
                raise InputError(f"cannot resume {self.path}: its {section} was {before}, and is {now} now")

    def _begin(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.path / _PARTIAL, ignore_errors=True)
            if self.checkpoint is None:
                self._remove_run()
            else:
                for unfinished in {*_checkpoints(self.checkpoints)} - {*_complete_checkpoints(self.checkpoints)}:
                    shutil.rmtree(unfinished)
                self._trim_log()
            self._write(CONFIG_FILE, yaml.safe_dump(dataclasses.asdict(self._config), sort_keys=False))
            (self.path / _PARTIAL).rmdir()
        except OSError as error:
            raise InputError(f"cannot write in output_dir {self.path}: {error.strerror}") from error

    def _trim_log(self) -> None:
        """Remove the records of steps after the checkpoint, which will be logged again, and one that was cut off."""
        metrics = self.path / METRICS_FILE
        if metrics.is_file():
            records = (_mapping(line) for line in metrics.read_text(encoding="utf-8").splitlines())
            kept = [record for record in records if record is not None and record["step"] <= self.step]
            self._write(METRICS_FILE, "".join(json.dumps(record) + "\n" for record in kept))

    def _remove_run(self) -> None:
        for name in (*self._model_files(), _MODEL_FILES, METRICS_FILE):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / TRACKER, ignore_errors=True)
        epochs = [path for path in (self.path / EPOCHS).glob("*") if path.name.isdecimal()]
        for directory in (*_checkpoints(self.checkpoints), *epochs):
            shutil.rmtree(directory)
        for parent in (self.checkpoints, self.path / EPOCHS):
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()

    def _model_files(self) -> list[str]:
        file = self.path / _MODEL_FILES
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []

    def _new_partial(self, name: str) -> Path:
        partial = self.path / _PARTIAL / name
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        return partial

    def _write(self, name: str, text: str) -> None:
        partial = self.path / _PARTIAL / name
        partial.parent.mkdir(exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path / name)


def read_state(checkpoint: Path) -> dict[str, Any] | None:
    """The trainer's state in a checkpoint; None if it is unfinished, as the state is written last."""
    try:
        return _mapping((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def _checkpoints(directory: Path) -> Sequence[Path]:
    """All checkpoints, finished or not, in order of their steps."""
    found = [path for path in directory.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(found, key=_number)


def _complete_checkpoints(directory: Path) -> Sequence[Path]:
    return [path for path in _checkpoints(directory) if read_state(path) is not None]


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _mapping(text: str) -> dict[str, Any] | None:
    """A JSON object; None for text that is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
