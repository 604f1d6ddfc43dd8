"""The optimizer and the schedule of its learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from ..core.errors import InputError
from ..core.messages import check_name, did_you_mean, explaining
from ..core.plugins import import_object
from .base_config import BaseLoopConfig


def make_optimizer(
    settings: Any, parameters: Sequence[torch.nn.Parameter], rate: float, device: torch.device
) -> torch.optim.Optimizer:
    """The configured optimizer, in torch's form that runs over all parameters at once.

    Adam, AdamW and SGD are fused on CPUs and GPUs; RMSprop has no fused form and uses lists of tensors (foreach).

    Args:
        settings: a configuration with the optimizer's name and weight_decay, which all but AdamW add to the gradient,
            and perhaps optimizer_settings, further arguments of its class.
        parameters: the parameters to train.
        rate: the learning rate.
        device: the device of training.

    Raises:
        InputError: if there is no such optimizer, or it does not take these settings or parameters.
    """
    kind, given = _optimizer_class(settings.optimizer), getattr(settings, "optimizer_settings", {})
    known, more = signature(kind).parameters, dict[str, Any]()
    if "kwargs" not in known:
        free = [name for name in known if name not in ("params", "lr", "weight_decay")]
        for name in given:
            check_name("training.optimizer_settings", name, free)
    if settings.weight_decay or "weight_decay" in known:
        more["weight_decay"] = settings.weight_decay
    if kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD) and not {"foreach", "fused"} & {*given}:
        more["fused"] = device.type in ("cpu", "cuda")
    if kind is torch.optim.RMSprop and "foreach" not in given:
        more["foreach"] = True
    what = f"training.optimizer {settings.optimizer} cannot be used here"
    with explaining(what, TypeError, ValueError, RuntimeError):
        return kind(parameters, lr=rate, **given, **more)


def _optimizer_class(name: str) -> Any:
    """An optimizer's class, by its name in torch.optim, in any case, or by its import path.

    Raises:
        InputError: if there is none for dense gradients without the loss as a function.
    """
    unfit = (torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)  # no step, by loss, for sparse gradients
    kinds = {
        each.lower(): kind
        for each, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind not in unfit
    }
    found = import_object(name, "training.optimizer") if "." in name else kinds.get(name.lower())
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        known, hint = ", ".join(sorted(kinds)), did_you_mean(name.lower(), kinds)
        raise InputError(f"training.optimizer must be one of {known}, or an import path; got {name!r}{hint}")
    return found


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
        both = f"{loop.warmup_steps:,} and {loop.decay_steps:,}"
        raise InputError(f"training.warmup_steps and decay_steps, {both}, are more than the run's {updates:,} updates")
    name: str = "constant_with_warmup" if loop.schedule == "constant" else loop.schedule
    options: dict[str, Any] = {}
    if loop.decay_steps:
        name, options = "warmup_stable_decay", {"num_decay_steps": loop.decay_steps, "decay_type": "linear"}
    return get_scheduler(name, optimizer, loop.warmup_steps, updates, options)


def last_rate(scheduler: LambdaLR) -> float:
    """The learning rate of the update before; the scheduler itself has that of the next."""
    (base,), (factor,) = scheduler.base_lrs, scheduler.lr_lambdas
    return float(base * factor(max(0, scheduler.last_epoch - 1)))


def load_schedule(scheduler: LambdaLR, state: dict[str, Any]) -> tuple[float, float]:
    """Continue from a checkpoint's state, in the schedule of this run.

    If the learning rate, the schedule or the number of updates have changed, the checkpoint's rate for the next update
    is that of the old schedule.

    Returns:
        The learning rate of the next update, in the checkpoint and here.
    """
    (base,) = scheduler.base_lrs
    scheduler.load_state_dict(state)
    scheduler.base_lrs = [base]  # it may have changed
    before = float(scheduler.get_last_lr()[0])
    (factor,), (group,) = scheduler.lr_lambdas, scheduler.optimizer.param_groups
    group["initial_lr"] = base
    group["lr"] = rate = float(base * factor(scheduler.last_epoch))
    scheduler._last_lr = [rate]
    return before, rate
