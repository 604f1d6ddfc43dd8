"""Brackets of several types: nested up to a depth (Hewitt et al. 2020), or shuffled (Suzgun et al. 2019)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from math import comb, log

from ...core.checks import Count
from ..automata import Automaton
from ..base import SplitChanges, Task
from ..exact import ExactLanguage, View, as_task
from ..grammars import ByLength, Grammar
from ..recognition import END, String, Symbols
from ..registry import register_task


class _Brackets(ExactLanguage):
    """The symbols `(0`, `)0`, `(1`, `)1` and so on."""

    def __init__(self, pairs: int) -> None:
        self.pairs = pairs
        self.symbols = tuple(bracket + str(kind) for kind in range(pairs) for bracket in "()")
        self.openers = frozenset(self.symbols[::2])


class DyckKM(_Brackets):
    """Dyck-(k, m): k types of brackets, nested at most m deep.

    Without open brackets a string ends or opens one, equally likely; at a depth below m it opens or closes one, equally
    likely; all types are. Strings have the probabilities that this gives among those of their length.

    Args:
        pairs: k.
        depth: m.
    """

    def __init__(self, pairs: int, depth: int) -> None:
        super().__init__(pairs)
        self.depth = depth
        moves = {d: {"(": d + 1} | ({")": d - 1} if d else {}) for d in range(depth)} | {depth: {")": depth - 1}}
        weights = {d: {"(": 0.5, ")" if d else END: 0.5} for d in range(depth)} | {depth: {")": 1.0}}
        self.shapes = Automaton(0, moves, [0], weights=weights)

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """Openers below the depth, and the closer of the innermost bracket, or the end."""
        closers: list[str] = []
        for symbol in (*string, ""):
            yield (self.openers if len(closers) < self.depth else frozenset()) | {closers[-1] if closers else END}
            if symbol in self.openers:
                closers.append(")" + symbol[1:])
            elif symbol:
                closers.pop()

    def possible(self, length: int) -> bool:
        """See `ExactLanguage.possible`."""
        return self.shapes.possible(length)

    def draw(self, rng: random.Random, length: int) -> String:
        """See `ExactLanguage.draw`."""
        string, kinds = [], []
        for bracket in self.shapes.draw(rng, length):
            if bracket == "(":
                kinds.append(rng.randrange(self.pairs))
            string.append(f"{bracket}{kinds[-1] if bracket == '(' else kinds.pop()}")
        return tuple(string)

    def log_of_member(self, string: Sequence[str]) -> float:
        """See `ExactLanguage.log_of_member`."""
        return self.shapes.log_of_member([symbol[0] for symbol in string]) - len(string) // 2 * log(self.pairs)


class ShuffledDyck(_Brackets):
    """k-shuffle Dyck: the brackets of each type are balanced by themselves; strings of a length are equally likely.

    Args:
        pairs: k.
    """

    def __init__(self, pairs: int) -> None:
        super().__init__(pairs)
        self._words = ByLength(Grammar({"S": ["( S ) S", ""]}))
        self._ways = cache(self._count)

    def _count(self, pairs: int, half: int) -> int:
        return sum(self._shares(pairs, half)) if pairs else int(half == 0)

    def _shares(self, pairs: int, half: int) -> list[int]:
        """The number of strings in which the last type has 0, 1, .. pairs of brackets."""
        catalan = [comb(2 * n, n) // (n + 1) for n in range(half + 1)]
        return [comb(2 * half, 2 * n) * catalan[n] * self._ways(pairs - 1, half - n) for n in range(half + 1)]

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """Openers, the closers of all open types, and the end if there are none."""
        counts: Counter[str] = Counter()
        for symbol in (*string, ""):
            yield self.openers | ({")" + kind for kind in +counts} or {END})
            counts[symbol[1:]] += {"(": 1, ")": -1}.get(symbol[:1], 0)

    def possible(self, length: int) -> bool:
        """See `ExactLanguage.possible`."""
        return length % 2 == 0

    def draw(self, rng: random.Random, length: int) -> String:
        """See `ExactLanguage.draw`."""
        string, places = [""] * length, list(range(length))
        for kind in reversed(range(self.pairs)):
            shares = self._shares(kind + 1, len(places) // 2)
            drawn, number = rng.randrange(sum(shares)), 0
            while drawn >= shares[number]:
                drawn, number = drawn - shares[number], number + 1
            own = sorted(rng.sample(places, 2 * number))
            for place, bracket in zip(own, self._words.draw(rng, 2 * number), strict=True):
                string[place] = f"{bracket}{kind}"
            places = [place for place in places if not string[place]]
        return tuple(string)

    def log_of_member(self, string: Sequence[str]) -> float:
        """See `ExactLanguage.log_of_member`."""
        return -log(self._ways(self.pairs, len(string) // 2))


@register_task("brackets/dyck_km")
def dyck_km(pairs: Count = 2, depth: Count = 3, *, kind: View = "language", splits: SplitChanges | None = None) -> Task:
    """A task on `DyckKM`; see `as_task`."""
    return as_task(DyckKM(pairs, depth), kind, splits)


@register_task("brackets/shuffle")
def shuffle(pairs: Count = 2, *, kind: View = "next_symbols", splits: SplitChanges | None = None) -> Task:
    """A task on `ShuffledDyck`; see `as_task`."""
    return as_task(ShuffledDyck(pairs), kind, splits)
