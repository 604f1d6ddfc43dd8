"""One trial: a model, the data of a seed, and what becomes of both; `learning.train` trains it."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..controls import Noise
from ..errors import InputError
from ..layers import draw_noise
from ..model_kinds import choose_class, classes_for
from ..plugins import used
from ..tasks import Example, make_task
from ..tasks.kinds import KINDS, PAD
from ..tasks.stream import Stream
from ..tokenization import symbol_tokenizer
from ..training.new_model import make_config
from ..training.stopping import EarlyStopping
from ..training.temperature import make_temperature_schedule
from .config import TASK_FILE, LearningRates, TaskConfig
from .encoding import Encoded, Encoding
from .scores import score
from .unfinished import State

# Attributes that change while a trial is trained, and are numbers or lists of them.
_NUMBERS = ("history", "learning_rate", "strings", "updates", "over", "_solved")


class Trial:
    """A model and its data.

    Args:
        config: the trial.

    Attributes:
        model: as trained so far.
        encoding: of the task for it.
        reduction: of the loss; see `encoding.loss_weights`.
        learning_rate: as it is now.
        history: a record for each epoch: its number, the strings trained on so far, the mean loss of its updates, and
            the scores on the validation strings where they are scored.
        strings, updates: trained on and made so far.
        over: whether training is over.

    Raises:
        InputError: if the task or the model cannot be made, or do not fit.
    """

    def __init__(self, config: TaskConfig) -> None:
        config.check()
        self.config, self.loop = config, config.training
        task = make_task(config.task, **config.options)
        if config.data and config.data != task.digest:
            raise InputError(f"{config.task} has changed since the trials began")
        architecture = choose_class(config.model, *KINDS).__name__
        self.encoding = Encoding(task, architecture, one_boundary=self.loop.one_boundary)
        reduction = self.loop.loss_reduction
        if reduction == "steps" and task.step_reduction is None:
            raise InputError(
                f"training.loss_reduction='steps' needs a task whose loss is a sum over steps; {task.name} has none, "
                "so it must be 'mean' or 'strings'"
            )
        self.reduction = f"step_{task.step_reduction}" if reduction == "steps" else reduction
        torch.manual_seed(config.seed)
        self.model = make_model(config, self.encoding)
        self.temperature = make_temperature_schedule(self.loop, self.model)
        self.learning_rate = self._choose_learning_rate()
        self.history: list[dict[str, Any]] = []
        self._generators = {name: torch.Generator().manual_seed(config.seed) for name in ("order", "noise")}
        self._stream: Stream[Example] | None = None
        self._validation: Encoded | None = None
        kind = self.encoding.kind
        self._main_score = kind.shown[0]
        self._stopping = EarlyStopping(self.loop.patience, not kind.distribution)
        self._best: dict[str, Tensor] | None = None
        self._solved = 0
        self.updates = self.strings = 0
        self.over = False

    def check_batches(self) -> None:
        """Find a trial without a batch.

        Raises:
            InputError: if all training strings are left out, as a last batch that is smaller.
        """
        train = self.encoding.task.planned("train")
        if self.loop.drop_last and not train.balanced and train.number < self.loop.batch_size:
            raise InputError(
                f"training.drop_last leaves out all {train.number} training strings: they are fewer than "
                f"training.batch_size, {self.loop.batch_size}"
            )

    def prepare(self) -> None:
        """Draw the data that training looks at.

        Raises:
            InputError: if there is none; see `check_batches`.
        """
        self.check_batches()
        task = self.encoding.task
        if task.online:
            self._stream = task.stream("train", self.config.seed)
        if self.loop.validate and "validation" in task.plan:
            self._validation = self._encode("validation")

    def training_data(self) -> Encoded:
        """The strings of an epoch: the same in each, or of a task that has ever new ones, the next."""
        if self._stream is None:
            return self._encode("train")
        return self.encoding.encode(list(islice(self._stream, self.encoding.task.planned("train").number)))

    @property
    def has_new_strings(self) -> bool:
        """Whether the strings of each epoch are others."""
        return self.encoding.task.online

    def order(self, steps: Tensor) -> Tensor:
        """The order of an epoch's strings, of so many steps each [N]; every `batch_size` of them make a batch."""
        number, size = len(steps), self.loop.batch_size
        if not self.loop.shuffle:
            return torch.arange(number)
        order = torch.randperm(number, generator=self._generators["order"])
        if not self.loop.batch_by_length:
            return order
        full = number - number % size  # the others, which make a smaller batch, are any
        by_length = order[:full][steps[order[:full]].argsort(stable=True)].view(-1, size)
        return torch.cat(
            (by_length[torch.randperm(full // size, generator=self._generators["order"])].flatten(), order[full:])
        )

    def draw_noise(self, strings: int, steps: int) -> Noise:
        """The noise of the actions in an update, by name [strings, steps, ...]; empty where there is none.

        It comes from the trial's own generator, so that it does not depend on the trials that are trained beside it.
        """
        return draw_noise(self.model, (strings, steps), self._generators["noise"])

    def end_epoch(self, loss: float, strings: int, updates: int) -> bool:
        """Score the model after an epoch.

        Args:
            loss: of its updates, a mean.
            strings: trained on in the epoch.
            updates: made in it.

        Returns:
            Whether training is over: after the last epoch, when nothing gets better, and when the loss is not finite.
        """
        self.strings, self.updates = self.strings + strings, self.updates + updates
        finite = math.isfinite(loss)
        epoch = len(self.history) + 1
        record: dict[str, Any] = {"epoch": epoch, "loss": loss if finite else None, "strings": self.strings}
        over = not finite or epoch == self.loop.epochs
        if self._validation is not None:
            scores = score(self.model, self.encoding, self._validation, self.config.seed)
            record["validation"] = {name: value for name, value in scores.items() if name != "by_length"}
            better = self._stopping.look(scores[self._main_score])
            self._solved = self._solved + 1 if self._is_solved(scores) else 0
            over |= self._stopping.over or self._solved == self.loop.solved_patience
            if self.loop.decay_patience and not better and self._stopping.waited % self.loop.decay_patience == 0:
                self.learning_rate *= self.loop.decay_factor
            if better and self.loop.keep == "best":
                self._best = copy.deepcopy(self.model.state_dict())
        self.history.append(record)
        self.over = over
        return over

    def state(self) -> State:
        """What training goes on from after an epoch."""
        numbers = {name: getattr(self, name) for name in _NUMBERS} | {"stopping": vars(self._stopping)}
        numbers["stream"] = None if self._stream is None else self._stream.state()
        tensors = {f"generator.{name}": generator.get_state() for name, generator in self._generators.items()}
        for kind, weights in (("model", self.model.state_dict()), ("best", self._best or {})):
            tensors |= {f"{kind}.{name}": tensor for name, tensor in weights.items()}
        return State(numbers, tensors)

    def load(self, state: State) -> None:
        """Go on from a state, after `prepare`.

        Raises:
            KeyError, ValueError, TypeError, RuntimeError: if it is none of such a trial.
        """
        for name in _NUMBERS:
            setattr(self, name, state.numbers[name])
        self._stopping = EarlyStopping(**state.numbers["stopping"])
        if self._stream is not None:
            self._stream.load(state.numbers["stream"])
        for name, generator in self._generators.items():
            generator.set_state(state.tensors[f"generator.{name}"])
        self.model.load_state_dict(below("model.", state.tensors))
        self._best = below("best.", state.tensors) or None

    def result(self) -> dict[str, Any]:
        """Test the model: what a results file has of the trial, but for its time."""
        if self._best is not None:
            self.model.load_state_dict(self._best)
        names = [name for name in self.encoding.task.plan if name != "train"]
        return {
            "scores": {name: self._score(name) for name in names},
            "history": self.history,
            "epochs": len(self.history),
            "updates": self.updates,
            "learning_rate": self._choose_learning_rate(),
            "diverged": self.history[-1]["loss"] is None,
        }

    def save(self, directory: Path) -> None:
        """Save the model with its symbols and its task."""
        answers = self.encoding.answers
        self.model.config.id2label = dict(enumerate(answers))
        self.model.config.label2id = {symbol: i for i, symbol in enumerate(answers)}
        self.model.save_pretrained(directory)
        padding = PAD if PAD in self.encoding.symbols else None
        symbol_tokenizer(self.encoding.symbols, padding).save_pretrained(directory)
        about = {"task": self.config.task, "options": self.config.options, "seed": self.config.seed}
        about |= used(task=[self.config.task])
        (directory / TASK_FILE).write_text(json.dumps(about) + "\n", encoding="utf-8")

    def _encode(self, split: str) -> Encoded:
        return self.encoding.encode(self.encoding.task.split(split, self.config.seed))

    def _score(self, split: str) -> dict[str, Any]:
        examples = self.encoding.task.split(split, self.config.seed)
        scores = score(self.model, self.encoding, self.encoding.encode(examples), self.config.seed)
        return self.encoding.task.add_scores(scores, examples, split)

    def _is_solved(self, scores: dict[str, Any]) -> bool:
        """Whether all is right; cross-entropies have no such end."""
        return not self.encoding.kind.distribution and scores[self._main_score] == 1

    def _choose_learning_rate(self) -> float:
        rate = self.loop.learning_rate
        if isinstance(rate, LearningRates):
            low, high = math.log(rate.low), math.log(rate.high)
            return math.exp(random.Random(f"{self.config.seed}/learning rate").uniform(low, high))
        return rate[self.config.seed % len(rate)] if isinstance(rate, list) else rate


def make_model(config: TaskConfig, encoding: Encoding) -> Any:
    """A new model for the task.

    Raises:
        InputError: for a key or value that its configuration refuses.
    """
    model_class = classes_for(*KINDS)[encoding.architecture]
    model: Any = model_class(make_config(model_class, config.model | encoding.fields))
    return model.to(getattr(torch, config.training.dtype))


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
