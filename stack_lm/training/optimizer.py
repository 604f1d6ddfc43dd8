"""The optimizer and the schedule of its learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from ..core.errors import InputError
from .base_config import BaseLoopConfig


def make_optimizer(
    settings: Any, parameters: Sequence[torch.nn.Parameter], rate: float, device: torch.device
) -> torch.optim.Optimizer:
    """The configured optimizer, in torch's form that runs over all parameters at once.

    Adam, AdamW and SGD are fused on CPUs and GPUs; RMSprop has no fused form and uses lists of tensors (foreach).

    Args:
        settings: a configuration with the optimizer's name and weight_decay, which all but AdamW add to the gradient.
        parameters: the parameters to train.
        rate: the learning rate.
        device: the device of training.
    """
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(parameters, rate, weight_decay=settings.weight_decay, foreach=True)
    kind: Any = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[settings.optimizer]
    fused = device.type in ("cpu", "cuda")
    optimizer: torch.optim.Optimizer = kind(parameters, rate, weight_decay=settings.weight_decay, fused=fused)
    return optimizer


def make_scheduler(loop: BaseLoopConfig, optimizer: torch.optim.Optimizer, updates: int) -> LambdaLR:
    """The configured schedule.

    Args:
        loop: the configuration.
        optimizer: the optimizer whose learning rate it sets.
        updates: number of updates in the whole run.

    Raises:
        InputError: if the warm-up and the decay take more updates than the run has.
    """
    if loop.decay_steps and loop.warmup_steps + loop.decay_steps > updates:
        raise InputError(
            f"training.warmup_steps and decay_steps, {loop.warmup_steps:,} and {loop.decay_steps:,}, are more than "
            f"the {updates:,} updates of the run"
        )
    name: str = "constant_with_warmup" if loop.schedule == "constant" else loop.schedule
    options: dict[str, Any] = {}
    if loop.decay_steps:
        name, options = "warmup_stable_decay", {"num_decay_steps": loop.decay_steps, "decay_type": "linear"}
    scheduler: LambdaLR = get_scheduler(name, optimizer, loop.warmup_steps, updates, options)
    return scheduler


def last_rate(scheduler: LambdaLR) -> float:
    """The learning rate of the update before; the scheduler itself has that of the next."""
    (base,), (factor,) = scheduler.base_lrs, scheduler.lr_lambdas
    return float(base * factor(max(0, scheduler.last_epoch - 1)))


def load_schedule(scheduler: LambdaLR, state: dict[str, Any]) -> tuple[float, float]:
    """Continue from a checkpoint's state, in the schedule of this run.

    If epochs, max_steps or decay_steps have changed, the checkpoint's rate for the next update is that of the old
    schedule.

    Returns:
        The learning rate of the next update, in the checkpoint and here.
    """
    scheduler.load_state_dict(state)
    before = float(scheduler.get_last_lr()[0])
    (base,), (factor,), (group,) = scheduler.base_lrs, scheduler.lr_lambdas, scheduler.optimizer.param_groups
    group["lr"] = rate = float(base * factor(scheduler.last_epoch))
    scheduler._last_lr = [rate]
    return before, rate
