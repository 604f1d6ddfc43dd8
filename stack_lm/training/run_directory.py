"""A training run's directory: every trainer opens, resumes, replaces, logs to and saves it in the same way.

training_config.yaml   the run's configuration; a directory without it is not a run
metrics.jsonl          the records of the log
checkpoints/           checkpoint-N of step N, to resume from
epochs/                the models of epochs
tracker/               logs of an Accelerate tracker
config.json, ...       the trained model; .model_files.json lists its files
.partial/              files being written; renamed when they are complete
.lock                  while a run is there: see `RunLock`
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from safetensors import SafetensorError

from ..core.atomic import make_directories, reason_of
from ..core.checks import build, is_number
from ..core.config_files import CONFIG_FILE, METRICS_FILE, dump_yaml, read_yaml
from ..core.console import print_note
from ..core.errors import InputError
from ..core.messages import explaining
from ..text.plain import json_object
from .base_config import BaseConfig, differences, resume_invariants
from .checkpoints import all_checkpoints, checkpoint_step, find_checkpoint, write_manifest
from .lock import LOCK_FILE, RunLock

CHECKPOINTS, EPOCHS, TRACKER = "checkpoints", "epochs", "tracker"
_MODEL_FILES, _PARTIAL = ".model_files.json", ".partial"

# In the messages of torch.save, whose writer does not give the reason of a failure.
_TORCH_WRITES = ("PytorchStreamWriter", "inline_container", "iostream error")

Result = TypeVar("Result")


def on_first_process(make: Callable[[], Result]) -> Result:
    """Call a function on the first process and return its result on all.

    Raises:
        InputError: on all processes, if it was raised on the first.
    """
    outcome: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            outcome[0] = make()
        except InputError as error:
            outcome[1] = str(error)
    result, refusal = broadcast_object_list(outcome)
    if refusal is not None:
        raise InputError(refusal)
    return result


class RunDirectory:
    """The directory of a training run, on all processes. Before `begin` nothing in it changes.

    Only one run uses it at a time: the first process holds a lock from `begin` until `close`, or until it ends.

    Args:
        config: the run.
        resume: continue from the last complete checkpoint, or start anew if there is none.
        overwrite: remove an earlier run's files.
        quiet: print no notes.

    Attributes:
        path: the directory.
        checkpoint: the checkpoint to resume from, if any.

    Raises:
        InputError: if the directory belongs to another run, or contains anything else that would be lost.
    """

    def __init__(
        self, config: BaseConfig, *, resume: bool = False, overwrite: bool = False, quiet: bool = False
    ) -> None:
        self.path = Path(config.output_dir)
        self._config, self._resume, self._overwrite = config, resume, overwrite
        self._quiet = quiet or not PartialState().is_main_process
        self._lock = RunLock(self.path)
        self._changes: dict[str, Any] = {}
        self.checkpoint, self._warnings = on_first_process(self._look)

    @property
    def checkpoints(self) -> Path:
        """The directory of the checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def step(self) -> int:
        """The step at which to resume; 0 for a new run."""
        return checkpoint_step(self.checkpoint) if self.checkpoint else 0

    def checkpoint_of(self, step: int) -> Path:
        """The path of a step's checkpoint."""
        return self.checkpoints / f"checkpoint-{step}"

    def begin(self) -> None:
        """Prepare the directory for training: remove an earlier run's files, or its unfinished ones.

        Raises:
            InputError: if the directory cannot be written, or another run is in it.
        """
        on_first_process(self._begin)
        if self._resume and not self._quiet:
            for warning in self._warnings:
                print_note(warning)
            start = f"no checkpoint in {self.path}: starting from the beginning"
            print_note(f"resuming at step {self.step:,}" if self.checkpoint else start)
            for key, change in self._changes.items():
                print_note(f"{key} was {change['before']}, and is {change['now']} now")

    def close(self) -> None:
        """Release the directory for other runs."""
        self._lock.release()

    def log(self, record: dict[str, Any]) -> None:
        """Append a record, which has its "step", to metrics.jsonl."""
        if PartialState().is_main_process:
            with (
                writing(f"{METRICS_FILE} in {self.path}"),
                open(self.path / METRICS_FILE, "a", encoding="utf-8") as file,
            ):
                file.write(json.dumps(record) + "\n")

    def logged(self) -> list[dict[str, Any]]:
        """The intact records of metrics.jsonl up to the step of the checkpoint from which the run continues."""
        metrics = self.path / METRICS_FILE
        lines = metrics.read_text(encoding="utf-8", errors="replace").splitlines() if metrics.is_file() else []
        records = [record for line in lines if (record := json_object(line)) is not None]
        return [record for record in records if isinstance(step := record.get("step"), int) and step <= self.step]

    @contextmanager
    def save_checkpoint(self, step: int, keep: int, best: int | None = None) -> Iterator[Path]:
        """Yield, on all processes, an empty directory that becomes the checkpoint of a step.

        The first process must write `STATE_FILE` into it, a mapping. The newest `keep` checkpoints are kept, and
        that of the step `best`.

        Raises:
            InputError: on all processes, if it cannot be written on one; the earlier checkpoints stay.
        """
        target = self.checkpoint_of(step)
        what = f"the checkpoint of step {step} in {self.checkpoints}"
        partial = Path(on_first_process(lambda: self._new_partial(CHECKPOINTS, what)))
        failure = None
        try:
            with writing(what):
                yield partial
        except InputError as error:
            failure = str(error)
        failure = next((fault for fault in gather_object([failure]) if fault is not None), None)

        def finish() -> None:
            if failure is not None:
                shutil.rmtree(partial, ignore_errors=True)  # it may be what fills the disk
                raise InputError(failure + self._what_is_left())
            with writing(what):
                write_manifest(partial)
                shutil.rmtree(target, ignore_errors=True)
                target.parent.mkdir(exist_ok=True)
                os.replace(partial, target)
            for old in all_checkpoints(self.checkpoints)[:-keep]:
                if checkpoint_step(old) != best:
                    shutil.rmtree(old)

        on_first_process(finish)

    def save_epoch(self, epoch: str, write: Callable[[Path], None]) -> None:
        """Keep an epoch's model, which `write` saves to a given directory. Call it on one process."""
        what = f"the model of epoch {epoch} in {self.path / EPOCHS}"
        partial, target = self._new_partial("epoch", what), self.path / EPOCHS / epoch
        with writing(what, self._what_is_left()):
            write(partial)
            shutil.rmtree(target, ignore_errors=True)
            target.parent.mkdir(exist_ok=True)
            os.replace(partial, target)

    def save_model(self, write: Callable[[Path], None]) -> None:
        """Save the trained model, which `write` saves to a given directory. Call it on one process."""
        what = f"the model in {self.path}"
        partial = self._new_partial("model", what)
        with writing(what, self._what_is_left()):
            write(partial)
            earlier, new = self._model_files(), sorted(file.name for file in partial.iterdir())
            self._write(_MODEL_FILES, json.dumps(sorted({*earlier, *new})))
            # Without config.json nothing loads a model, so it comes last.
            for name in sorted(new, key=lambda name: name == "config.json"):
                os.replace(partial / name, self.path / name)
            for name in {*earlier} - {*new}:
                (self.path / name).unlink(missing_ok=True)
            shutil.rmtree(self.path / _PARTIAL)

    def _look(self) -> tuple[Path | None, list[str]]:
        """Find where the run begins. An existing lock is taken now; in a new directory this must wait."""
        if self._lock.path.is_file():
            with writing(f"in output_dir {self.path}"):
                self._lock.acquire()
        try:
            return self._find_checkpoint()
        except InputError:
            self._lock.release()
            raise

    def _find_checkpoint(self) -> tuple[Path | None, list[str]]:
        if self._resume and self._overwrite:
            raise InputError("a run is either resumed or overwritten: give --resume or --overwrite, not both")
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        is_run = (self.path / CONFIG_FILE).is_file()
        # A run that failed before it logged anything leaves its configuration, which may be at fault.
        if names <= {_PARTIAL, LOCK_FILE, *([] if self._resume else [CONFIG_FILE])}:
            return None, []
        if self._overwrite:
            if not is_run:
                raise InputError(f"{self.path} is not a run (it has no {CONFIG_FILE}), so it is not overwritten")
            return None, []
        if not self._resume or not is_run:
            raise InputError(f"{self.path} is not empty: --resume its run, --overwrite it, or name another output_dir")
        self._check_same_run()
        checkpoint, warnings = find_checkpoint(self.checkpoints)
        if checkpoint is None and self._model_files():
            raise InputError(f"{self.path} has a model but no checkpoint: --overwrite it, or name another output_dir")
        return checkpoint, warnings

    def _check_same_run(self) -> None:
        """Check that the run is the same: it may be resumed for longer, but not as another one."""
        file = self.path / CONFIG_FILE
        with explaining(f"cannot resume {self.path}: {file}", InputError, AttributeError, TypeError):
            # With the defaults of settings newer than the run.
            earlier = build(type(self._config), read_yaml(file))
        for key, before, now in differences(resume_invariants(earlier), resume_invariants(self._config)):
            raise InputError(f"cannot resume {self.path}: its {key} was {before}, and is {now} now")
        changes = differences(dataclasses.asdict(earlier), dataclasses.asdict(self._config))
        self._changes = {key: {"before": one, "now": other} for key, one, other in changes if key != "output_dir"}

    def _begin(self) -> None:
        with writing(f"in output_dir {self.path}"):
            make_directories(self.path)
            if not self._lock.held:
                self._lock.acquire()
                if self._find_checkpoint()[0] != self.checkpoint:
                    raise InputError(f"another run has been in {self.path} since this one started")
            shutil.rmtree(self.path / _PARTIAL, ignore_errors=True)
            if self.checkpoint is None:
                self._remove_run()
            else:  # later ones are unfinished or damaged
                for later in all_checkpoints(self.checkpoints):
                    if checkpoint_step(later) > self.step:
                        shutil.rmtree(later)
                self._trim_log()
                if self._changes:
                    self.log({"step": self.step, "changed": self._changes})
            self._write(CONFIG_FILE, dump_yaml(dataclasses.asdict(self._config)))
            (self.path / _PARTIAL).rmdir()

    def _trim_log(self) -> None:
        """Remove the records of steps after the checkpoint, which will be logged again, and truncated or damaged
        ones."""
        if (self.path / METRICS_FILE).is_file():
            self._write(METRICS_FILE, "".join(json.dumps(record) + "\n" for record in self.logged()))

    def _remove_run(self) -> None:
        for name in (*self._model_files(), _MODEL_FILES, METRICS_FILE):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / TRACKER, ignore_errors=True)
        epochs = [path for path in (self.path / EPOCHS).glob("*") if is_number(path.name)]
        for directory in (*all_checkpoints(self.checkpoints), *epochs):
            shutil.rmtree(directory)
        for parent in (self.checkpoints, self.path / EPOCHS):
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()

    def _model_files(self) -> list[str]:
        file = self.path / _MODEL_FILES
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []

    def _new_partial(self, name: str, what: str) -> Path:
        partial = self.path / _PARTIAL / name
        with writing(what):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        return partial

    def _what_is_left(self) -> str:
        """The end of a message about a failed write: the step that a resumed run continues from."""
        steps = [checkpoint_step(checkpoint) for checkpoint in all_checkpoints(self.checkpoints)]
        return f"; with --resume the run continues from step {steps[-1]}" if steps else ""

    def _write(self, name: str, text: str) -> None:
        partial = self.path / _PARTIAL / name
        partial.parent.mkdir(exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path / name)


@contextmanager
def writing(what: str, rest: str = "") -> Iterator[None]:
    """Turn errors of the file system, such as a full disk, into one line.

    Raises:
        InputError: "cannot write `what`", the reason, and the rest.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot write {what}: {reason_of(error)}{rest}") from error
    except RuntimeError as error:
        if not any(sign in str(error) for sign in _TORCH_WRITES):
            raise
        raise InputError(f"cannot write {what}: writing stopped short, as on a full disk{rest}") from error
