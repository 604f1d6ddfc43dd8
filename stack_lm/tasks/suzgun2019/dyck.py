"""Dyck languages: the possible next symbols after each symbol of a well-nested string (Suzgun et al. 2019)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, partial
from math import sqrt
from typing import ClassVar

from ...core.errors import InputError
from ..base import Example, Split, SplitChanges, Task
from ..grammars import ByLength, Grammar
from ..registry import register_task

# The pairs of the released Dyck languages, in their order.
PAIRS = ("()", "[]", "{}", "<>", "+-", "ab", "xo")


class Dyck(Task):
    """Strings of the grammar S -> open S close (1/2) | S S (1/4) | nothing (1/4), with the possible next symbols.

    The grammar and its probabilities are those of section 5; all pairs are equally likely. Lengths, and strings of a
    length, have the grammar's probabilities. Opening symbols are even numbers, closing ones the next odd numbers.
    NOTE: the released code omits a part that would make a string too long; here such strings do not count. Its test
        strings have about 74 symbols on average, these 71.8.

    Args:
        pairs: kinds of parentheses.
        splits: changes of the plan (see `Task`).

    Raises:
        InputError: for an unsupported number of pairs.
    """

    paper = "Suzgun et al. 2019"
    kind = "next_symbols"
    distinct = True
    default_plan: ClassVar = {"train": Split(5_000, 2, 50), "test": Split(5_000, 52, 100)}

    def __init__(self, pairs: int = 2, *, splits: SplitChanges | None = None) -> None:
        super().__init__(splits=splits)
        if not 1 <= pairs <= len(PAIRS):
            raise InputError(f"a Dyck language has 1 to {len(PAIRS)} pairs; got {pairs}")
        self.vocabulary = tuple("".join(PAIRS[:pairs]))
        self.lengths = ByLength(_grammar(pairs))

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The even lengths, each with its probability under the grammar."""
        return {length: self.lengths.weight(length) for length in range(shortest, longest + 1) if length % 2 == 0}

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a string of a length.

        Raises:
            InputError: for an odd length.
        """
        return self.example(self.read(" ".join(self.lengths.draw(rng, length))))

    def example(self, string: Sequence[int]) -> Example:
        """A well-nested string; its targets are the symbols that may come after each of its symbols."""
        targets = next_symbols(string, len(self.vocabulary))
        if targets and any(symbol % 2 for symbol in targets[-1]):
            raise InputError(f"not all pairs are closed in {self.write(string)}")
        return Example(tuple(string), targets, (True,) * len(string))


@cache
def _grammar(pairs: int) -> Grammar:
    """The grammar without empty parts: E is S, N is a non-empty S.

    Of S, the empty string has the probability e = 1/4 + e^2 / 4. In S -> S S one of the two may be empty, so that N is
    open E close with 1/2 and N N with 1/4, both divided by 1 - e / 2.
    """
    empty = 2 - sqrt(3)
    share = 1 / (1 - empty / 2)
    nested = {f"{pair[0]} E {pair[1]}": share / 2 / pairs for pair in PAIRS[:pairs]}
    return Grammar({"E": {"N": 1.0, "": empty}, "N": nested | {"N N": share / 4}})


def next_symbols(string: Sequence[int], n_symbols: int) -> tuple[frozenset[int], ...]:
    """The possible symbols after each symbol: all opening ones, and the one that closes the innermost pair.

    Args:
        string: a prefix of a Dyck string.
        n_symbols: size of the vocabulary.

    Raises:
        InputError: if a symbol closes no pair.
    """
    every_opening = frozenset(range(0, n_symbols, 2))
    open_pairs: list[int] = []
    targets = []
    for place, symbol in enumerate(string):
        if symbol % 2 == 0:
            open_pairs.append(symbol)
        elif not open_pairs or open_pairs.pop() != symbol - 1:
            raise InputError(f"symbol {symbol} at place {place + 1} closes no pair in {list(string)}")
        targets.append(every_opening | {open_pairs[-1] + 1} if open_pairs else every_opening)
    return tuple(targets)


class _LargerDyck(Dyck):
    """With more strings to train on (section 5.2)."""

    default_plan: ClassVar = Dyck.default_plan | {"train": Split(15_000, 2, 50)}


register_task("suzgun2019/dyck2")(partial(Dyck, 2))
register_task("suzgun2019/dyck3")(partial(Dyck, 3))
register_task("suzgun2019/dyck6")(partial(_LargerDyck, 6))
