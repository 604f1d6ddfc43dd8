"""Counting and memorising: languages with a part that the earlier symbols determine (Joulin and Mikolov 2015).

All symbols are predicted, and the determined ones are scored; a string is right if all of them are.

NOTE: the released code trains on a stream of strings without marks between them, and scores the first symbol of the
    next string. Here each string is separate, between `<s>` and `</s>`, and its end is scored. The code increases the
    largest n from 2 during training; the plan has the last of these windows.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from ...core.errors import InputError
from ..base import Example, Language, Split, SplitChanges
from ..registry import register_task


class _Counting(Language):
    """Strings by n. Training has n < 20, the test every n < 60, as in the released code."""

    paper = "Joulin and Mikolov 2015"
    unit = "n"
    default_plan: ClassVar = {
        "train": Split(2_000, 2, 19),
        "validation": Split(1_000, 2, 19),
        "test": Split(200, 2, 59, balanced=True),
    }
    symbols: str
    smallest: ClassVar[int] = 1

    def __init__(self, *, splits: SplitChanges | None = None) -> None:
        super().__init__(self.symbols, splits=splits)

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """All n, with equal weights."""
        return dict.fromkeys(range(max(shortest, self.smallest), longest + 1), 1.0)

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a string of an n."""
        return self.example(self.read(" ".join(self.draw_string(rng, length))))

    def example(self, string: Sequence[int]) -> Example:
        """A string of the language; its determined symbols are scored."""
        symbols = "".join(self.vocabulary[symbol] for symbol in string)
        start = self.determined(symbols)
        if start is None:
            raise InputError(f"not a string of {self}: {self.write(string)}")
        source, target, mask = super().example(string)
        return Example(source, target, tuple(place >= start for place in range(len(mask))))

    @abstractmethod
    def draw_string(self, rng: random.Random, n: int) -> str:
        """Draw one of the strings of an n, all equally likely."""

    @abstractmethod
    def determined(self, string: str) -> int | None:
        """The position from which all symbols are determined; None for a string that is not in the language."""


class _Powers(_Counting):
    """Blocks of symbols whose lengths are multiples of n, such as a^n b^2n."""

    default_plan: ClassVar = _Counting.default_plan | {"test": Split(1, 2, 59, balanced=True)}

    def __init__(self, symbols: str, multiples: Sequence[int], *, splits: SplitChanges | None = None) -> None:
        self.symbols, self.multiples = symbols, multiples
        super().__init__(splits=splits)

    def draw_string(self, rng: random.Random, n: int) -> str:
        """The only string of an n."""
        return "".join(symbol * multiple * n for symbol, multiple in zip(self.symbols, self.multiples, strict=True))

    def determined(self, string: str) -> int | None:
        """After the first b."""
        n = string.count("a") // self.multiples[0]
        return n + 1 if n and string == self.draw_string(random.Random(), n) else None


for _name, _symbols, _multiples in (
    ("anbn", "ab", (1, 1)),
    ("anbncn", "abc", (1, 1, 1)),
    ("anbncndn", "abcd", (1, 1, 1, 1)),
    ("anb2n", "ab", (1, 2)),
):
    register_task(f"joulin2015/{_name}")(partial(_Powers, _symbols, _multiples))


class _Split(_Counting):
    """Strings in which n is split into a number of a and a number of b, which determine the rest."""

    smallest = 2

    def draw_string(self, rng: random.Random, n: int) -> str:
        """All splits are equally likely."""
        first = rng.randrange(1, n)
        return "a" * first + "b" * (n - first) + self.rest(first, n - first)

    def determined(self, string: str) -> int | None:
        """After the first c."""
        first, second = string.count("a"), string.count("b")
        whole = "a" * first + "b" * second + self.rest(first, second)
        return first + second + 1 if first and second and string == whole else None

    @abstractmethod
    def rest(self, first: int, second: int) -> str:
        """Return the symbols that follow the given numbers of a and b."""


@register_task("joulin2015/anbmcnm")
class Addition(_Split):
    """a^n b^m c^(n+m), where n + m is the n of the plan."""

    symbols = "abc"

    def rest(self, first: int, second: int) -> str:
        """Their sum."""
        return "c" * (first + second)


@register_task("joulin2015/anbmcndm")
class CrossedCounts(_Split):
    """a^n b^m c^n d^m, where n + m is the n of the plan. In the released code, not in the paper."""

    symbols = "abcd"

    def rest(self, first: int, second: int) -> str:
        """Both counts again."""
        return "c" * first + "d" * second


@register_task("joulin2015/multiplication")
class Multiplication(_Split):
    """a^n b^m c^(nm), where n + m is the n of the plan. In the released code, not in the paper."""

    symbols = "abc"

    def rest(self, first: int, second: int) -> str:
        """Their product."""
        return "c" * (first * second)


@register_task("joulin2015/memorization")
class Memorization(_Counting):
    """n letters b and c, a, and the letters from the last to the first; determined after the a."""

    symbols = "abc"

    def draw_string(self, rng: random.Random, n: int) -> str:
        """All strings of n letters are equally likely."""
        half = "".join(rng.choice("bc") for _ in range(n))
        return f"{half}a{half[::-1]}"

    def determined(self, string: str) -> int | None:
        """After the a."""
        half = len(string) // 2
        marked = half and string[half] == "a" and string.count("a") == 1
        return half + 1 if marked and string == string[::-1] else None
