"""Training losses between two lines of the log."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class TrainingRecord:
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

    def skip(self) -> None:
        """An update that was skipped."""
        self.skipped += 1
        self.in_a_row += 1

    def fault(self, step: int) -> str | None:
        """The first loss that is not finite; None without one.

        Args:
            step: of the last update.
        """
        losses = self._values()
        found = (i for i, loss in enumerate(losses) if not math.isfinite(loss))
        first = next(found, None)
        return None if first is None else f"the loss is {losses[first]} at step {step - len(losses) + first + 1}"

    def mean(self) -> float:
        """Of the losses, over all targets."""
        weights = torch.tensor(self.counts, dtype=torch.float64)
        return float((torch.stack(self.losses).cpu().double() * weights).sum() / weights.sum())

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return vars(self) | {"losses": self._values()}

    @classmethod
    def load(cls, state: dict[str, Any], device: torch.device) -> TrainingRecord:
        """From a checkpoint."""
        return cls(**state | {"losses": list(torch.tensor(state["losses"], device=device))})

    def _values(self) -> list[float]:
        return torch.stack(self.losses).tolist() if self.losses else []
