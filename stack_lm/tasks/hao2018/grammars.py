"""Tasks on strings of a grammar: parentheses, boolean formulas, agreement (Hao et al. 2018, sections 4.3 to 4.5).

A depth is that of a derivation, its number of levels plus one. All derivations of at most the window's largest depth
are equally likely; the grammars of formulas and agreement are unambiguous, so all their strings are too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, cached_property
from typing import ClassVar

from ...core.errors import InputError
from ..base import Example, Split, Task
from ..grammars import ByDepth, Grammar
from ..registry import register_task

# Strings of parentheses of depths up to this one are listed.
_LISTED_DEPTH = 6


class _GrammarTask(Task):
    """Strings of a grammar by depth.

    NOTE: as in the released code, the blank is one of the predictable symbols, though it is never a target.
    """

    paper = "Hao et al. 2018"
    unit = "depth"
    step_reduction = "sum"
    grammar: ClassVar[Grammar]

    @cached_property
    def derivations(self) -> ByDepth:
        """The counts and draws of derivations."""
        return ByDepth(self.grammar)

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The depths with strings, each with its share of the window's derivations."""
        counts = {depth: self.count(depth) for depth in range(shortest, longest + 1)}
        total = sum(counts.values())
        return {depth: count / total for depth, count in counts.items() if count}

    def count(self, depth: int) -> int:
        """The number of strings, or derivations, of exactly a depth."""
        return self.derivations.count(depth)


class _NextSymbol(_GrammarTask):
    """Tasks that predict the next symbol where it is one of some symbols; the last step has no target."""

    predicted: ClassVar[tuple[str, ...]]

    def example(self, string: Sequence[int]) -> Example:
        """The example of a string of the language."""
        if not self.accepts(string):
            raise InputError(f"not a string of {self}: {self.write(string)}")
        return self.predict(tuple(string))

    def accepts(self, string: Sequence[int]) -> bool:
        """Return True if the string belongs to the language."""
        return self.grammar.derives([self.vocabulary[symbol] for symbol in string])

    def predict(self, string: tuple[int, ...]) -> Example:
        """The example of a string: its symbols, those that come next, and a mask of the predicted ones."""
        following = (*string[1:], len(self.vocabulary) - 1)
        scored = {self.vocabulary.index(symbol) for symbol in self.predicted}
        return Example(string, following, tuple(symbol in scored for symbol in following))

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a string of a depth."""
        return self.predict(self.read(" ".join(self.draw_string(rng, length))))

    def draw_string(self, rng: random.Random, depth: int) -> tuple[str, ...]:
        """Draw the symbols of a string of a depth."""
        return self.derivations.draw(rng, depth)


@register_task("hao2018/parentheses")
class Parentheses(_NextSymbol):
    """Sequences of nests of parentheses of two kinds; the closing ones are predicted.

    NOTE: for depths up to 6, which are used in training, all distinct strings are equally likely, as the paper says;
        for larger ones all derivations are, as in the released test strings. (A sequence is derived from its left and
        right ends, in several orders.)
    """

    vocabulary = ("(", ")", "[", "]", "#")
    predicted = (")", "]")
    default_plan: ClassVar = {"train": Split(800, 1, 6), "validation": Split(100, 1, 6), "test": Split(1000, 1, 12)}
    grammar = Grammar({"S": ["S T", "T S", "T"], "T": ["( T )", "( )", "[ T ]", "[ ]"]})

    def count(self, depth: int) -> int:
        """The number of strings of exactly a depth, or of derivations if strings are not listed."""
        return len(_listed(depth)) if depth <= _LISTED_DEPTH else super().count(depth)

    def draw_string(self, rng: random.Random, depth: int) -> tuple[str, ...]:
        """Draw the symbols of a string of a depth."""
        if depth <= _LISTED_DEPTH and _listed(depth):
            return rng.choice(_listed(depth))
        return super().draw_string(rng, depth)


@cache
def _listed(depth: int) -> tuple[tuple[str, ...], ...]:
    """The strings of exactly a depth, in a fixed order."""
    return tuple(sorted(Parentheses.grammar.strings(depth) - Parentheses.grammar.strings(depth - 1)))


@register_task("hao2018/agreement")
class Agreement(_NextSymbol):
    """Parts of speech of English noun phrases; auxiliaries are predicted, each in the number of its subject.

    NOTE: a noun may have neither a prepositional phrase nor a relative clause, as in the released code and test
        strings; one reading of the paper's grammar requires one of them.
    """

    vocabulary = tuple("Det Nsing Nplur Prep Rel Auxsing Auxplur Vtrans Vintrans #".split())
    predicted = ("Auxsing", "Auxplur")
    default_plan: ClassVar = {"train": Split(800, 1, 16), "validation": Split(100, 1, 16), "test": Split(1000, 1, 32)}
    grammar = Grammar(
        {
            "S": ["NPsing Auxsing", "NPplur Auxplur"],
            "NP": ["NPsing", "NPplur"],
            "NPsing": ["Det Nsing", "Det Nsing PP", "Det Nsing Relsing"],
            "NPplur": ["Det Nplur", "Det Nplur PP", "Det Nplur Relplur"],
            "PP": ["Prep NP"],
            "Relsing": ["Rel Auxsing VP", "Relobj"],
            "Relplur": ["Rel Auxplur VP", "Relobj"],
            "Relobj": ["Rel NPsing Auxsing Vtrans", "Rel NPplur Auxplur Vtrans"],
            "VP": ["Vintrans", "Vtrans NP"],
        }
    )


@register_task("hao2018/formula")
class Formula(_GrammarTask):
    """Boolean formulas in reverse Polish notation; at each step the value of the longest formula that ends there.

    NOTE: the released grammar derives a formula's value before the formula, so its depths exceed those of the paper's
        grammar by one. Depth 6 then has formulas of up to 15 symbols and depth 7 of up to 31, as the paper says.
    """

    vocabulary = ("T", "F", "and", "or", "0", "1", "#")
    default_plan: ClassVar = {"train": Split(800, 1, 6), "validation": Split(100, 1, 6), "test": Split(1000, 1, 7)}
    grammar = Grammar({"start": ["S"], "S": ["T", "F", "S S and", "S S or"]})

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a formula of a depth."""
        return self.example(self.read(" ".join(self.derivations.draw(rng, length))))

    def example(self, string: Sequence[int]) -> Example:
        """The example of a formula."""
        values: list[bool] = []
        targets = []
        for symbol in string:
            name = self.vocabulary[symbol]
            if name in ("T", "F"):
                values.append(name == "T")
            elif name in ("and", "or") and len(values) >= 2:
                right, left = values.pop(), values.pop()
                values.append(left and right if name == "and" else left or right)
            else:
                values = []
                break
            targets.append(self.vocabulary.index("1" if values[-1] else "0"))
        if len(values) != 1:
            raise InputError(f"not a formula in reverse Polish notation: {self.write(string)}")
        return Example(tuple(string), tuple(targets), (True,) * len(string))
