"""Early stopping."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EarlyStopping:
    """A counter of consecutive validations that were not better than the best one.

    NOTE: in the released code of Hao et al. (2018) a validation as good as the best is not better, so a model that is
        right everywhere stops after `patience` more.

    Attributes:
        patience: training ends after this number of them; None never ends it.
        more_is_better: whether higher values are better; for a loss, lower ones are.
        best: the best value so far; None before the first.
        waited: number of validations since.
    """

    patience: int | None
    more_is_better: bool = False
    best: float | None = None
    waited: int = 0

    def update_best(self, value: float) -> bool:
        """Count a validation; return True if it is better than all before it."""
        better = self.best is None or (value > self.best if self.more_is_better else value < self.best)
        self.best, self.waited = (value, 0) if better else (self.best, self.waited + 1)
        return better

    @property
    def over(self) -> bool:
        """True if training is over."""
        return self.patience is not None and self.waited >= self.patience
