"""A schedule for the temperature of controls that choose operations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from ..core.messages import explaining
from ..memory.emission import OperationChoice


def temperatures(model: nn.Module) -> list[Tensor]:
    """The temperatures of a model's controls, which are buffers: changing them in place changes the model."""
    return [choice.temperature for choice in _choices(model) if choice.temperature is not None]


def _choices(model: nn.Module) -> list[OperationChoice]:
    return [module for module in model.modules() if isinstance(module, OperationChoice)]


class TemperatureSchedule(TrainerCallback):
    """A temperature T = max(T_0 exp(-decay n), minimum) for the n-th training sequence.

    T_0 is the initial temperature of a control. Schedule and defaults are those of the code released with Suzgun et al.
    (2019), whose section 3.4 defines the controls. The temperature is saved with the weights, so evaluation uses the
    last.

    Pass it to transformers' Trainer in `callbacks`, or call `step` in your own loop. `stack_lm.training.language_model`
    has it as `training.temperature_decay`.

    Args:
        decay: the rate for each sequence, above 0.
        minimum: the lowest temperature, above 0.

    Raises:
        ValueError: if a number is not above 0.

    Example:
        >>> Trainer(model, arguments, train_dataset=data, callbacks=[TemperatureSchedule()])
    """

    def __init__(self, decay: float = 1e-4, minimum: float = 0.5) -> None:
        for name, value in (("decay", decay), ("minimum", minimum)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a number above 0; got {value}")
        self.decay, self.minimum = decay, minimum

    def check(self, model: nn.Module) -> None:
        """Check that the model has a temperature.

        Raises:
            ValueError: if it has none.
        """
        if not temperatures(model):
            needed = "operation_control='softmax_temperature' or 'gumbel_softmax'"
            raise ValueError(f"a temperature schedule needs a model with {needed}; this one has no temperature")

    @torch.no_grad()
    def step(self, model: nn.Module, sequences: int) -> None:
        """Set the model's temperatures, in place. Call it before the forward pass of an update.

        Args:
            model: one of this package.
            sequences: n, the number of training sequences so far, including those of the coming update.
        """
        # From the count, not from the previous temperature: such small steps would be lost to rounding.
        for choice in _choices(model):
            if choice.temperature is not None:
                lowered = choice.first_temperature * math.exp(-self.decay * sequences)
                choice.temperature.fill_(max(lowered, self.minimum))

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """transformers' Trainer calls it; see `check`."""
        self.check(model)

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """transformers' Trainer calls it before each update; see `step`."""
        # The last batch of an epoch, which may be smaller, counts as a full one: the Trainer does not give its size.
        update = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        self.step(model, (state.global_step + 1) * update)


def make_temperature_schedule(settings: Any, model: nn.Module) -> TemperatureSchedule | None:
    """The schedule of a configuration; None without one.

    Args:
        settings: a configuration with temperature_decay and temperature_minimum.
        model: the model whose temperature it sets.

    Raises:
        InputError: if the model has none.
    """
    if not settings.temperature_decay:
        return None
    with explaining("training.temperature_decay", ValueError):
        schedule = TemperatureSchedule(settings.temperature_decay, settings.temperature_minimum)
        schedule.check(model)
    return schedule
