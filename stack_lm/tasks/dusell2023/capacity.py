"""Context-free languages with many symbol types, to test the capacity of a stack (DuSell and Chiang 2023).

Types are equally likely, so a lower bound is that of one type, plus log k for each symbol whose type is free.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from math import inf, log
from typing import Annotated

from ...core.checks import Integer
from ..base import SplitChanges
from ..bounded import log_given_length
from ..exact import GrammarLanguage
from ..grammars import Grammar
from ..registry import register_task
from .words import WordLanguage

# The number of symbol types, limited so that a vocabulary fits into memory.
SymbolTypes = Annotated[int, Integer(1, 100_000)]


def _reversal(pattern: str, *, symbol_types: SymbolTypes = 2, splits: SplitChanges | None = None) -> WordLanguage:
    """A word and its reversal, over any number of symbol types."""
    return WordLanguage(pattern, tuple(map(str, range(symbol_types))), splits=splits)


register_task("dusell2023/marked_reversal")(partial(_reversal, "w # r"))
register_task("dusell2023/unmarked_reversal")(partial(_reversal, "w r"))


@register_task("dusell2023/dyck")
class Dyck(GrammarLanguage):
    """Well-nested strings with any number of types of pairs: on average one split at each level, and 40 levels.

    The grammar is that of `dusell2020/dyck`, with one type of pairs; each pair of a string then gets a type.

    Args:
        symbol_types: the number of types of pairs.
        splits: changes of the plan (see `Task`).
    """

    paper = "DuSell and Chiang 2023"
    grammar = Grammar({"S": {"S T": 1 / 2, "T": 1 / 2}, "T": {"( S )": 39 / 40, "( )": 1 / 40}})

    def __init__(self, *, symbol_types: SymbolTypes = 2, splits: SplitChanges | None = None) -> None:
        self.types = range(symbol_types)
        self._closing = {f"({number}": f"){number}" for number in self.types}
        self.symbols = [symbol for pair in self._closing.items() for symbol in pair]
        super().__init__(splits=splits)

    def string(self, rng: random.Random, length: int) -> tuple[str, ...]:
        """See `BoundedLanguage.string`."""
        string, opened = [], []
        for bracket in self.lengths.draw(rng, length):
            if bracket == "(":
                opened.append(rng.choice(self.types))
                string.append(f"({opened[-1]}")
            else:
                string.append(f"){opened.pop()}")
        return tuple(string)

    def contains(self, string: Sequence[str]) -> bool:
        """See `BoundedLanguage.contains`."""
        expected: list[str] = []
        for symbol in string:
            if symbol in self._closing:
                expected.append(self._closing[symbol])
            elif not expected or symbol != expected.pop():
                return False
        return bool(string) and not expected

    def log_given_length(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """See `BoundedLanguage.log_given_length`."""
        shapes = log_given_length(self.lengths, [[symbol[0] for symbol in string] for string in strings])
        return [
            shape - len(string) / 2 * log(len(self.types)) if self.contains(string) else -inf
            for shape, string in zip(shapes, strings, strict=True)
        ]
