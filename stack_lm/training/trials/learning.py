"""Training trials: the loop of epochs and updates, for one model or several of one configuration at once.

Updates of these networks are dominated by torch and Python overhead, so training several seeds at once takes a fraction
of the time of training them in turn (`training.together`). Each sees its own strings, in its own order, as when alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ...core.checks import checks_of
from ...core.clock import Clock
from ...core.errors import InputError
from ...models.configuration_transformer import ATTENTION
from ...nn import draw_noise, with_noise
from ..optimizer import make_optimizer
from ..together import Together, check_scan, stack_padded
from . import unfinished
from .auxiliary import auxiliary_loss
from .computation import choose_example
from .encoding import Encoded, loss_weights, weighted_loss
from .scores import measure_dead_zone, run
from .trial import Trial, below
from .unfinished import State, StateFile

Batch = Mapping[str, Any]  # tensors, and the noise of actions by name
# Arguments: the fraction of epochs completed, and a description of the trials' progress.
Report = Callable[[float, str], None]


class _Alone:
    """One model, with the interface of `Together`."""

    def __init__(self, model: Any, loss: Callable[[Any, Batch], Tensor]) -> None:
        self.model, self._loss = model, loss

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.model.parameters())

    def losses(self, inputs: Batch) -> Tensor:
        return self._loss(self.model, tree_map(lambda part: part[0], dict(inputs))).unsqueeze(0)

    def clip_gradients(self, max_norm: float) -> Tensor:
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm)


def train(
    trials: Sequence[Trial], report: Report = lambda share, text: None, file: StateFile | None = None
) -> list[dict[str, Any]]:
    """Train trials of one configuration, and test them.

    Args:
        trials: differing only in their seeds; all are trained at once if `can_join` allows it.
        report: called after each epoch, and with 0 completed if there is something to say about the start.
        file: where to write, about once a minute, the state of trials that are trained at once. If it has a state, they
            resume from it, and end as if they had not been interrupted.

    Returns:
        The results of the trials: `Trial.result`, with their seconds.

    Raises:
        InputError: if the file cannot be written, or its state does not fit.
    """
    if len(trials) > 1 and not can_join(trials[0]):
        results = []
        for i, trial in enumerate(trials):
            results += train([trial], lambda share, text, i=i: report((i + share) / len(trials), text))  # type: ignore[misc]
        return results
    started, clock, first = time.perf_counter(), Clock(unfinished.SECONDS), trials[0]
    state = None if file is None else file.load()
    zone = None
    if state is None:
        example = choose_example(first.encoding.task, None, None, first.config.seed)
        zone = measure_dead_zone(first.model.eval(), first.encoding, first.encoding.encode([example]))
    torch.manual_seed(first.config.seed)  # of dropout of a trial that `can_join` leaves alone
    for trial in trials:
        trial.prepare()
    if file is None or state is None:
        if zone and zone.warning:
            report(0, zone.warning)
        group = _JointTrials(trials)
    else:
        try:
            group = _resumed(trials, state)
            started -= state.numbers["seconds"]
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            why = " ".join(str(error).split())
            raise InputError(f"{file.path} does not fit its trials ({why}); remove it, and they begin anew") from error
    while group.trials:
        losses, strings, updates = group.epoch()
        over = [trial.end_epoch(loss, strings, updates) for trial, loss in zip(group.trials, losses, strict=True)]
        epoch, epochs = len(group.trials[0].history), trials[0].loop.epochs
        report(1 - len(group.trials) / len(trials) * (1 - epoch / epochs), _describe(group.trials, len(trials)))
        if any(over):
            group = group.without(over)
        if file is not None and clock.due():
            file.save(_state(trials, group, time.perf_counter() - started))
    trained = time.perf_counter()
    results = [trial.result() for trial in trials]
    times = {
        "together": len(trials),
        "seconds": round((time.perf_counter() - started) / len(trials), 2),
        "seconds_of_training": round((trained - started) / len(trials), 2),
    }
    return [result | times for result in results]


def _describe(trials: Sequence[Trial], begun: int) -> str:
    """A line that describes the trials after an epoch."""
    records = [trial.history[-1] for trial in trials]
    text = f"epoch {records[0]['epoch']:,} of {trials[0].loop.epochs:,}, loss {_range([r['loss'] for r in records])}"
    score = trials[0].encoding.kind.shown[0]
    if "validation" in records[0]:
        text += f", validation {score} {_range([record['validation'][score] for record in records])}"
    return text + (f", {len(trials)} of {begun} trials are left" if len(trials) < begun else "")


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "not finite"
    low, high = f"{min(known):.4f}", f"{max(known):.4f}"
    return low if low == high else f"{low} to {high}"


def _state(trials: Sequence[Trial], group: _JointTrials, seconds: float) -> State:
    """The state that training continues from.

    Args:
        trials: all trials that started together.
        group: the trials still in training.
        seconds: their training time so far.
    """
    tensors = {"random.0": torch.get_rng_state()} | group.optimizer_state()
    if torch.cuda.is_initialized():
        tensors["random.1"] = torch.cuda.get_rng_state()
    numbers: dict[str, Any] = {"seconds": seconds, "trials": []}
    for i, trial in enumerate(trials):
        own = trial.state()
        numbers["trials"].append(own.numbers)
        tensors |= {f"{i}.{name}": tensor for name, tensor in own.tensors.items()}
    return State(numbers, tensors)


def _resumed(trials: Sequence[Trial], state: State) -> _JointTrials:
    """The trials still in training in a saved state, restored."""
    for i, trial in enumerate(trials):
        trial.load(State(state.numbers["trials"][i], below(f"{i}.", state.tensors)))
    group = _JointTrials(trials)
    if any(trial.over for trial in trials):
        if not trials[0].encoding.task.online:
            group.load_data()  # padded to the longest of all trials, as it was
        group = group.without([trial.over for trial in trials])
    group.load_optimizer(state.tensors)
    torch.set_rng_state(state.tensors["random.0"])
    if "random.1" in state.tensors:
        torch.cuda.set_rng_state(state.tensors["random.1"])
    return group


def can_join(trial: Trial) -> bool:
    """True if several models like a trial's can be trained at once.

    False if they have dropout that `Trial.draw_noise` does not draw: it would be drawn for all at once, so a trial's
    result would depend on the others. Also false if the compiled scan cannot run them, or torch would run a part of
    them one by one, as self-attention.
    """
    if trial.encoding.library:
        return False
    config, drawn = trial.model.config, draw_noise(trial.model, (1, 1))
    dropouts = {name for name in checks_of(type(config)) if name.endswith("dropout") and getattr(config, name)}
    if any(name.endswith(".dropout") for name in drawn):
        dropouts.remove("hidden_dropout")
    if ATTENTION in getattr(config, "layers", ()):
        return False
    if dropouts or (trial.encoding.buffered and drawn):
        return False  # the steps of a scan with buffers are not those of its strings
    try:
        check_scan(trial.model)
    except InputError:
        return False
    return True


class _JointTrials:
    """Trials that are trained at once, with their optimizer."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = list(trials)
        if not trials:
            return
        self.loop = trials[0].loop
        models = [trial.model for trial in trials]
        for model in models:
            model.train()
        self.learners: Together | _Alone = (
            Together(models, self._loss) if len(models) > 1 else _Alone(models[0], self._loss)
        )
        # Each trial has a rate of its own; `_step` sets it.
        self.device: torch.device = models[0].device
        # Most draw none, and looking for it in every update takes a twentieth of their time.
        self._draws_noise = not trials[0].encoding.buffered and bool(draw_noise(models[0], (1, 1), torch.Generator()))
        self.optimizer = make_optimizer(self.loop, self.learners.parameters(), 1.0, self.device)
        self._data: Encoded | None = None

    def without(self, over: Sequence[bool]) -> _JointTrials:
        """The trials still in training, with their part of the optimizer's state."""
        unfinished = torch.tensor([i for i, done in enumerate(over) if not done], dtype=torch.long)
        group = _JointTrials([self.trials[i] for i in unfinished.tolist()])
        if not group.trials:
            return group
        alone = len(group.trials) == 1
        parameters = zip(self.learners.parameters(), group.learners.parameters(), strict=True)
        for before, after in parameters:
            # The number of updates is one number; all else is by trial.
            group.optimizer.state[after] = {
                name: (part[unfinished[0]] if alone else part[unfinished]).clone() if part.dim() else part.clone()
                for name, part in self.optimizer.state[before].items()
            }
        group._data = None if self._data is None else Encoded(*(field[unfinished] for field in self._data))
        return group

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimizer's tensors, by parameter index and name."""
        parameters = self.learners.parameters() if self.trials else []
        return {
            f"optimizer.{i}.{name}": tensor
            for i, parameter in enumerate(parameters)
            for name, tensor in self.optimizer.state[parameter].items()
        }

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the tensors from `optimizer_state`."""
        for i, parameter in enumerate(self.learners.parameters() if self.trials else []):
            own = below(f"optimizer.{i}.", tensors)
            self.optimizer.state[parameter] = {name: tensor.to(self.device) for name, tensor in own.items()}

    def epoch(self) -> tuple[list[float], int, int]:
        """Train on all strings once; returns each trial's mean loss, and the numbers of strings and updates."""
        sums = torch.zeros(len(self.trials), dtype=self.trials[0].model.dtype, device=self.device)
        strings = updates = 0
        rates = [trial.rate for trial in self.trials]
        for batch in self._batches():
            strings, updates = strings + batch["inputs"].shape[1], updates + 1
            self._apply_temperature(self.trials[:1], strings)
            losses = self.learners.losses(tree_map(lambda part: part.to(self.device), batch))
            for parameter in self.learners.parameters():
                parameter.grad = None
            losses.sum().backward()
            if self.loop.max_grad_norm is not None:
                self.learners.clip_gradients(self.loop.max_grad_norm)
            if self.loop.max_grad_value is not None:
                torch.nn.utils.clip_grad_value_(self.learners.parameters(), self.loop.max_grad_value)
            self._step(rates)
            sums += losses.detach()
        self._apply_temperature(self.trials, strings)
        return (sums / updates).tolist(), strings, updates

    def load_data(self) -> Encoded:
        """Load the strings of the next epoch: the same ones, unless each epoch has new strings."""
        if self._data is None or self.trials[0].encoding.task.online:
            self._data = _stack([trial.training_data() for trial in self.trials], self.trials[0].encoding.padding)
        return self._data

    def _loss(self, model: Any, batch: Batch) -> Tensor:
        with with_noise(model, batch.get("noise")):
            if "auxiliary" in batch:
                logits, further = auxiliary_loss(model, batch["inputs"], batch["continuations"], batch["auxiliary"])
                return weighted_loss(logits, batch["labels"], batch["weights"]) + further
            logits = run(model, batch["inputs"], batch["labels"].shape[1], self.trials[0].encoding)
        return weighted_loss(logits, batch["labels"], batch["weights"])

    def _step(self, rates: Sequence[float]) -> None:
        """Make an update, with the optimizer's own rate if all trials share one."""
        if len(set(rates)) == 1:
            for group in self.optimizer.param_groups:
                group["lr"] = rates[0]
            self.optimizer.step()
        else:
            assert isinstance(self.learners, Together)
            self.learners.step(self.optimizer, rates)

    def _apply_temperature(self, trials: Sequence[Trial], strings: int) -> None:
        """Set temperatures; during an epoch, setting the first model's is enough, since the others follow it."""
        for trial in trials:
            if trial.temperature is not None:
                trial.temperature.step(trial.model, trial.strings + strings)

    def _batches(self) -> Iterator[Batch]:
        """The batches of an epoch: inputs [S, B, T], labels and weights of losses likewise."""
        first, size, data = self.trials[0], self.loop.batch_size, self.load_data()
        number = data.inputs.shape[1]
        order = torch.stack([trial.order(own) for trial, own in zip(self.trials, data.steps, strict=True)])
        rows = torch.arange(len(order)).unsqueeze(1)
        steps = data.steps.gather(1, order)
        sets = data.labels.dim() == 4
        drops = self.loop.drop_last and number > size  # the only batch stays
        for start in range(0, number - number % size if drops else number, size):
            own = order[:, start : start + size]
            # In an input buffer padding counts; elsewhere it changes nothing.
            end = None if first.encoding.buffered else int(steps[:, start : start + size].max())
            inputs, labels, trained = (part[rows, own, :end] for part in (data.inputs, data.labels, data.trained))
            dtype = first.model.dtype
            weights = loss_weights(trained, first.reduction, labels.shape[3] if sets else 1, dtype)
            batch: dict[str, Any] = {"inputs": inputs, "labels": labels.to(dtype) if sets else labels}
            batch["weights"] = weights
            if first.auxiliary:
                batch["continuations"] = data.continuations[rows, own, :end]
                weights_of = {name: [trial.auxiliary[name] for trial in self.trials] for name in first.auxiliary}
                batch["auxiliary"] = {name: torch.tensor(part, dtype=dtype) for name, part in weights_of.items()}
            yield batch | self._noise(steps[:, start : start + size])

    def _noise(self, steps: Tensor) -> dict[str, Any]:
        """The noise of each trial, by name [S, B, T, ...], for strings of the given lengths [S, B]; or nothing."""
        if not self._draws_noise:
            return {}
        lengths = zip(self.trials, steps.amax(1).tolist(), strict=True)
        drawn = [trial.draw_noise(steps.shape[1], length) for trial, length in lengths]
        return {"noise": {name: stack_padded([noise[name] for noise in drawn]) for name in drawn[0]}}


def _stack(parts: Sequence[Encoded], padding: int) -> Encoded:
    """The examples of several trials [S, N, ...], padded to the longest."""
    fields: Any = Encoded._make(map(list, zip(*parts, strict=True)))
    stacked = [torch.stack(field) if field[0].dim() == 1 else stack_padded(field) for field in fields]
    return Encoded(*stacked)._replace(inputs=stack_padded(fields.inputs, padding))
