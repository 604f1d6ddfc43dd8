"""The training loop, on one process or many (Accelerate): updates, logging, validation, checkpoints, exact resuming,
early stopping.

A trainer is a subclass that makes a model and batches, collates batches, and validates; see `language_model`.
"""

from __future__ import annotations

import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from accelerate.utils import DistributedType, set_seed
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..core.clock import Clock
from ..core.console import LineClock, print_note, progress
from ..core.errors import InputError
from ..hub.card import write_card
from ..hub.code import save_model
from ..models.modeling_base import MemoryPreTrainedModel
from .base_config import BaseConfig, BaseLoopConfig
from .batches import Batches, Collated
from .carried import CarriedState
from .checkpoints import STATE_FILE, find_damage, kept_steps, read_state
from .new_model import freeze_weights
from .optimizer import last_rate, load_schedule
from .preemption import Stopped, StopSignals
from .processes import make_accelerator, start_tracker
from .record import TrainingRecord
from .run_directory import TRACKER, RunDirectory, on_first_process
from .stopping import EarlyStopping
from .temperature import make_temperature_schedule
from .threads import choose_threads, using_threads
from .updates import Updater

# Consecutive updates that may be skipped: after more, the weights themselves are beyond repair.
MOST_SKIPPED = 100
# Between checkpoints within an epoch, unless `training.save_every` sets their updates.
SAVE_SECONDS = 1800.0


class TrainingLoop(ABC):
    """One training run; `train` runs it.

    Args:
        config: the run. A subclass declares its own kind, with a `BaseLoopConfig` as `training`.
        resume: continue from the last checkpoint in `output_dir`, or start anew if there is none.
        overwrite: remove an earlier run's files from `output_dir`.
        quiet: no progress bar and no notes.

    Attributes:
        LOSS: a subclass's name for the mean loss in metrics.jsonl, after "train_" and "eval_".
        TARGETS: its name for the units over which the loss is averaged, before "_per_second".

    Raises:
        InputError: if the configuration or the data cannot work, or `output_dir` already has a run. Nothing is then
            written or removed.
    """

    LOSS: ClassVar[str]
    TARGETS: ClassVar[str]
    tokenizer: PreTrainedTokenizerBase  # saved beside the model's weights; `prepare` makes it

    def __init__(self, config: Any, *, resume: bool = False, overwrite: bool = False, quiet: bool = False) -> None:
        config.check()
        self.config: BaseConfig = config
        self.loop: BaseLoopConfig = config.training
        logs = Path(config.output_dir) / TRACKER
        self.accelerator = make_accelerator(self.loop.mixed_precision, self.loop.tracker, logs)
        self.quiet = quiet or not self.accelerator.is_main_process
        self.run = RunDirectory(config, resume=resume, overwrite=overwrite, quiet=quiet)
        self.step = 0
        self.sequences = 0  # number of training sequences, if a temperature depends on it
        self.seconds = 0.0  # of training before this process took over
        self.position: dict[str, Any] | None = None
        self.carried: CarriedState | None = None  # of continuous text, from update to update; `prepare` makes it
        self.texts: dict[str, str] = {}  # digests of the text files, for checkpoints; `prepare` makes and compares them
        self.notes: list[str] = []  # of `prepare`, printed when training begins: an earlier error is a single line
        self.stopping = EarlyStopping(self.loop.patience)
        self.best: dict[str, Any] | None = None  # the record of the best validation, if the best model is kept
        self._record = TrainingRecord()
        self._parts: dict[str, Any] = {}  # of the loss of the current update, if a model has several
        try:
            self._set_up()
        except BaseException:
            self.run.close()
            raise

    def _set_up(self) -> None:
        config, loop = self.config, self.loop
        set_seed(config.seed)
        model, self.batches = self.prepare(self.run.checkpoint)
        freeze_weights(model, loop.freeze)
        self.temperature = make_temperature_schedule(loop, model)
        set_seed(config.seed, device_specific=True)  # from here each process has its own dropout
        per_epoch = self.batches.steps_per_epoch
        updates = None if per_epoch is None else math.ceil(per_epoch / loop.gradient_accumulation)
        planned = None if updates is None else loop.epochs * updates
        self._kept = kept_steps(loop.save_epochs, updates)
        self.total = min(n for n in (planned, loop.max_steps) if n is not None)
        self.updater = Updater(self.accelerator, loop, model, self.total)
        self.model = self.updater.model
        state = self._load(self.run.checkpoint) if self.run.checkpoint else {}
        recorded = (state.get("threads") or {}).get("threads")
        self.threads = choose_threads(loop.threads, self.accelerator.device, recorded)
        self.run.begin()
        if loop.tracker:
            self.notes += filter(None, [start_tracker(self.accelerator, loop.tracker, self.run.path / TRACKER)])

    @abstractmethod
    def prepare(self, checkpoint: Path | None) -> tuple[PreTrainedModel, Batches]:
        """Make a new model, its `tokenizer`, and this process's batches.

        Args:
            checkpoint: the run's, if it is resumed; the model's weights are loaded from it later.
        """

    @abstractmethod
    def collate(self, batch: Any) -> Collated:
        """A batch, ready for the model. It may be empty, at the end of an epoch on several processes: the model must
        run even then, with no targets."""

    @abstractmethod
    def evaluate(self) -> tuple[dict[str, Any], str]:
        """Validate: a record for metrics.jsonl, the mean loss under "eval_" and `LOSS`, and a summary for people."""

    def loss(self, inputs: dict[str, Any], targets: float) -> Tensor:
        """The loss of a batch.

        Args:
            inputs: as collated.
            targets: divisor of the sum over the batch's targets.
        """
        outputs = self.model(**inputs, use_cache=False, num_items_in_batch=targets)
        for name, part in (getattr(outputs, "loss_parts", None) or {}).items():
            self._parts[name] = self._parts.get(name, 0) + part
        return outputs.loss

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return self.position["epoch"] if self.position else 0

    @property
    def over(self) -> bool:
        """True if all updates are done, or validation has stopped improving."""
        return self.step >= self.total or self.stopping.over

    def train(self) -> dict[str, Any]:
        """Train, with validations and checkpoints.

        SIGTERM and SIGUSR1 end it after the next update, with a checkpoint.

        Returns:
            The validation of the trained model, with step, epoch and seconds: the last one or, with
            `training.patience`, the best.

        Raises:
            InputError: if the loss or the weights are no longer finite; no model is then written. If something
                cannot be written.
            Stopped: after a signal.
        """
        try:
            return self._train()
        finally:
            self.run.close()

    def _train(self) -> dict[str, Any]:
        self._started = time.perf_counter()
        self._begun, self._lines, self._saving = self.step, LineClock(), Clock(SAVE_SECONDS)
        # Seconds and targets of the first update, which compiles, so it does not count for the speed.
        self._first, self._logged = (0.0, 0), False
        self._carried = sum(self._record.counts)  # targets before a stop, in the first record
        self._last: dict[str, Any] = {}
        where = f"{self.accelerator.num_processes} process(es), {self.accelerator.device}, {self.threads} thread(s)"
        sharded = self.accelerator.distributed_type == DistributedType.FSDP
        if os.environ.get("ACCELERATE_USE_FSDP") == "true" and not sharded:
            where += "; Accelerate shards weights on several GPUs only, so that each process has all of them"
        for line in (*self.notes, f"training on {where}"):
            self._note(line)
        self.model.train()
        with (
            closing(self.batches.read(self.position)) as batches,  # type: ignore[type-var]
            progress("training", self.total, quiet=self.quiet, lines=False) as advance,
            using_threads(self.threads),
            StopSignals() as self._signals,
        ):
            advance(self.step)
            self._clock = time.perf_counter()
            while not self.over:
                epoch, start = self.epoch, time.perf_counter()
                self._update(batches)
                if self.step == self._begun:
                    self._first = time.perf_counter() - start, sum(self._record.counts) - self._carried
                self.step += 1
                advance(1)
                self._log_and_save(ended=self.epoch > epoch)
        result = self._take_best() or self._last or self._validate()[0]  # of a resumed run that was complete
        self._save(self.run.save_model, result)
        if self.loop.tracker:
            self.accelerator.end_training()
        return result

    def _update(self, batches: Iterator[tuple[Any, dict[str, Any]]]) -> None:
        """One update of the weights. Its loss is the mean over the targets in the batches of all processes."""
        parts: list[Collated] = []
        sequences, epoch = 0, self.epoch
        while len(parts) < self.loop.gradient_accumulation and self.epoch == epoch:
            batch, self.position = next(batches)
            sequences += len(batch)
            parts.append(self.collate(batch))
        count, tokens, padded = (sum(getattr(part, name) for part in parts) for name in Collated._fields[1:])
        stop = self._signals.received is not None
        late = self.accelerator.is_main_process and not self.loop.save_every and self._saving.due()
        if self.accelerator.num_processes > 1:  # which also makes all processes save and stop after the same update
            numbers = torch.tensor([count, sequences, tokens, padded, stop, late], device=self.accelerator.device)
            count, sequences, tokens, padded, stop, late = self.accelerator.reduce(numbers, reduction="sum").tolist()
        self._stop, self._late = bool(stop), bool(late)
        if self.temperature is not None:
            self.sequences += sequences
            self.temperature.step(self.accelerator.unwrap_model(self.model), self.sequences)
        carried: Any = None if self.carried is None else self.carried.value.clone()
        inner = self.accelerator.unwrap_model(self.model)
        if isinstance(inner, MemoryPreTrainedModel):
            inner.begin_update(self.step)
        self._parts = {}
        loss = self.updater.update(parts, count, self.loss)
        if loss is not None:
            if self._parts and self.accelerator.num_processes > 1:
                self._parts = self.accelerator.reduce(self._parts, reduction="mean")
            self._record.add(loss, self._parts, count, tokens, padded)
            return
        if self.carried is not None:  # the skipped update has moved it on
            self.carried.value = carried
        self._record.skip()
        if self._record.in_a_row == MOST_SKIPPED:
            self._check(f"{MOST_SKIPPED} updates in a row, up to step {self.step + 1}, were not finite and skipped")

    def _log_and_save(self, *, ended: bool) -> None:
        """Log, validate and save after an update, as due. `ended`: whether it was the last of an epoch."""
        loop, final = self.loop, self.step == self.total
        stop = self._stop or (self.accelerator.num_processes == 1 and self._signals.received is not None)

        def due(every: int | None) -> bool:
            return every is not None and self.step % every == 0

        log = due(loop.log_every) or ended or final
        evaluate = due(loop.eval_every) or ended or final
        save = (due(loop.save_every) if loop.save_every else ended or self._late) or final or stop
        keep = f"{self.epoch}" if ended and loop.save_epochs is True else self._kept.get(self.step)
        if not (log or evaluate or save or keep):
            return
        paused = time.perf_counter()
        self._check(self._record.fault(self.step))
        if evaluate or save or keep:
            self._check(self.updater.fault(self.step))
        if log:
            self._log_losses()
        if evaluate:
            record, summary = self._validate()
            self._last = self._log(record)
            for line in f"step {self.step:,}, epoch {self.epoch}: {summary}".splitlines():
                self._note(line)
            if loop.patience is not None and self.stopping.update_best(self._last[f"eval_{self.LOSS}"]):
                self.best, save = self._last, True
            save |= self.over
        if keep:
            self._save(partial(self.run.save_epoch, keep))
        if save:
            self._save_checkpoint()
        if stop and not self.over:
            raise Stopped(self._signals.describe(self.step))
        now = time.perf_counter()
        self._clock = now if log else self._clock + now - paused

    def _take_best(self) -> dict[str, Any] | None:
        """Return to the model of the best validation, if it is kept; the result is its record."""
        if self.best is not None and self.best["step"] != self.step:
            self.accelerator.load_state(str(self.run.checkpoint_of(self.best["step"])))
        return self.best

    def _check(self, fault: str | None) -> None:
        if fault is not None:
            skip = "" if self.loop.on_nan == "skip" else "; training.on_nan=skip ignores such updates"
            raise InputError(
                f"{fault}, so training cannot go on and no model is written to {self.run.path}; a lower "
                f"training.learning_rate (now {self.loop.learning_rate:g}) or a training.max_grad_norm may help{skip}"
            )

    def _log_losses(self) -> None:
        seconds, record = time.perf_counter() - self._clock, self._record
        slow, few = 0.0, 0
        if not self._logged:
            few = self._carried
            if self.step - self._begun > 1:  # otherwise the first update is alone
                slow, few = self._first[0], few + self._first[1]
        self._logged = True
        if record.skipped:
            self._note(f"step {self.step:,}: {record.skipped} updates since the last line were not finite and skipped")
        values: dict[str, Any] = {}
        if record.counts:
            for name, mean in record.means().items():
                values[f"train_{self.LOSS}" if name == "main" else f"train_{name}_{self.LOSS}"] = mean
        values[f"{self.TARGETS}_per_second"] = (sum(record.counts) - few) / (seconds - slow)
        if record.padded:
            values["padding_share"] = 1 - record.tokens / record.padded
        if self.loop.on_nan == "skip":
            values["skipped_updates"] = record.skipped
        self._record = TrainingRecord(in_a_row=record.in_a_row)
        self._log(values)
        if record.counts and self._lines.due():
            updates, passed = self.step - self._begun, time.perf_counter() - self._started
            if updates > 1:
                updates, passed = updates - 1, passed - self._first[0]
            left = timedelta(seconds=round(passed / updates * (self.total - self.step)))
            loss = f"{values[f'train_{self.LOSS}']:.3f} {self.LOSS.replace('_', ' ')}"
            speed = f"{values[f'{self.TARGETS}_per_second']:,.0f} {self.TARGETS} per second"
            self._note(f"step {self.step:,} of {self.total:,}: {loss}, {speed}, about {left} left")

    def _validate(self) -> tuple[dict[str, Any], str]:
        record, summary = self.evaluate()
        loss = record[f"eval_{self.LOSS}"]
        self._check(None if math.isfinite(loss) else f"the validation loss is {loss} at step {self.step}")
        return self._stamp(record), summary

    def _stamp(self, values: dict[str, Any]) -> dict[str, Any]:
        """A record with its step, epoch and time."""
        rate = last_rate(self.updater.scheduler)
        seconds = self.seconds + time.perf_counter() - self._started
        return {"step": self.step, "epoch": self.epoch, **values, "learning_rate": rate, "seconds": seconds}

    def _log(self, values: dict[str, Any]) -> dict[str, Any]:
        record = values if "step" in values else self._stamp(values)
        self.run.log(record)
        if self.loop.tracker:
            self.accelerator.log(values, step=self.step)
        return record

    def _note(self, text: str) -> None:
        if not self.quiet:
            print_note(text)

    def _save_checkpoint(self) -> None:
        """Save everything that resuming needs, and the files that make the checkpoint a model itself. It serves any
        number of processes, if nothing is carried from update to update.
        """
        best = None if self.best is None else self.best["step"]
        with self.run.save_checkpoint(self.step, self.loop.keep_checkpoints, best) as directory:
            self.accelerator.save_state(str(directory))
            if self.carried is not None:
                self.carried.save(directory, self.accelerator.process_index)
            if self.accelerator.is_main_process:
                self.accelerator.unwrap_model(self.model).config.save_pretrained(directory)
                self.tokenizer.save_pretrained(directory)
                state = {
                    "step": self.step,
                    "sequences": self.sequences,
                    "seconds": self.seconds + time.perf_counter() - self._started,
                    "processes": self.accelerator.num_processes,
                    "position": self.position,
                    "record": self._record.state(),
                    "scheduler": self.updater.scheduler.state_dict(),
                    "threads": {"threads": self.threads},
                    "texts": self.texts,
                    "best": self.best,
                    "waited": self.stopping.waited,
                }
                (directory / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
        self._saving = Clock(SAVE_SECONDS)

    def _load(self, checkpoint: Path) -> dict[str, Any]:
        """Continue from a checkpoint, and return its state."""
        state = read_state(checkpoint) or {}
        missing = {"step", "sequences", "seconds", "processes", "position", "record", "scheduler"} - state.keys()
        if missing:
            raise InputError(f"{checkpoint} is from another version: {STATE_FILE} lacks {', '.join(sorted(missing))}")
        before, now = state["processes"], self.accelerator.num_processes
        if self.carried is not None and before != now:
            raise InputError(f"{checkpoint} of continuous text is of {before} process(es), and this run has {now}")
        self.accelerator.load_state(str(checkpoint))
        if self.carried is not None:
            self.carried.load(checkpoint, self.accelerator.process_index)
        self.step, self.seconds, self.sequences = state["step"], state["seconds"], state["sequences"]
        self.position, self._record = state["position"], TrainingRecord.load(state["record"], self.accelerator.device)
        self._load_best(state.get("best"), state.get("waited", 0))
        before_rate, rate = load_schedule(self.updater.scheduler, state["scheduler"])
        if rate != before_rate:
            change = f"after step {self.step:,} the learning rate is {rate:.3g}, which was {before_rate:.3g}"
            self._note(f"the schedule has changed: {change}; the updates so far keep the earlier schedule")
        if before != now:
            self._note(f"resuming on {now} process(es) a run of {before}: on the same sentences, in other batches")
            set_seed((self.config.seed + self.step) % 2**31, device_specific=True)
        return state

    def _load_best(self, best: dict[str, Any] | None, waited: int) -> None:
        """Continue with the best validation so far, if it is known and its model exists."""
        if self.loop.patience is None:
            return
        if best is None:
            if any(f"eval_{self.LOSS}" in record for record in self.run.logged()):
                self._note("training.patience was not set before, so earlier validations do not count")
            return
        fault = on_first_process(lambda: find_damage(self.run.checkpoint_of(best["step"])))
        if fault is None:
            self.best, self.stopping.best, self.stopping.waited = best, best[f"eval_{self.LOSS}"], waited
        else:
            self._note(f"the model of step {best['step']:,}, the best so far, is left out: {fault}")

    def _save(self, save: Callable[[Callable[[Path], None]], None], validation: dict[str, Any] | None = None) -> None:
        """Save the model and its tokenizer, ready for from_pretrained, with a function of `RunDirectory`.

        A finished run also gets a card, with the scores of `validation`.
        """
        weights = self.accelerator.get_state_dict(self.model)  # gathers the weights, if they are sharded

        def write(directory: Path) -> None:
            save_model(self.accelerator.unwrap_model(self.model), directory, state_dict=weights)
            self.tokenizer.save_pretrained(directory)
            if validation is not None:
                write_card(directory, run=self.run.path, validation=validation)

        on_first_process(lambda: save(write))
