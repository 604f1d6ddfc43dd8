"""The inside algorithm: the total weight of all derivations of given strings, for many strings at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, log, log2

import numpy as np

from .grammars import ByLength

# Strings at a time, limited so that the tables of long ones fit into memory.
_BATCH = 256
_SMALL = 1e-280  # weights below may have lost digits


def log_string_weights(lengths: ByLength, strings: Sequence[Sequence[str]]) -> list[float]:
    """The logarithm of the weight of each string, in nats; -inf for a string that the grammar does not derive.

    For a probabilistic grammar the weight is the string's probability, summed over its derivations.

    Args:
        lengths: of any grammar.
        strings: each a sequence of terminals; those of one length are processed together.
    """
    places: dict[int, list[int]] = {}
    for place, string in enumerate(strings):
        places.setdefault(len(string), []).append(place)
    spread = ceil(log2(len(lengths.grammar.terminals) or 1))
    logs = np.full(len(strings), -inf)
    for length, same in places.items():
        for start in range(0, len(same) if lengths.possible(length) else 0, _BATCH):
            batch = same[start : start + _BATCH]
            # All strings of a length share its weight: one has at most all of it, and rarely less than its part.
            logs[batch] = _logs(
                lengths, [strings[i] for i in batch], lengths.exponent - 2, lengths.exponent + spread + 2
            )
    return [float(value) for value in logs]


def _logs(lengths: ByLength, strings: Sequence[Sequence[str]], low: int, high: int) -> np.ndarray:
    """The logarithms for strings of one length, each with an exponent of the scale at which float64 has its weight.

    Args:
        lengths: of the grammar.
        strings: B of them.
        low: the smallest exponent to try.
        high: the largest.
    """
    if not strings or low > high:
        return np.full(len(strings), -inf)
    exponent = (low + high) // 2
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        weights = _Inside(lengths, strings, exponent).weights()
        logs = np.where(np.isfinite(weights), np.log(weights), -inf) - exponent * len(strings[0]) * log(2)
    for at, tries in ((weights < _SMALL, (exponent + 1, high)), (~np.isfinite(weights), (low, exponent - 1))):
        places = np.flatnonzero(at).tolist()
        if places:
            again = _logs(lengths, [strings[place] for place in places], *tries)
            logs[places] = np.where(np.isfinite(again), again, logs[places])
    return logs


class _Inside:
    """The weights of all substrings of B strings of n symbols, in which a terminal counts as a power of two.

    Those of w symbols derived from a nonterminal are an array [n - w + 1, B], by the position of their first symbol;
    None if there are none. The same holds for those derived from the rest of a rule.
    """

    def __init__(self, lengths: ByLength, strings: Sequence[Sequence[str]], exponent: int) -> None:
        self.grammar, self.lengths = lengths.grammar, lengths
        self.number, self.n = len(strings), len(strings[0])
        text = np.array([list(string) for string in strings], dtype=object).reshape(self.number, self.n).T
        self.matches = {
            symbol: np.ldexp(np.ascontiguousarray(text == symbol, dtype=float), exponent)
            for symbol in self.grammar.terminals
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
