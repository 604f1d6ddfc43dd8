"""Strings of 0 and 1: reversal and the two XOR tasks (Hao et al. 2018, sections 4.1 and 4.2)."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import xor
from statistics import NormalDist
from typing import Any, ClassVar

from ...core.errors import InputError
from ..base import Example, Split, Task
from ..registry import register_task

# Its position in the vocabulary. The released code writes it 2.
BLANK = 2


class _Strings(Task):
    """Tasks in which all strings of a length are equally likely.

    NOTE: as in the released code, the blank is one of the predictable symbols, even if it is never a target.
    """

    paper = "Hao et al. 2018"
    vocabulary = ("0", "1", "#")
    aliases: ClassVar = {"2": "#"}
    step_reduction = "mean"

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a string of a length, in symbols."""
        return self.example([rng.randrange(2) for _ in range(length)])

    def example(self, string: Sequence[int]) -> Example:
        """The example of a string of 0 and 1."""
        if BLANK in string:
            raise InputError(f"a string of {self} has no blanks; got {self.write(string)}")
        return self.transduce(tuple(string))

    @abstractmethod
    def transduce(self, string: tuple[int, ...]) -> Example:
        """Return the example of a string: the input, and the output due at each step."""


@register_task("hao2018/reversal")
class Reversal(_Strings):
    """From `w` and as many blanks to as many blanks and `w` reversed; only the reversed string is scored.

    Lengths are drawn from a normal distribution, N(10, 2) for training and N(20, 4) for testing, and clipped to the
    window. In both the mean is 5/6 of the longest length and the deviation 1/6: the rule here for any window.
    NOTE: a length is the integer part of the drawn number, as in the released code. The lengths of the released test
    strings fit that better than the nearest integer (their log-likelihoods differ by 7.6).
    """

    default_plan: ClassVar = {"train": Split(800, 1, 12), "validation": Split(100, 1, 12), "test": Split(1000, 1, 24)}

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The shares of a normal distribution, clipped to the window."""
        drawn = NormalDist(longest * 5 / 6, longest / 6)
        below = [drawn.cdf(length) for length in range(shortest + 1, longest + 1)]
        shares = (high - low for low, high in pairwise([0.0, *below, 1.0]))
        return dict(enumerate(shares, start=shortest))

    def transduce(self, string: tuple[int, ...]) -> Example:
        """The source has twice the string's length."""
        blanks = (BLANK,) * len(string)
        scored = (False,) * len(string) + (True,) * len(string)
        return Example(string + blanks, blanks + string[::-1], scored)


@register_task("hao2018/reversal_buffered")
class BufferedReversal(Reversal):
    """Reversal between two buffers: all sources have blanks up to twice the window's longest length.

    A network between buffers writes when it is ready, so every string gets the steps of the longest, as in the released
    code.
    """

    def draw(self, rng: random.Random, number: int, shortest: int, longest: int, **options: Any) -> list[Example]:
        """Draw examples, filled."""
        return [self.fill(example, longest) for example in super().draw(rng, number, shortest, longest, **options)]

    def fill(self, example: Example, longest: int) -> Example:
        """An example padded with blanks that are not scored."""
        source, target, mask = example
        blanks = (BLANK,) * (2 * longest - len(source))
        return Example(source + blanks, target + blanks, mask + (False,) * len(blanks))


@register_task("hao2018/xor")
class XOR(_Strings):
    """At each step the XOR of all symbols so far.

    NOTE: the paper tests on strings of 24 symbols; the released test strings have 23.
    """

    default_plan: ClassVar = {
        "train": Split(800, 12, 12),
        "validation": Split(100, 12, 12),
        "test": Split(1000, 24, 24),
    }

    def transduce(self, string: tuple[int, ...]) -> Example:
        """Every step is scored."""
        return Example(string, tuple(accumulate(string, xor)), (True,) * len(string))


@register_task("hao2018/delayed_xor")
class DelayedXOR(XOR):
    """At each step the XOR of all symbols before it; first 0."""

    def transduce(self, string: tuple[int, ...]) -> Example:
        """Every step is scored."""
        targets = accumulate(string[:-1], xor, initial=0)
        return Example(string, tuple(targets)[: len(string)], (True,) * len(string))
