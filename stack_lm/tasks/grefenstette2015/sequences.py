"""Copying, reversing and flipping random sequences (Grefenstette et al. 2015, section 4.1)."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ...core.checks import Count
from ...core.errors import InputError
from ..base import Example, Split, SplitChanges, Task
from ..registry import register_task


class Transducer(Task):
    """A source and its target in one vocabulary, to which a format adds `<s>`, `|||` and `</s>`.

    Training uses a stream of new examples and was scored every 1,000 batches of 10. "validation" has other strings of
    the trained lengths, on which the paper also tests.
    """

    paper = "Grefenstette et al. 2015"
    kind = "transduction"
    online = True
    default_plan: ClassVar = {
        "train": Split(10_000, 8, 64),
        "validation": Split(1_000, 8, 64),
        "test": Split(1_000, 65, 128),
    }

    def example(self, string: Sequence[int]) -> Example:
        """A source with its target."""
        if not self.accepts(string):
            raise InputError(f"not a source of {self}: {self.write(string)}")
        return self.pair(string)

    def accepts(self, source: Sequence[int]) -> bool:
        """Return True if the source has a target."""
        return True

    def pair(self, source: Sequence[int]) -> Example:
        """The example of an accepted source; its whole target is scored."""
        target = tuple(self.transduce(tuple(source)))
        return Example(tuple(source), target, (True,) * len(target))

    @abstractmethod
    def transduce(self, source: tuple[int, ...]) -> Sequence[int]:
        """The target of a source."""


class _Sequences(Transducer):
    """Random sequences: all lengths of a window are equally likely, and all symbols.

    Args:
        symbols: their number.
        splits: changes of the plan (see `Task`).
    """

    def __init__(self, symbols: Count = 128, *, splits: SplitChanges | None = None) -> None:
        super().__init__(splits=splits)
        self.vocabulary = tuple(f"a{number}" for number in range(1, symbols + 1))

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a sequence of a length."""
        return self.pair([rng.randrange(len(self.vocabulary)) for _ in range(length)])


@register_task("grefenstette2015/copy")
class Copy(_Sequences):
    """The source itself."""

    def transduce(self, source: tuple[int, ...]) -> Sequence[int]:
        """The same sequence."""
        return source


@register_task("grefenstette2015/reversal")
class Reversal(_Sequences):
    """The source, reversed."""

    def transduce(self, source: tuple[int, ...]) -> Sequence[int]:
        """The reversed sequence."""
        return source[::-1]


@register_task("grefenstette2015/bigram_flipping")
class BigramFlipping(_Sequences):
    """The symbols at odd positions swap with those after them. Lengths are even."""

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The even lengths, equally often."""
        return {length: 1.0 for length in range(shortest, longest + 1) if length % 2 == 0}

    def accepts(self, source: Sequence[int]) -> bool:
        """Return True if the length is even."""
        return len(source) % 2 == 0

    def transduce(self, source: tuple[int, ...]) -> Sequence[int]:
        """The flipped sequence."""
        return [symbol for i in range(0, len(source), 2) for symbol in (source[i + 1], source[i])]
