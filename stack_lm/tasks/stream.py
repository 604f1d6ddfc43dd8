"""A stream of new examples of a task, which can be interrupted and resumed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Stream:
    """An endless stream of examples, which may repeat.

    Args:
        sample: draws an example of a size.
        sizes, weights: the sizes, and the relative frequency of each.
        seed: the seed of the draws.
    """

    def __init__(
        self, sample: Callable[[random.Random, int], Any], sizes: Sequence[int], weights: Sequence[float], seed: str
    ) -> None:
        self._sample, self._sizes, self._weights = sample, sizes, weights
        self._rng = random.Random(seed)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._sample(self._rng, self._rng.choices(self._sizes, self._weights)[0])

    def state(self) -> list[Any]:
        """The position in the stream, for JSON."""
        version, numbers, gauss = self._rng.getstate()
        return [version, list(numbers), gauss]

    def load(self, state: Sequence[Any]) -> None:
        """Continue from a position.

        Raises:
            ValueError, TypeError: if it is not a position.
        """
        version, numbers, gauss = state
        self._rng.setstate((version, tuple(numbers), gauss))
