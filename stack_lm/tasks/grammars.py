"""Context-free grammars: derivations counted, weighted and drawn by dynamic programming, never by rejection.

`ByDepth` counts and draws derivations of a depth, all equally likely; `ByLength` weights and draws derivations of
strings of a length, in proportion to their weights. Counts are exact integers; weights are added in a fixed order, or
exactly, so a seed draws the same strings on every machine.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import frexp, fsum, inf, isfinite, ldexp, log, prod
from typing import Generic, NamedTuple, TypeVar

from ..core.checks import Number
from ..core.errors import InputError

_MOST_BITS = 10_000_000  # of a count of derivations
_FAR = 512  # binary exponent of a weight, halfway to those that float64 lacks


class Rule(NamedTuple):
    """A rule of a grammar: the symbols that replace its left-hand side, and its weight."""

    right: tuple[str, ...]
    weight: float


class _Item(NamedTuple):
    """A rule that was begun at a position of a string, with its remaining symbols."""

    left: str
    rest: tuple[str, ...]
    origin: int

    def advance(self) -> _Item:
        return _Item(self.left, self.rest[1:], self.origin)


class Grammar:
    """A weighted context-free grammar. Symbols without rules are terminals.

    Args:
        rules: the right-hand sides of each nonterminal, symbols separated by spaces: with their weights, or as a list,
            in which each has weight 1. The first nonterminal is the start.

    Raises:
        InputError: for no rules, a nonterminal without any, or a weight that is not a positive number.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, float] | Iterable[str]]) -> None:
        self.start = next(iter(rules), "")
        self.rules: dict[str, tuple[Rule, ...]] = {}
        for left, rights in rules.items():
            if isinstance(rights, str) or not rights:  # the characters of a string would be rules
                raise InputError(f"the rules of {left} must be a list, or a mapping to weights; got {rights!r}")
            weights = rights if isinstance(rights, Mapping) else dict.fromkeys(rights, 1.0)
            check = Number(above=0)
            self.rules[left] = tuple(
                Rule(tuple(right.split()), check(f"the weight of {left} -> {right or 'nothing'}", weight))
                for right, weight in weights.items()
            )
        if not self.rules:
            raise InputError("a grammar must have at least one rule")
        symbols = {symbol for sides in self.rules.values() for rule in sides for symbol in rule.right}
        self.terminals = frozenset(symbols - self.rules.keys())
        self.nullable = self._deriving(frozenset())
        # Rules from which no string is derived would only slow down what follows.
        productive = self.terminals | self._deriving(self.terminals)
        self.rules = {
            left: tuple(rule for rule in sides if productive.issuperset(rule.right))
            for left, sides in self.rules.items()
        }

    def _deriving(self, symbols: frozenset[str]) -> frozenset[str]:
        """The nonterminals that derive strings of these symbols, such as the empty one of none."""
        found: frozenset[str] = frozenset()
        while True:
            known = symbols | found
            more = frozenset(
                left for left, rules in self.rules.items() if any(known.issuperset(rule.right) for rule in rules)
            )
            if more == found:
                return found
            found = more

    def following(self, string: Sequence[str]) -> Iterator[tuple[frozenset[str], bool]]:
        """The terminals that may follow each prefix of a string, and whether the grammar derives the prefix.

        Earley's algorithm, with the nullable advance. It ends after a prefix that no terminal may follow.
        """
        charts: list[dict[_Item, None]] = [
            dict.fromkeys(_Item(self.start, rule.right, 0) for rule in self.rules[self.start])
        ]
        for symbol in (*string, ""):
            chart, place = charts[-1], len(charts) - 1
            scanned: dict[str, dict[_Item, None]] = {}
            agenda = list(chart)
            while agenda:
                item = agenda.pop()
                if not item.rest:
                    new = [other.advance() for other in list(charts[item.origin]) if other.rest[:1] == (item.left,)]
                elif item.rest[0] in self.rules:
                    new = [_Item(item.rest[0], rule.right, place) for rule in self.rules[item.rest[0]]]
                    new += [item.advance()] if item.rest[0] in self.nullable else []
                else:
                    scanned.setdefault(item.rest[0], {})[item.advance()] = None
                    continue
                new = [item for item in new if item not in chart]
                chart |= dict.fromkeys(new)
                agenda += dict.fromkeys(new)
            yield frozenset(scanned), _Item(self.start, (), 0) in chart
            if symbol not in scanned:
                return
            charts.append(scanned[symbol])

    def derives(self, string: Sequence[str]) -> bool:
        """Return True if the grammar derives the string."""
        sets = list(self.following(string))
        return len(sets) == len(string) + 1 and sets[-1][1]

    def strings(self, depth: int) -> frozenset[tuple[str, ...]]:
        """All strings with a derivation of at most a depth. Their number soon becomes too large to list."""

        @cache
        def made(symbol: str, depth: int) -> frozenset[tuple[str, ...]]:
            if symbol not in self.rules:
                return frozenset({(symbol,)})
            sides = self.rules[symbol] if depth > 1 else ()
            return frozenset(string for rule in sides for string in joined(rule.right, depth - 1))

        def joined(right: tuple[str, ...], depth: int) -> list[tuple[str, ...]]:
            strings: list[tuple[str, ...]] = [()]
            for symbol in right:
                strings = [before + part for before in strings for part in made(symbol, depth)]
            return strings

        return made(self.start, depth)


class ByDepth:
    """The derivations of a grammar by depth: the number of rules on the longest path from the start, plus one.

    A rule with only terminals therefore has depth 2. Weights are ignored: all derivations of a depth are equally
    likely, and so are all strings of an unambiguous grammar.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._at_most = cache(self._count_at_most)
        self._make = cache(self._count_ways)

    def count(self, depth: int) -> int:
        """The number of derivations of exactly a depth.

        Raises:
            InputError: if it has too many digits.
        """
        for shallower in range(1, depth):  # so that no recursion goes through many depths
            if self._at_most(self.grammar.start, shallower).bit_length() > _MOST_BITS:
                raise InputError(f"the grammar has too many derivations of depth {shallower} to count those of {depth}")
        return self._between(self.grammar.start, depth)

    def draw(self, rng: random.Random, depth: int) -> tuple[str, ...]:
        """Draw the string of a derivation of exactly a depth.

        Raises:
            InputError: if there is none.
        """
        if not self.count(depth):
            raise InputError(f"the grammar has no derivation of depth {depth}")
        string: list[str] = []
        # The symbols still to be derived, last first: a symbol, its depth, and whether that must be reached.
        agenda = [(self.grammar.start, depth, True)]
        while agenda:
            symbol, depth, exact = agenda.pop()
            if symbol not in self.grammar.rules:
                string.append(symbol)
                continue
            rules = [rule.right for rule in self.grammar.rules[symbol]]
            right = rules[_choose(rng, [self._make(right, depth - 1, exact) for right in rules])]
            children = []
            for i, child in enumerate(right):
                # The depth is reached in this child, or else somewhere after it.
                here = self._between(child, depth - 1) * self._make(right[i + 1 :], depth - 1, False)
                later = self._at_most(child, depth - 2) * self._make(right[i + 1 :], depth - 1, True)
                if exact and _choose(rng, [here, later]):
                    children.append((child, depth - 2, False))
                else:
                    children.append((child, depth - 1, exact))
                    exact = False
            agenda += reversed(children)
        return tuple(string)

    def _count_at_most(self, symbol: str, depth: int) -> int:
        """The number of derivations from a symbol of at most a depth."""
        if symbol not in self.grammar.rules:
            return int(depth >= 1)
        return sum(self._make(rule.right, depth - 1, False) for rule in self.grammar.rules[symbol])

    def _between(self, symbol: str, depth: int) -> int:
        return self._at_most(symbol, depth) - self._at_most(symbol, depth - 1)

    def _count_ways(self, right: tuple[str, ...], depth: int, exact: bool) -> int:
        """The number of ways to derive all symbols within a depth; with `exact`, one of them must reach it."""
        if depth < 1:
            return 0
        ways = prod(self._at_most(symbol, depth) for symbol in right)
        return ways - self._make(right, depth - 1, False) if exact else ways


def _choose(rng: random.Random, weights: Sequence[int]) -> int:
    """Draw an index with probability proportional to its weight: exact for integers of any size."""
    drawn = rng.randrange(sum(weights))
    return next(place for place, total in enumerate(accumulate(weights)) if drawn < total)


class ByLength:
    """The derivations of a grammar by the length of their string.

    No nonterminal may derive exactly itself, because such derivations have no end.

    Weights of long strings would leave the range of float64. Each terminal therefore counts as a power of two in place
    of 1, found as longer strings are weighted, which changes no digit of any weight.

    Attributes:
        exponent: that of the power of two.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self._weighed = 0  # the lengths below it have weights, and the exponent has been chosen for them
        self._scale(0)

    def _scale(self, exponent: int) -> None:
        self.exponent = exponent
        self._weights: dict[tuple[str, int], float | None] = {}
        self.rest_weight = cache(self._weigh_rest)
        self._rules = cache(self._weigh_rules)
        self._parts = cache(self._weigh_parts)

    def possible(self, length: int) -> bool:
        """Return True if the grammar derives strings of a length."""
        return bool(self._total(length))

    def weight(self, length: int) -> float:
        """The total weight of the derivations of all strings of a length, in symbols: for a PCFG, their probability."""
        try:
            return ldexp(self._total(length), -self.exponent * length)
        except OverflowError:
            return inf

    def log_weight(self, length: int) -> float:
        """The natural logarithm of `weight`, also where float64 has no such weight; -inf for no strings."""
        total = self._total(length)
        return log(total) - self.exponent * length * log(2) if total else -inf

    def _total(self, length: int) -> float:
        """`weight`, scaled by the exponent."""
        for shorter in range(self._weighed, length + 1):  # so that no recursion goes through many lengths
            self._weighed = shorter + 1
            total = self.symbol_weight(self.grammar.start, shorter)
            power = frexp(total)[1] if isfinite(total) else 2 * _FAR
            if shorter and abs(power) > _FAR and (shift := round(power / shorter)):
                self._scale(self.exponent - shift)
                for again in range(shorter):
                    self.symbol_weight(self.grammar.start, again)
        return self.symbol_weight(self.grammar.start, length)

    def draw(self, rng: random.Random, length: int) -> tuple[str, ...]:
        """Draw the string of a derivation of a length, in proportion to its weight.

        Raises:
            InputError: if there is none.
        """
        if length < 0 or not self.possible(length):
            raise InputError(f"the grammar has no string of length {length}")
        string: list[str] = []
        # The symbols still to be derived, last first: a nonterminal and its length, or a terminal.
        agenda: list[tuple[str, int]] = [(self.grammar.start, length)]
        while agenda:
            symbol, length = agenda.pop()
            if symbol not in self.grammar.rules:
                string.append(symbol)
                continue
            children = []
            for child, rest in self._rules(symbol, length).draw(rng):
                part = self._parts((child, *rest), length).draw(rng) if child in self.grammar.rules else 1
                children.append((child, part))
                length -= part
            agenda += reversed(children)
        return tuple(string)

    def symbol_weight(self, symbol: str, length: int) -> float:
        """The total weight, scaled, of the derivations from any symbol of all strings of a length."""
        if symbol not in self.grammar.rules:
            return ldexp(float(length == 1), self.exponent)
        if length == 0 and symbol not in self.grammar.nullable:
            return 0.0
        key = symbol, length
        if key not in self._weights:
            self._weights[key] = None
            self._weights[key] = fsum(
                rule.weight * self.rest_weight(rule.right, length) for rule in self.grammar.rules[symbol]
            )
        weight = self._weights[key]
        if weight is None:
            raise InputError(f"{symbol} derives itself by rules that add no symbol, again and again")
        return weight

    def parts(self, right: tuple[str, ...], length: int) -> Sequence[int]:
        """The possible lengths of the first symbol's part in a string derived from several symbols."""
        return self._parts(right, length).values

    def _weigh_rest(self, right: tuple[str, ...], length: int) -> float:
        """The same from several symbols."""
        if not right:
            return float(length == 0)
        return self._parts(right, length).total

    def _weigh_parts(self, right: tuple[str, ...], length: int) -> _Choice[int]:
        """The same for each length of the first symbol's part."""
        first, rest = right[0], right[1:]
        shortest = 0 if first in self.grammar.nullable else 1
        longest = length if self.grammar.nullable.issuperset(rest) else length - 1
        if first not in self.grammar.rules:
            longest = min(longest, 1)
        parts = range(shortest, longest + 1)
        return _Choice(
            parts, [self.symbol_weight(first, part) * self.rest_weight(rest, length - part) for part in parts]
        )

    def _weigh_rules(self, symbol: str, length: int) -> _Choice[list[tuple[str, tuple[str, ...]]]]:
        """The weights of a symbol's rules, each followed by the remaining symbols."""
        rules = self.grammar.rules[symbol]
        return _Choice(
            [[(child, rule.right[i + 1 :]) for i, child in enumerate(rule.right)] for rule in rules],
            [rule.weight * self.rest_weight(rule.right, length) for rule in rules],
        )


_Value = TypeVar("_Value")


class _Choice(Generic[_Value]):
    """A weighted choice among values; those of weight 0 are left out."""

    __slots__ = ("total", "totals", "values")

    def __init__(self, values: Iterable[_Value], weights: Sequence[float]) -> None:
        self.values = [value for value, weight in zip(values, weights, strict=True) if weight]
        self.totals = list(accumulate(filter(None, weights)))
        self.total = self.totals[-1] if self.totals else 0.0

    def draw(self, rng: random.Random) -> _Value:
        """Draw one of the values; a single value needs no random number."""
        if len(self.values) == 1:
            return self.values[0]
        return self.values[bisect(self.totals, rng.random() * self.total, hi=len(self.values) - 1)]
