"""Training losses between two lines of the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class TrainingRecord:
    """The updates since the last line of the log.

    Attributes:
        losses: the losses of each update.
        parts: the parts of those losses, by name, if a model has several.
        counts: targets of each.
        tokens, padded: totals over all updates.
        skipped: number of skipped updates.
        in_a_row: number of skipped updates since the last that was not.
    """

    losses: list[Tensor] = field(default_factory=list)
    parts: dict[str, list[Tensor]] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    tokens: int = 0
    padded: int = 0
    skipped: int = 0
    in_a_row: int = 0

    def add(self, loss: Tensor, parts: Mapping[str, Tensor], count: int, tokens: int, padded: int) -> None:
        """Record an update."""
        self.losses.append(loss)
        for name, part in parts.items():
            self.parts.setdefault(name, []).append(part)
        self.counts.append(count)
        self.tokens += tokens
        self.padded += padded
        self.in_a_row = 0

    def skip(self) -> None:
        """Record a skipped update."""
        self.skipped += 1
        self.in_a_row += 1

    def fault(self, step: int) -> str | None:
        """The first loss that is not finite; None without one.

        Args:
            step: the step of the last update.
        """
        losses = _values(self.losses)
        not_finite = (i for i, loss in enumerate(losses) if not math.isfinite(loss))
        first = next(not_finite, None)
        return None if first is None else f"the loss is {losses[first]} at step {step - len(losses) + first + 1}"

    def means(self) -> dict[str, float]:
        """Means of the parts of the losses by name, over all targets; without parts the mean loss, "main"."""
        weights = torch.tensor(self.counts, dtype=torch.float64)
        parts = self.parts or {"main": self.losses}
        return {
            name: float((torch.stack(part).cpu().double() * weights).sum() / weights.sum())
            for name, part in parts.items()
        }

    def state(self) -> dict[str, Any]:
        """The record as a checkpoint stores it."""
        parts = {name: _values(part) for name, part in self.parts.items()}
        return vars(self) | {"losses": _values(self.losses), "parts": parts}

    @classmethod
    def load(cls, state: dict[str, Any], device: torch.device) -> TrainingRecord:
        """Load the record from a checkpoint."""
        losses = list(torch.tensor(state["losses"], device=device))
        parts = {name: list(torch.tensor(part, device=device)) for name, part in state.get("parts", {}).items()}
        return cls(**state | {"losses": losses, "parts": parts})


def _values(losses: list[Tensor]) -> list[float]:
    return torch.stack(losses).tolist() if losses else []
