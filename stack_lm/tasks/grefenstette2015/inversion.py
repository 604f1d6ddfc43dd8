"""Two inversion transduction grammars: one moves a verb, the other gives articles a gender.

Grefenstette et al. (2015), section 4.2 and appendix C. A grammar derives source and target together; the target follows
from the source alone, so sources are drawn from the grammar's source side and then transduced.

NOTE: the paper says that its probabilities are tuned for relatively uniform lengths, but with the printed ones most
    sources are short: in the window of 8 to 64, half have 15 symbols or fewer (gender: 13). By default all lengths are
    equally likely here, and the printed probabilities apply among the sources of a length.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

from ...core.checks import Count
from ..base import Example, SplitChanges
from ..grammars import ByLength, Grammar
from ..registry import register_task
from .sequences import Transducer

Lengths = Literal["uniform", "grammar"]


class _Inversion(Transducer):
    """Sources of a grammar whose terminals are words, or classes of equally likely words with a number.

    Args:
        words: the number of words of each class.
        lengths: "uniform": those in a window are equally likely. "grammar": the distribution of the printed
            probabilities, conditioned on the window, without rejection sampling.
        splits: changes of the plan (see `Task`).
    """

    grammar: ClassVar[Grammar]
    # The words common to all classes; the classes of the source with their classes in the target.
    source_words: ClassVar[tuple[str, ...]]
    target_words: ClassVar[tuple[str, ...]]
    classes: ClassVar[dict[str, str]]

    def __init__(self, words: int, lengths: Lengths, splits: SplitChanges | None) -> None:
        super().__init__(splits=splits)
        self.words, self.lengths = words, lengths
        symbols = []
        for plain, classes in ((self.source_words, self.classes.keys()), (self.target_words, self.classes.values())):
            symbols += [*plain, *(f"{name}{number}" for name in classes for number in range(1, words + 1))]
        self.vocabulary = tuple(symbols)
        self._ids = {symbol: number for number, symbol in enumerate(symbols)}

    @cached_property
    def _sources(self) -> ByLength:
        return ByLength(self.grammar)

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The possible lengths of sources."""
        weights = {length: self._sources.weight(length) for length in range(shortest, longest + 1)}
        uniform = self.lengths == "uniform"
        return {length: 1.0 if uniform else weight for length, weight in weights.items() if weight}

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a source of a length, with its target."""
        symbols = [
            f"{symbol}{rng.randrange(self.words) + 1}" if symbol in self.classes else symbol
            for symbol in self._sources.draw(rng, length)
        ]
        return self.pair([self._ids[symbol] for symbol in symbols])

    def accepts(self, source: Sequence[int]) -> bool:
        """Return True if the grammar derives the source."""
        return self.grammar.derives(list(map(self.kind_of, source)))

    def kind_of(self, symbol: int) -> str:
        """A word's terminal in the grammar: the class of a word with a number, or the word itself."""
        return self.vocabulary[symbol].rstrip("0123456789")

    def translate(self, symbol: int, plain: str | None) -> int:
        """The word of the target's class with the same number, or a plain word for a word without a class."""
        name = self.kind_of(symbol)
        if name not in self.classes:
            return self._ids[plain or name]
        return self._ids[self.classes[name] + self.vocabulary[symbol].removeprefix(name)]


@register_task("grefenstette2015/svo_sov")
class SVOToSOV(_Inversion):
    """Subject, verb and object become subject, object and verb; relative clauses keep their order.

    NOTE: both languages share one vocabulary here, so a model may predict a word of the source.
    """

    source_words = ("rpi",)
    target_words = ("rpo",)
    classes: ClassVar = {"si": "so", "oi": "oo", "vi": "vo"}
    grammar = Grammar(
        {
            "A": ["S vi O"],
            "S": {"S S": 0.2, "S rpi S vi": 0.2, "si": 0.6},
            "O": {"O O": 0.2, "S rpi S vi": 0.2, "oi": 0.6},
        }
    )

    def __init__(self, words: Count = 33, *, lengths: Lengths = "uniform", splits: SplitChanges | None = None) -> None:
        super().__init__(words, lengths, splits)

    def transduce(self, source: tuple[int, ...]) -> list[int]:
        """Move the main verb to the end: the first verb that no earlier relative pronoun requires."""
        waiting = place = 0
        while self.kind_of(source[place]) != "vi" or waiting:
            waiting += {"rpi": 1, "vi": -1}.get(self.kind_of(source[place]), 0)
            place += 1
        moved = [*source[:place], *source[place + 1 :], source[place]]
        return [self.translate(symbol, "rpo") for symbol in moved]


@register_task("grefenstette2015/gender")
class Gender(_Inversion):
    """Articles get the gender of their noun.

    NOTE: both languages share one vocabulary here, so a model may predict a word of the source. The sample printed in
        the paper begins with a verb; the grammar of its appendix derives no such sentence.
    """

    source_words = ("the", "a", "and", "or")
    target_words = ("der", "die", "das", "ein", "eine", "und", "oder")
    classes: ClassVar = {"we": "wg", "me": "mg", "fe": "fg", "ne": "ng"}
    articles: ClassVar = {"the": {"me": "der", "fe": "die", "ne": "das"}, "a": {"me": "ein", "fe": "eine", "ne": "ein"}}
    grammar = Grammar(
        {
            "A": ["B"],
            "B": {"B or B": 1 / 4, "S and S": 1 / 4, "B V": 1 / 2},
            "V": {"we B": 3 / 4, "we": 1 / 4},
            "S": dict.fromkeys(("the me", "the fe", "the ne", "a me", "a fe", "a ne"), 1 / 6),
        }
    )

    def __init__(self, words: Count = 25, *, lengths: Lengths = "uniform", splits: SplitChanges | None = None) -> None:
        super().__init__(words, lengths, splits)

    def transduce(self, source: tuple[int, ...]) -> list[int]:
        """Translate word by word; an article depends on the word after it."""
        following = [*map(self.kind_of, source[1:]), ""]
        targets = []
        for symbol, after in zip(source, following, strict=True):
            plain = {"and": "und", "or": "oder"} | {name: genders.get(after) for name, genders in self.articles.items()}
            targets.append(self.translate(symbol, plain.get(self.kind_of(symbol))))
        return targets
