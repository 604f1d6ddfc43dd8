"""The inside algorithm: the total weight of all derivations of given strings, for many strings at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .grammars import ByLength, Grammar

# Strings at a time, limited so that the tables of long ones fit into memory.
_BATCH = 256


def string_weights(grammar: Grammar, strings: Sequence[Sequence[str]]) -> list[float]:
    """The weight of each string: for a probabilistic grammar its probability, summed over its derivations.

    The weights are float64: strings of several hundred symbols may underflow to 0.

    Args:
        grammar: any that `ByLength` takes.
        strings: each a sequence of terminals; those of one length are processed together.
    """
    lengths = ByLength(grammar)
    places: dict[int, list[int]] = {}
    for place, string in enumerate(strings):
        places.setdefault(len(string), []).append(place)
    weights = [0.0] * len(strings)
    for length, same in places.items():
        for start in range(0, len(same) if lengths.weight(length) else 0, _BATCH):
            batch = same[start : start + _BATCH]
            inside = _Inside(lengths, [strings[place] for place in batch])
            for place, weight in zip(batch, inside.weights(), strict=True):
                weights[place] = float(weight)
    return weights


class _Inside:
    """The weights of all substrings of B strings of n symbols.

    Those of w symbols derived from a nonterminal are an array [n - w + 1, B], by the position of their first symbol;
    None if there are none. The same holds for those derived from the rest of a rule.
    """

    def __init__(self, lengths: ByLength, strings: Sequence[Sequence[str]]) -> None:
        self.grammar, self.lengths = lengths.grammar, lengths
        self.number, self.n = len(strings), len(strings[0])
        symbols = {symbol for rules in self.grammar.rules.values() for rule in rules for symbol in rule.right}
        text = np.array([list(string) for string in strings], dtype=object).reshape(self.number, self.n).T
        self.matches = {
            symbol: np.ascontiguousarray(text == symbol, dtype=float) for symbol in symbols - set(self.grammar.rules)
        }
        self._symbols: dict[tuple[str, int], np.ndarray | None] = {}
        self._rests: dict[tuple[tuple[str, ...], int], np.ndarray | None] = {}

    def weights(self) -> np.ndarray:
        """The weights of the whole strings, [B]."""
        for width in range(self.n):  # so that no recursion goes through many widths
            self._symbol(self.grammar.start, width)
        whole = self._symbol(self.grammar.start, self.n)
        return np.zeros(self.number) if whole is None else whole[0]

    def _symbol(self, symbol: str, width: int) -> np.ndarray | None:
        if symbol not in self.grammar.rules:
            return self.matches[symbol] if width == 1 else None
        key = symbol, width
        if key not in self._symbols:
            total = None
            if self.lengths.symbol_weight(symbol, width):
                for rule in self.grammar.rules[symbol]:
                    part = self._rest(rule.right, width)
                    if part is not None:
                        total = rule.weight * part if total is None else total + rule.weight * part
            self._symbols[key] = total
        return self._symbols[key]

    def _rest(self, right: tuple[str, ...], width: int) -> np.ndarray | None:
        if not right:
            return np.ones((self.n + 1, self.number)) if width == 0 else None
        if len(right) == 1:
            return self._symbol(right[0], width)
        key = right, width
        if key not in self._rests:
            total = None
            for part in self.lengths.parts(right, width):
                first, rest = self._symbol(right[0], part), self._rest(right[1:], width - part)
                if first is not None and rest is not None:
                    product = first[: self.n - width + 1] * rest[part:]
                    total = product if total is None else np.add(total, product, out=total)
            self._rests[key] = total
        return self._rests[key]
