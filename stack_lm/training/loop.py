"""The training loop, on one process or many (Accelerate): updates, logging, validation, checkpoints, exact resuming.

A trainer is a subclass that makes a model and batches, collates, and validates; see `language_model`.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, set_seed
from torch import Tensor
from transformers import PreTrainedModel

from ..console import print_note, progress
from ..errors import InputError
from ..hub.card import write_card
from ..hub.code import save_model
from .batches import Batches
from .carried import CarriedState
from .checkpoints import STATE_FILE, read_state
from .config import BaseConfig, LoopConfig
from .optimizer import load_schedule, make_optimizer, make_scheduler
from .preemption import Stopped, StopSignals
from .processes import check_number, connect_processes
from .run_directory import TRACKER, RunDirectory, on_first_process
from .temperature import TemperatureSchedule
from .threads import ThreadChooser

# Updates in a row that may be skipped: after so many the weights themselves are beyond help.
MOST_SKIPPED = 100


class Collated(NamedTuple):
    """A batch, ready for the model.

    Attributes:
        inputs: keyword arguments of the model.
        targets: in the batch, that the loss is the mean over.
        tokens: in the batch; 0 where nothing is to be said of padding.
        padded: the same with padding.
    """

    inputs: dict[str, Any]
    targets: int
    tokens: int = 0
    padded: int = 0


class TrainingLoop(ABC):
    """One training run; `train` runs it.

    Args:
        config: the run. A subclass declares its own kind, with a `LoopConfig` as `training`.
        resume: continue from the last checkpoint in `output_dir`, or start where there is none.
        overwrite: remove what an earlier run wrote in `output_dir`.
        quiet: no progress bar and no notes.

    Raises:
        InputError: if the configuration or the data cannot work, or `output_dir` has a run already. Nothing is written
            or removed then.
    """

    def __init__(self, config: Any, *, resume: bool = False, overwrite: bool = False, quiet: bool = False) -> None:
        config.check()
        self.config: BaseConfig = config
        self.loop: LoopConfig = config.training
        connect_processes()
        if self.loop.mixed_precision == "fp16" and PartialState().device.type == "cpu":
            raise InputError("training.mixed_precision=fp16 needs a GPU; on a CPU it must be 'no' or 'bf16'")
        try:
            self.accelerator = Accelerator(
                mixed_precision=self.loop.mixed_precision,
                log_with=self.loop.tracker,
                project_dir=str(Path(config.output_dir) / TRACKER),
            )
        except ValueError as error:
            raise InputError(f"training.tracker or mixed_precision: {error}") from error
        check_number(self.accelerator.num_processes)
        self.quiet = quiet or not self.accelerator.is_main_process
        self.run = RunDirectory(config, resume=resume, overwrite=overwrite, quiet=quiet)
        self.step = 0
        self.sequences = 0  # trained on, where a temperature goes by them
        self.seconds = 0.0  # of training before this process took over
        self.position: dict[str, Any] | None = None
        self.carried: CarriedState | None = None  # of continuous text, from update to update; `prepare` makes it
        self.texts: dict[str, str] = {}  # digests of the text files, for checkpoints; `prepare` makes and compares them
        self.notes: list[str] = []  # of `prepare`, printed when training begins: an error before is one line alone
        self._record = _Record()
        try:
            self._set_up()
        except BaseException:
            self.run.close()
            raise

    def _set_up(self) -> None:
        config = self.config
        set_seed(config.seed)
        model, self.batches = self.prepare(self.run.checkpoint)
        self.temperature = self._make_temperature_schedule(model)
        set_seed(config.seed, device_specific=True)  # from here on each process has its own dropout
        self._make_optimizer(model)
        state = self._load(self.run.checkpoint) if self.run.checkpoint else {}
        self.threads = ThreadChooser(self.loop.threads, self.accelerator.device, self._note, state.get("threads"))
        self.run.begin()
        if self.loop.tracker:
            self.accelerator.init_trackers("stack-lm")

    @abstractmethod
    def prepare(self, checkpoint: Path | None) -> tuple[PreTrainedModel, Batches]:
        """Make a new model, and this process's batches.

        Args:
            checkpoint: the run's, if it is resumed; the model's weights are loaded from it later.
        """

    @abstractmethod
    def collate(self, batch: Any) -> Collated:
        """A batch, ready for the model. It may be empty, at the end of an epoch on several processes: the model must
        run even so, with no targets."""

    @abstractmethod
    def evaluate(self) -> tuple[dict[str, Any], str]:
        """Validate: a record for metrics.jsonl, the mean loss under "eval_nats_per_token", and a summary for people."""

    @abstractmethod
    def write_tokenizer(self, directory: Path) -> None:
        """Save what belongs to the model beside its weights."""

    def loss(self, inputs: dict[str, Any], targets: float) -> Tensor:
        """The loss of a batch.

        Args:
            inputs: as collated.
            targets: what to divide the sum over the batch's targets by.
        """
        loss: Tensor = self.model(**inputs, use_cache=False, num_items_in_batch=targets).loss
        return loss

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.position["epoch"] if self.position else 0

    def train(self) -> dict[str, Any]:
        """Train, validating and saving on the way.

        SIGTERM and SIGUSR1 end it behind the next update, with a checkpoint.

        Returns:
            The last validation, with step, epoch and seconds.

        Raises:
            InputError: when the loss or the weights are not finite any more; no model is written then. When something
                cannot be written.
            Stopped: after a signal.
        """
        try:
            return self._train()
        finally:
            self.run.close()

    def _train(self) -> dict[str, Any]:
        self._started = time.perf_counter()
        self._last: dict[str, Any] = {}
        for line in (
            *self.notes,
            f"training on {self.accelerator.num_processes} process(es), {self.accelerator.device}",
        ):
            self._note(line)
        self.model.train()
        with (
            closing(self.batches.read(self.position)) as batches,  # type: ignore[type-var]
            progress("training", self.total, quiet=self.quiet) as advance,
            self.threads.running(),
            StopSignals() as self._signals,
        ):
            advance(self.step)
            self._clock = time.perf_counter()
            while self.step < self.total:
                epoch = self.epoch
                start = time.perf_counter()
                tokens = self._update(batches)
                self.threads.observe(tokens, time.perf_counter() - start)
                self.step += 1
                advance(1)
                self._log_and_save(ended=self.epoch > epoch)
        result = self._last or self._validate()[0]  # a resumed run that was complete
        self._save(self.run.save_model)
        if self.loop.tracker:
            self.accelerator.end_training()
        return result

    def _make_temperature_schedule(self, model: PreTrainedModel) -> TemperatureSchedule | None:
        if not self.loop.temperature_decay:
            return None
        try:
            schedule = TemperatureSchedule(self.loop.temperature_decay, self.loop.temperature_minimum)
            schedule.check(model)
        except ValueError as error:
            raise InputError(f"training.temperature_decay: {error}") from error
        return schedule

    def _make_optimizer(self, model: PreTrainedModel) -> None:
        """The optimizer, its schedule and the number of updates; model and optimizer as Accelerate wants them."""
        loop = self.loop
        optimizer = make_optimizer(loop, model, self.accelerator.device)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        # Without the prefix that DDP puts before every name, a checkpoint is a model, and serves one process too.
        self.accelerator.register_save_state_pre_hook(_without_prefix)
        self.accelerator.register_load_state_pre_hook(self._unwrap)
        per_epoch = self.batches.steps_per_epoch
        planned = None if per_epoch is None else loop.epochs * math.ceil(per_epoch / loop.gradient_accumulation)
        self.total = min(n for n in (planned, loop.max_steps) if n is not None)
        self.scheduler = make_scheduler(loop, optimizer, self.total)
        # Accelerate's own step and backward pass look for libraries and states each time, which takes a millisecond.
        kinds = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
        if self.accelerator.distributed_type in kinds and self.accelerator.scaler is None:
            self._backward, self._optimizer_step = Tensor.backward, optimizer.step
        else:
            self._backward, self._optimizer_step = self.accelerator.backward, self.optimizer.step

    def _update(self, batches: Iterator[tuple[Any, dict[str, Any]]]) -> int:
        """One update of the weights. Its loss is the mean over the targets in the batches of all processes.

        Returns:
            The number of those targets.
        """
        parts: list[Collated] = []
        sequences, epoch = 0, self.epoch
        while len(parts) < self.loop.gradient_accumulation and self.epoch == epoch:
            batch, self.position = next(batches)
            sequences += len(batch)
            parts.append(Collated(*self.collate(batch)))
        count = sum(part.targets for part in parts)
        tokens, padded = sum(part.tokens for part in parts), sum(part.padded for part in parts)
        stop = self._signals.received is not None
        world = self.accelerator.num_processes
        if world > 1:  # which also has all processes stop behind the same update
            numbers = torch.tensor([count, sequences, tokens, padded, stop], device=self.accelerator.device)
            count, sequences, tokens, padded, stop = self.accelerator.reduce(numbers, reduction="sum").tolist()
        self._stop = bool(stop)
        if self.temperature is not None:
            self.sequences += sequences
            self.temperature.step(self.accelerator.unwrap_model(self.model), self.sequences)
        carried = None if self.carried is None else self.carried.value.clone()
        total = torch.zeros((), device=self.accelerator.device)
        for i, part in enumerate(parts):
            last = i + 1 == len(parts)
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                # DDP averages gradients over processes: dividing by count / world makes that the mean over targets.
                loss = self.loss(part.inputs, count / world)
                self._backward(loss)
            total += loss.detach()
        if world > 1:
            total = self.accelerator.reduce(total, reduction="mean")
        finite = self._clip(total)
        if finite or self.accelerator.scaler is not None:  # which skips by itself, and has to see why
            self._optimizer_step()
        if finite:
            self.scheduler.step()
            self._record.add(total, count, tokens, padded)
        else:
            self._skip(carried)
        self.optimizer.zero_grad()
        return count

    def _clip(self, loss: Tensor) -> bool:
        """Clip gradients; False if the update is to be skipped. All processes have the same loss and gradients here."""
        loop = self.loop
        skips = loop.on_nan == "skip"
        if loop.max_grad_norm is None and not skips:
            return True
        limit = math.inf if loop.max_grad_norm is None else loop.max_grad_norm
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), limit)
        return not skips or math.isfinite(float(loss) + float(norm))

    def _skip(self, carried: Any) -> None:
        """Leave an update out that is not finite, and the state that it has carried on."""
        if self.carried is not None:
            self.carried.value = carried
        self._record.skipped += 1
        self._record.in_a_row += 1
        if self._record.in_a_row == MOST_SKIPPED:
            raise InputError(
                f"{MOST_SKIPPED} updates in a row, the last at step {self.step + 1}, were not finite and skipped, so "
                f"training cannot go on{self._hint()}"
            )

    def _log_and_save(self, *, ended: bool) -> None:
        """Do what is due after an update. `ended`: it was the last of an epoch."""
        loop, final = self.loop, self.step == self.total
        stop = not final and (
            self._stop or (self.accelerator.num_processes == 1 and self._signals.received is not None)
        )

        def due(every: int | None) -> bool:
            return every is not None and self.step % every == 0

        log = due(loop.log_every) or ended or final
        evaluate = due(loop.eval_every) or ended or final
        save = (due(loop.save_every) if loop.save_every else ended) or final or stop
        if not (log or evaluate or save):
            return
        self._check_finite()
        if save or ended:
            self._check_weights()
        if log:
            self._log_losses()
        if evaluate:
            record, summary = self._validate()
            self._last = self._log(record)
            for line in f"step {self.step:,}, epoch {self.epoch}: {summary}".splitlines():
                self._note(line)
        if ended and loop.save_epochs:
            self._save(partial(self.run.save_epoch, self.epoch))
        if save:
            self._save_checkpoint()
        if stop:
            raise Stopped(self._signals.describe(self.step))
        self._clock = time.perf_counter()

    def _check_finite(self) -> None:
        losses = self._record.values()
        for i, loss in enumerate(losses):
            if not math.isfinite(loss):
                step = self.step - len(losses) + i + 1
                raise InputError(
                    f"the loss is {loss} at step {step}, so training cannot go on{self._hint()}; training.on_nan=skip "
                    "leaves such updates out"
                )

    def _check_weights(self) -> None:
        """A finite loss can have a gradient that is not. No run could go on from a checkpoint with what comes of it."""
        names, weights = zip(*self.accelerator.unwrap_model(self.model).named_parameters(), strict=True)
        shards = [weight.to_local() if hasattr(weight, "to_local") else weight for weight in weights]
        sound = torch.stack([shard.detach().isfinite().all() for shard in shards]).int()
        if self.accelerator.num_processes > 1:  # each may have a share of the weights alone
            sound = self.accelerator.reduce(sound, reduction="sum") // self.accelerator.num_processes
        if not sound.all():
            name = names[int(sound.argmin())]
            raise InputError(
                f"{name} is not finite at step {self.step}, after a gradient that was not, so training cannot go on"
                f"{self._hint()}; training.on_nan=skip leaves such updates out"
            )

    def _hint(self) -> str:
        return (
            f" and no model is written to {self.run.path}; a lower training.learning_rate (now "
            f"{self.loop.learning_rate:g}) or a training.max_grad_norm may help"
        )

    def _log_losses(self) -> None:
        seconds, record = time.perf_counter() - self._clock, self._record
        if record.skipped:
            self._note(
                f"step {self.step:,}: {record.skipped} updates since the last record were not finite and skipped"
            )
        values: dict[str, Any] = {}
        if record.counts:
            values["train_nats_per_token"] = record.mean()
        values["tokens_per_second"] = sum(record.counts) / seconds
        if record.padded:
            values["padding_share"] = 1 - record.tokens / record.padded
        if self.loop.on_nan == "skip":
            values["skipped_updates"] = record.skipped
        self._record = _Record(in_a_row=record.in_a_row)
        self._log(values)

    def _validate(self) -> tuple[dict[str, Any], str]:
        record, summary = self.evaluate()
        nats = record["eval_nats_per_token"]
        if not math.isfinite(nats):
            raise InputError(f"the validation loss is {nats} at step {self.step}; no model is written")
        return self._stamp(record), summary

    def _stamp(self, values: dict[str, Any]) -> dict[str, Any]:
        """A record with where and when it was made."""
        rate = self.scheduler.get_last_lr()[0]
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
        """Everything that resuming needs, and what makes the checkpoint a model of its own. It serves any number of
        processes, if nothing is carried from update to update.
        """
        with self.run.save_checkpoint(self.step, self.loop.keep_checkpoints) as directory:
            self.accelerator.save_state(str(directory))
            if self.carried is not None:
                self.carried.save(directory, self.accelerator.process_index)
            if self.accelerator.is_main_process:
                self.accelerator.unwrap_model(self.model).config.save_pretrained(directory)
                self.write_tokenizer(directory)
                state = {
                    "step": self.step,
                    "sequences": self.sequences,
                    "seconds": self.seconds + time.perf_counter() - self._started,
                    "processes": self.accelerator.num_processes,
                    "position": self.position,
                    "record": self._record.state(),
                    "scheduler": self.scheduler.state_dict(),
                    "threads": self.threads.state(),
                    "texts": self.texts,
                }
                (directory / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")

    def _load(self, checkpoint: Path) -> dict[str, Any]:
        """Continue from a checkpoint; its state."""
        state = read_state(checkpoint) or {}
        missing = {"step", "sequences", "seconds", "processes", "position", "record", "scheduler"} - state.keys()
        if missing:
            raise InputError(f"{checkpoint} is of another version: its {STATE_FILE} lacks {', '.join(sorted(missing))}")
        before, now = state["processes"], self.accelerator.num_processes
        if self.carried is not None and before != now:
            raise InputError(
                f"{checkpoint} is of {before} process(es), and this is a run of {now}: continuous text is resumed on "
                "as many as it was begun"
            )
        self.accelerator.load_state(str(checkpoint))
        if self.carried is not None:
            self.carried.load(checkpoint, self.accelerator.process_index)
        self.step, self.seconds, self.sequences = state["step"], state["seconds"], state["sequences"]
        self.position, self._record = state["position"], _Record.load(state["record"], self.accelerator.device)
        before_rate, rate = load_schedule(self.scheduler, state["scheduler"])
        if rate != before_rate:
            self._note(
                f"the schedule has changed: after step {self.step:,} the learning rate is {rate:.3g}, which was "
                f"{before_rate:.3g}; the updates so far keep the earlier schedule"
            )
        if before != now:
            self._note(f"resuming on {now} process(es) a run of {before}: on the same sentences, in other batches")
            set_seed((self.config.seed + self.step) % 2**31, device_specific=True)
        return state

    def _unwrap(self, models: list[Any], directory: str) -> None:
        models[:] = map(self.accelerator.unwrap_model, models)

    def _save(self, save: Callable[[Callable[[Path], None]], None]) -> None:
        """Save the model and what belongs to it, ready for from_pretrained, with a function of `RunDirectory`."""
        weights = self.accelerator.get_state_dict(self.model)  # gathers them, where they are shared out

        def write(directory: Path) -> None:
            save_model(self.accelerator.unwrap_model(self.model), directory, state_dict=weights)
            self.write_tokenizer(directory)
            write_card(directory, run=self.run.path)

        on_first_process(lambda: save(write))


def _without_prefix(models: list[Any], weights: list[dict[str, Tensor]], directory: str) -> None:
    weights[:] = [{name.removeprefix("module."): tensor for name, tensor in part.items()} for part in weights]


@dataclass
class _Record:
    """What was trained on since the last line of the log.

    Attributes:
        losses: of each update.
        counts: targets of each.
        tokens, padded: of all updates.
        skipped: updates that were skipped.
        in_a_row: the same, since the last that was not.
    """

    losses: list[Tensor] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    tokens: int = 0
    padded: int = 0
    skipped: int = 0
    in_a_row: int = 0

    def add(self, loss: Tensor, count: int, tokens: int, padded: int) -> None:
        """An update that was made."""
        self.losses.append(loss)
        self.counts.append(count)
        self.tokens += tokens
        self.padded += padded
        self.in_a_row = 0

    def values(self) -> list[float]:
        """The losses."""
        return torch.stack(self.losses).tolist() if self.losses else []

    def mean(self) -> float:
        """Of the losses, over all targets."""
        weights = torch.tensor(self.counts, dtype=torch.float64)
        return float((torch.stack(self.losses).cpu().double() * weights).sum() / weights.sum())

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return vars(self) | {"losses": self.values()}

    @classmethod
    def load(cls, state: dict[str, Any], device: torch.device) -> _Record:
        """From a checkpoint."""
        return cls(**state | {"losses": list(torch.tensor(state["losses"], device=device))})
