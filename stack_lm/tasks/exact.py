"""Languages with exact answers, and three tasks on each: to recognise it, to model it, to list next symbols."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from math import inf, log
from typing import ClassVar, Literal

from ..core.errors import InputError
from .base import Example, Split, SplitChanges, Task
from .bounded import BoundedLanguage, log_given_length
from .grammars import ByLength, Grammar
from .recognition import END, Continued, MeasuredLanguage, String, Symbols

View = Literal["classification", "language", "next_symbols"]
_RESERVED = ("<s>", END, "<pad>")


class ExactLanguage(Continued):
    """A language whose strings of a length are drawn with known probabilities.

    Attributes:
        symbols: the symbols of its strings.
    """

    symbols: tuple[str, ...]

    @abstractmethod
    def possible(self, length: int) -> bool:
        """Return True if the language has strings of the length."""

    @abstractmethod
    def draw(self, rng: random.Random, length: int) -> String:
        """Draw a string of a possible length."""

    @abstractmethod
    def log_of_member(self, string: Sequence[str]) -> float:
        """Log p(w | length) of a string of the language, in nats."""

    def logs(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """The same for any strings; -inf for those that are not in the language."""
        return [self.log_of_member(string) if self.accepts(string) else -inf for string in strings]


class GrammarStrings(ExactLanguage):
    """The strings of a weighted context-free grammar, in proportion to their weights among those of a length.

    Args:
        grammar: the grammar.
        symbols: its terminals, in the order of their ids; sorted by default.

    Raises:
        InputError: if it derives no string.
    """

    def __init__(self, grammar: Grammar, symbols: Sequence[str] | None = None) -> None:
        if not grammar.rules[grammar.start]:
            raise InputError(f"the grammar derives no string: no rules lead from {grammar.start} to terminals alone")
        self.grammar, self.lengths = grammar, ByLength(grammar)
        self.symbols = tuple(sorted(grammar.terminals) if symbols is None else symbols)

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """See `Continued.following`."""
        for terminals, complete in self.grammar.following(string):
            yield terminals | {END} if complete else terminals

    def possible(self, length: int) -> bool:
        """See `ExactLanguage.possible`."""
        return self.lengths.possible(length)

    def draw(self, rng: random.Random, length: int) -> String:
        """See `ExactLanguage.draw`."""
        return self.lengths.draw(rng, length)

    def log_of_member(self, string: Sequence[str]) -> float:
        """See `ExactLanguage.log_of_member`."""
        return self.logs([string])[0]

    def logs(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """See `ExactLanguage.logs`; each sums over the derivations of a string."""
        return log_given_length(self.lengths, strings)


class Recogniser(MeasuredLanguage):
    """Accept the strings of a language and reject others, half of which are edited members (see `RecognitionTask`).

    Args:
        language: the language.
        splits: changes of the plan (see `Task`).
    """

    paper = ""
    default_plan: ClassVar[dict[str, Split]] = {
        "train": Split(10_000, 0, 40),
        "validation": Split(1_000, 0, 40),
        "test": Split(2_000, 0, 80),
    }

    def __init__(self, language: ExactLanguage, *, splits: SplitChanges | None = None) -> None:
        self.language, self.symbols = language, language.symbols
        self._lengths: dict[int, list[int]] = {}
        super().__init__(splits=splits)

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """See `Continued.following`."""
        return self.language.following(string)

    def lengths(self, longest: int) -> list[int]:
        """The lengths that have members."""
        if longest not in self._lengths:
            self._lengths[longest] = list(filter(self.language.possible, range(longest + 1)))
        return self._lengths[longest]

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """See `RecognitionTask.length_weights`."""
        return super().length_weights(shortest, longest) if self.lengths(longest) else {}

    def positive(self, rng: random.Random, longest: int) -> String:
        """A length, all with members equally likely, and a string of it."""
        return self.language.draw(rng, rng.choice(self.lengths(longest)))

    def log_of_member(self, string: Sequence[str], longest: int) -> float:
        """See `MeasuredLanguage.log_of_member`."""
        return self.language.log_of_member(string) - log(len(self.lengths(longest)))


_PLAN = {"train": Split(10_000, 1, 40), "validation": Split(1_000, 1, 40), "test": Split(20, 41, 80, balanced=True)}


class Modelled(BoundedLanguage):
    """Predict each next symbol of the strings of a language; see `Recogniser` for the arguments."""

    default_plan: ClassVar[dict[str, Split]] = _PLAN

    def __init__(self, language: ExactLanguage, *, splits: SplitChanges | None = None) -> None:
        self.language = language
        super().__init__(language.symbols, splits=splits)

    def possible(self, length: int) -> bool:
        """See `BoundedLanguage.possible`."""
        return self.language.possible(length)

    def string(self, rng: random.Random, length: int) -> String:
        """See `BoundedLanguage.string`."""
        return self.language.draw(rng, length)

    def contains(self, string: Sequence[str]) -> bool:
        """See `BoundedLanguage.contains`."""
        return self.language.accepts(string)

    def log_given_length(self, strings: Sequence[Sequence[str]]) -> list[float]:
        """See `BoundedLanguage.log_given_length`."""
        return self.language.logs(strings)


class GrammarLanguage(Modelled):
    """The strings of a probabilistic context-free grammar.

    Args:
        splits: changes of the plan (see `Task`).

    Attributes:
        symbols: the terminals, separated by spaces, or a sequence of them.
        grammar: the grammar, with probabilities as weights.
    """

    default_plan: ClassVar = BoundedLanguage.default_plan
    symbols: str | Sequence[str]
    grammar: ClassVar[Grammar]
    language: GrammarStrings

    def __init__(self, *, splits: SplitChanges | None = None) -> None:
        for name, kinds in {"symbols": (str, list, tuple), "grammar": (Grammar,)}.items():
            if not isinstance(getattr(self, name, None), kinds):
                raise InputError(f"{type(self).__name__} must have {name}, a {' or '.join(k.__name__ for k in kinds)}")
        symbols = self.symbols.split() if isinstance(self.symbols, str) else list(self.symbols)
        super().__init__(GrammarStrings(self.grammar, symbols), splits=splits)

    def contains(self, string: Sequence[str]) -> bool:
        """See `BoundedLanguage.contains`."""
        return self.grammar.derives(string)

    @property
    def lengths(self) -> ByLength:
        """The grammar's weights and draws by length."""
        return self.language.lengths


class NextSymbolSets(Task):
    """At each step the symbols that may follow, `</s>` among them; see `Recogniser` for the arguments."""

    kind = "next_symbols"
    default_plan: ClassVar[dict[str, Split]] = _PLAN

    def __init__(self, language: ExactLanguage, *, splits: SplitChanges | None = None) -> None:
        self.language, self.vocabulary = language, (*language.symbols, END)
        super().__init__(splits=splits)

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The possible lengths from 1 on, with equal weights."""
        return dict.fromkeys(filter(self.language.possible, range(max(shortest, 1), longest + 1)), 1.0)

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a string of a length."""
        return self._example(self.language.draw(rng, length))

    def example(self, string: Sequence[int]) -> Example:
        """A string of the language."""
        symbols = tuple(self.vocabulary[number] for number in string)
        if not symbols or not self.language.accepts(symbols):
            raise InputError(f"not a string of {self}, of one symbol or more: {self.write(string)}")
        return self._example(symbols)

    def _example(self, symbols: String) -> Example:
        ids = {symbol: number for number, symbol in enumerate(self.vocabulary)}
        target = [frozenset(ids[symbol] for symbol in after) for after in self.language.next_symbols(symbols)[1:]]
        return Example(tuple(ids[symbol] for symbol in symbols), tuple(target), (True,) * len(symbols))


_VIEWS: dict[str, type[Recogniser] | type[Modelled] | type[NextSymbolSets]] = {
    "classification": Recogniser,
    "language": Modelled,
    "next_symbols": NextSymbolSets,
}


def as_task(language: ExactLanguage, kind: View, splits: SplitChanges | None = None) -> Task:
    """A task on a language.

    Args:
        language: the language.
        kind: "classification": to recognise it; "language": to predict each next symbol; or "next_symbols": to say
            which symbols may follow.
        splits: changes of the plan (see `Task`).

    Raises:
        InputError: if it has a symbol that tasks add themselves, or only the empty string.
    """
    for symbol in _RESERVED:
        if symbol in language.symbols:
            raise InputError(f"{symbol} must not be a symbol of a language: tasks add it themselves")
    if not language.symbols:
        raise InputError("the language has only the empty string")
    return _VIEWS[kind](language, splits=splits)
