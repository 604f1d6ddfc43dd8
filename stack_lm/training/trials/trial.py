"""One trial: a model, the data of a seed, and their training state; `learning.train` trains it."""

from __future__ import annotations

import copy
import json
import math
import os
import random
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.errors import InputError
from ...core.messages import explaining
from ...memory.controls import Noise
from ...models.kinds import choose_class, class_named
from ...nn import draw_noise
from ...tasks import make_task
from ...tasks.kinds import KINDS, PAD
from ...tasks.scores import overall
from ...tasks.stream import Stream
from ...text.tokenization import symbol_tokenizer
from ..new_model import check_causal, new_model, take_weights
from ..stopping import EarlyStopping
from ..temperature import make_temperature_schedule
from .auxiliary import HEADS, add_heads
from .config import IN_NATS, TASK_FILE, LogUniform, TaskConfig, check_task_models
from .encoding import Encoded, Encoding
from .scores import score
from .unfinished import State

# Attributes that change during training, and are numbers or lists of numbers.
_NUMBERS = ("history", "learning_rate", "strings", "updates", "longest", "over", "_solved")


class Trial:
    """A model and its data.

    Args:
        config: the trial.
        device: the device of the model; "meta" checks a configuration without making the numbers of its model.

    Attributes:
        model: as trained so far.
        encoding: the encoding of the task for it.
        auxiliary: the weights of the losses of the model's auxiliary heads, by name; 0 for losses that only other seeds
            use.
        reduction: the reduction of the loss; see `encoding.loss_weights`.
        learning_rate: the current value, which the schedule scales (`rate`).
        history: a record for each epoch: its number, the strings trained on so far, the mean loss of its updates, and
            the scores on the validation strings if computed.
        strings, updates: totals so far.
        longest: the length of the longest string trained on so far, in symbols.
        over: whether training has ended.

    Raises:
        InputError: if the task or the model cannot be built, or are incompatible.
    """

    def __init__(self, config: TaskConfig, device: str = "cpu") -> None:
        config.check()
        self.config, self.loop = config, config.training
        task = make_task(config.task, **config.options)
        if config.data and config.data != task.digest:
            raise InputError(f"{config.task} has changed since the trials began")
        architecture = choose_class(config.model, *KINDS).__name__
        self.encoding = Encoding(task, architecture, one_boundary=self.loop.one_boundary)
        reduction = self.loop.loss_reduction
        if reduction == "steps" and task.step_reduction is None:
            raise InputError(f"{task.name} has no loss over steps: set training.loss_reduction=mean, or strings")
        self.reduction = f"step_{task.step_reduction}" if reduction == "steps" else reduction
        torch.manual_seed(config.seed)
        with torch.device(device) if device == "meta" else nullcontext():
            self.model = make_model(config, self.encoding)
        if self.encoding.library:
            check_causal(make_model(config, self.encoding) if device == "meta" else self.model)
        if getattr(self.model.config, "auxiliary_losses", None):
            raise InputError(
                "model.auxiliary_losses need text: set model.auxiliary_losses=[], and detach=false in its layers"
            )
        if self.loop.initial_model is not None:
            load_weights(self.model, self.loop.initial_model.replace("{seed}", str(config.seed)))
        self.auxiliary = self._choose_auxiliary()
        add_heads(self.model, self.auxiliary, task)
        self.model.to(device)
        self.temperature = make_temperature_schedule(self.loop, self.model)
        self.learning_rate = self._choose_learning_rate()
        self.history: list[dict[str, Any]] = []
        self._generators = {name: torch.Generator().manual_seed(config.seed) for name in ("order", "noise")}
        self._stream: Stream | None = None
        self._validation: Encoded | None = None
        self._validated = self._choose_validation()
        self._decisive = self._choose_score()
        self._stopping = EarlyStopping(self.loop.patience, self._decisive not in IN_NATS)
        self._best: dict[str, Tensor] | None = None
        self._solved = 0
        self.updates = self.strings = self.longest = 0
        self.over = False

    def prepare(self) -> None:
        """Draw the data for training."""
        task = self.encoding.task
        if task.online:
            self._stream = task.stream("train", self.config.seed)
        if self._validated is not None:
            self._validation = self.encoding.encode(task.split(self._validated, self.config.seed))

    def training_data(self) -> Encoded:
        """The strings of an epoch: the same each time, or the next new ones if the task draws new strings."""
        task = self.encoding.task
        if self._stream is None:
            examples = task.split("train", self.config.seed)
        else:
            examples = list(islice(self._stream, task.planned("train").number))
        data = self.encoding.encode(examples, continuations=bool(self.auxiliary))
        self.longest = max(self.longest, int(data.sizes.max()))
        return data

    def order(self, steps: Tensor) -> Tensor:
        """The order of an epoch's strings, given their lengths [N]; each `batch_size` of them form a batch."""
        number, size = len(steps), self.loop.batch_size
        if not self.loop.shuffle:
            return torch.arange(number)
        order = torch.randperm(number, generator=self._generators["order"])
        if not self.loop.batch_by_length:
            return order
        full = number - number % size  # the rest, a smaller batch, is in any order
        by_length = order[:full][steps[order[:full]].argsort(stable=True)].view(-1, size)
        # In an epoch all trials go through the lengths in one order, so that at once they need little padding.
        epoch_generator = torch.Generator().manual_seed(len(self.history))
        return torch.cat((by_length[torch.randperm(full // size, generator=epoch_generator)].flatten(), order[full:]))

    @property
    def rate(self) -> float:
        """The learning rate of the next epoch."""
        epoch, warmup = len(self.history), self.loop.warmup_epochs
        if epoch < warmup:
            return self.learning_rate * (epoch + 1) / (warmup + 1)
        if self.loop.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * (epoch - warmup) / (self.loop.epochs - warmup))) / 2

    def draw_noise(self, strings: int, steps: int) -> Noise:
        """The noise of an update, for actions and dropout, by name [strings, steps, ...]; empty if there is none.

        It comes from the trial's own generator, so it does not depend on other trials trained at the same time.
        """
        return draw_noise(self.model, (strings, steps), self._generators["noise"])

    def end_epoch(self, loss: float, strings: int, updates: int) -> bool:
        """Score the model after an epoch.

        Args:
            loss: mean over its updates.
            strings: number of strings in the epoch.
            updates: number of updates in the epoch.

        Returns:
            True if training is over: after the last epoch, without further improvement, or if the loss is not finite.
        """
        self.strings, self.updates = self.strings + strings, self.updates + updates
        finite = math.isfinite(loss)
        epoch = len(self.history) + 1
        record: dict[str, Any] = {"epoch": epoch, "loss": loss if finite else None, "strings": self.strings}
        over = not finite or epoch == self.loop.epochs
        if self._validation is not None:
            scores = score(self.model, self.encoding, self._validation, self.config.seed)
            record["validation"] = overall(scores)
            better = self._stopping.update_best(scores[self._decisive])
            kind = self.encoding.kind  # a cross-entropy is never solved
            solved = not kind.distribution and scores[kind.shown[0]] == 1
            self._solved = self._solved + 1 if solved else 0
            over |= self._stopping.over or self._solved == self.loop.solved_patience
            if self.loop.decay_patience and not better and self._stopping.waited % self.loop.decay_patience == 0:
                self.learning_rate *= self.loop.decay_factor
            if better and self.loop.keep == "best":
                self._best = copy.deepcopy(self.model.state_dict())
        self.history.append(record)
        self.over = over
        return over

    def state(self) -> State:
        """The state from which training continues after an epoch."""
        numbers = {name: getattr(self, name) for name in _NUMBERS} | {"stopping": vars(self._stopping)}
        numbers["stream"] = None if self._stream is None else self._stream.state()
        tensors = {f"generator.{name}": generator.get_state() for name, generator in self._generators.items()}
        for kind, weights in (("model", self.model.state_dict()), ("best", self._best or {})):
            tensors |= {f"{kind}.{name}": tensor for name, tensor in weights.items()}
        return State(numbers, tensors)

    def load(self, state: State) -> None:
        """Resume from a state, after `prepare`.

        Raises:
            KeyError, ValueError, TypeError, RuntimeError: if the state does not belong to such a trial.
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
        """Test the model; returns the trial's record for the results file, except for its time."""
        if self._best is not None:
            self.model.load_state_dict(self._best)
        names = [name for name in self.encoding.task.plan if name != "train"]
        return {
            "scores": {name: self._score(name) for name in names},
            "history": self.history,
            "epochs": len(self.history),
            "updates": self.updates,
            "longest": self.longest,
            "learning_rate": self._choose_learning_rate(),
            "auxiliary": {name: weight for name, weight in self.auxiliary.items() if weight},
            "diverged": self.history[-1]["loss"] is None,
            "validation_score": self._decisive,
        }

    def save(self, directory: Path) -> None:
        """Save the model with its symbols and its task, without auxiliary heads."""
        answers = self.encoding.answers
        self.model.config.id2label = dict(enumerate(answers))
        self.model.config.label2id = {symbol: i for i, symbol in enumerate(answers)}
        weights = {name: part for name, part in self.model.state_dict().items() if not name.startswith(f"{HEADS}.")}
        self.model.save_pretrained(directory, state_dict=weights)
        padding = PAD if PAD in self.encoding.symbols else None
        symbol_tokenizer(self.encoding.symbols, padding).save_pretrained(directory)
        about = {"task": self.config.task, "options": self.config.options, "seed": self.config.seed}
        (directory / TASK_FILE).write_text(json.dumps(about) + "\n", encoding="utf-8")

    def _score(self, split: str) -> dict[str, Any]:
        examples = self.encoding.task.split(split, self.config.seed)
        scores = score(self.model, self.encoding, self.encoding.encode(examples), self.config.seed)
        return self.encoding.task.add_scores(scores, examples, split)

    def _choose_validation(self) -> str | None:
        """The split to validate on, if any."""
        named, plan = self.loop.validate, self.encoding.task.plan
        if named is True:
            return "validation" if "validation" in plan else None
        if named in plan:
            return str(named)
        if named is False:
            return None
        raise InputError(f"training.validate must be True, False or a split of {self.config.task}; got {named!r}")

    def _choose_score(self) -> str:
        """The validation score that selects the best epoch."""
        kind, name = self.encoding.kind, self.loop.validation_score
        if name is not None and name not in kind.scores:
            raise InputError(f"training.validation_score must be one of {', '.join(kind.scores)}; got {name!r}")
        return name or kind.shown[0]

    def _choose_learning_rate(self) -> float:
        rate = self.loop.learning_rate
        if isinstance(rate, LogUniform):
            return rate.draw(random.Random(f"{self.config.seed}/learning rate"))
        return rate[self.config.seed % len(rate)] if isinstance(rate, list) else rate

    def _choose_auxiliary(self) -> dict[str, float]:
        """Weights of the auxiliary losses; all seeds have the same heads, so that they can be trained at once."""
        variants = [losses.weights() for losses in self.loop.auxiliary or ()]
        if not variants:
            return {}
        own = variants[self.config.seed % len(variants)]
        chosen: dict[str, float] = {}
        for name in sorted(set().union(*variants)):
            weight = own.get(name, 0.0)
            rng = random.Random(f"{self.config.seed}/{name}")
            chosen[name] = weight.draw(rng) if isinstance(weight, LogUniform) else weight
        return chosen


def make_model(config: TaskConfig, encoding: Encoding) -> Any:
    """A new model for the task.

    Raises:
        InputError: for a key or value that its configuration rejects.
    """
    model_class = class_named(encoding.architecture, *KINDS)
    assert model_class is not None, "the encoding has checked it"
    model: Any = new_model(model_class, config.model | encoding.fields)
    return model.to(getattr(torch, config.training.dtype))


def load_weights(model: Any, directory: str) -> None:
    """Load the weights saved by an earlier trial into a model.

    Raises:
        InputError: if there is no such model, or its parameters differ.
    """
    directory = os.path.expanduser(directory)
    check_task_models(directory)
    with explaining(f"{directory} has no model that can be loaded", Exception):  # many kinds: of files, of safetensors
        weights = type(model).from_pretrained(directory).state_dict()
    if missing := take_weights(model, weights, directory):
        raise InputError(f"{directory} has another kind of model: it has no {', '.join(missing[:3])}")


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, which is removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
