"""The parts of a model's loss in the log of transformers' Trainer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import TrainerCallback


class LossParts(TrainerCallback):
    """Log the parts of the training loss (`loss_parts`), such as `loss_auxiliary_0`, beside the loss.

    They are means over the updates since the last log, of this process. The callback adds them to
    `trainer.state.log_history` and to the printed log.

    Example:
        >>> Trainer(model, arguments, train_dataset=data, callbacks=[LossParts()])
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._logged = 0  # number of updates when the parts were last logged
        self._hook: Any = None

    def _add(self, model: nn.Module, inputs: Any, outputs: Any) -> None:
        for name, part in (getattr(outputs, "loss_parts", None) or {}).items():
            self._sums[name] = self._sums.get(name, 0) + part

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Listen to the model's outputs."""
        self._sums, self._logged = {}, state.global_step
        self._hook = model.register_forward_hook(self._add)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the parts to a log of the training loss."""
        if logs and "loss" in logs and self._sums:
            updates = state.global_step - self._logged
            parts = {f"loss_{name}": float(total) / updates for name, total in self._sums.items()}
            logs.update(parts)
            state.log_history[-1].update(parts)
            self._sums, self._logged = {}, state.global_step

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop listening."""
        self._hook.remove()
