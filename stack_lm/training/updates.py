"""Updates of the weights: gradients over batches and processes, clipping, and skipping of non-finite updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor
from transformers import PreTrainedModel

from .base_config import BaseLoopConfig
from .batches import Collated
from .optimizer import make_optimizer, make_scheduler


class Updater:
    """A model and its optimizer, prepared by Accelerate.

    Args:
        accelerator: the accelerator, which has the processes and the device.
        loop: the configuration.
        model: the model to train.
        total: updates of the whole run.

    Attributes:
        model, optimizer: prepared by Accelerate.
        scheduler: the scheduler of the learning rate.

    Raises:
        InputError: if the schedule does not fit the run.
    """

    def __init__(self, accelerator: Accelerator, loop: BaseLoopConfig, model: PreTrainedModel, total: int) -> None:
        self._accelerator, self._loop = accelerator, loop
        optimizer = make_optimizer(loop, list(model.parameters()), loop.learning_rate, accelerator.device)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.scheduler = make_scheduler(loop, optimizer, total)
        # Without DDP's prefix before every name, a checkpoint is a model, and also serves one process.
        accelerator.register_save_state_pre_hook(_as_of_a_model)
        accelerator.register_load_state_pre_hook(self._unwrap)
        # Accelerate's own step and backward pass look up libraries and states each time, which takes a millisecond.
        kinds = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
        if accelerator.distributed_type in kinds and accelerator.scaler is None:
            self._backward, self._step = Tensor.backward, optimizer.step
        else:
            self._backward, self._step = accelerator.backward, self.optimizer.step

    def update(
        self, parts: Sequence[Collated], targets: float, loss_of: Callable[[dict[str, Any], float], Tensor]
    ) -> Tensor | None:
        """One update of the weights.

        Args:
            parts: this process's batches.
            targets: number of targets in the batches of all processes.
            loss_of: see `TrainingLoop.loss`.

        Returns:
            The mean loss over the targets; None if the update was not finite and was skipped.
        """
        accelerator, world = self._accelerator, self._accelerator.num_processes
        total = torch.zeros((), device=accelerator.device)
        for i, part in enumerate(parts):
            last = i + 1 == len(parts)
            with nullcontext() if last else accelerator.no_sync(self.model):
                # DDP averages gradients over processes: dividing by targets / world makes that the mean over targets.
                loss = loss_of(part.inputs, targets / world)
                self._backward(loss)
            total += loss.detach()
        if world > 1:
            total = accelerator.reduce(total, reduction="mean")
        finite = self._clip(total)
        if finite or accelerator.scaler is not None:  # the scaler skips by itself, and must see the reason
            self._step()
        if finite:
            self.scheduler.step()
        self.optimizer.zero_grad()
        return total if finite else None

    def fault(self, step: int) -> str | None:
        """The first parameter that is not finite; None without one.

        A finite loss can have a non-finite gradient. No run could continue from a checkpoint with the result.

        Args:
            step: the step of the last update.
        """
        accelerator = self._accelerator
        names, weights = zip(*accelerator.unwrap_model(self.model).named_parameters(), strict=True)
        shards = [weight.to_local() if hasattr(weight, "to_local") else weight for weight in weights]
        sound = torch.stack([shard.detach().isfinite().all() for shard in shards]).int()
        if accelerator.num_processes > 1:  # each may have only a share of the weights
            sound = accelerator.reduce(sound, reduction="sum") // accelerator.num_processes
        if sound.all():
            return None
        return f"{names[int(sound.argmin())]} is not finite at step {step}, after a gradient that was not"

    def _clip(self, loss: Tensor) -> bool:
        """Clip gradients; False means to skip the update. All processes have the same loss and gradients here."""
        loop = self._loop
        skips = loop.on_nan == "skip"
        if loop.max_grad_norm is None and not skips:
            return True
        limit = math.inf if loop.max_grad_norm is None else loop.max_grad_norm
        norm = self._accelerator.clip_grad_norm_(self.model.parameters(), limit)
        return not skips or math.isfinite(float(loss) + float(norm))

    def _unwrap(self, models: list[Any], directory: str) -> None:
        models[:] = map(self._accelerator.unwrap_model, models)


def _as_of_a_model(models: list[Any], weights: list[dict[str, Tensor]], directory: str) -> None:
    """Name weights as the bare model does, and leave out second names of tied ones, which safetensors rejects."""
    for i, (model, part) in enumerate(zip(models, weights, strict=False)):  # no weights where Accelerate has saved them
        once = {name for tensors in (model.named_parameters, model.named_buffers) for name, _ in tensors()}
        weights[i] = {name.removeprefix("module."): tensor for name, tensor in part.items() if name in once}
