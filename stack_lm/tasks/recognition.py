"""Languages to recognise: members, non-members, and the distributions of both (Butoi et al. 2025).

One definition, the possible next symbols, also decides membership: a string is a member if each of its symbols may
follow those before it, and the end may follow all of them.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from typing import ClassVar

from ..core.errors import InputError
from .base import AnnotatedExample, Example, Split, SplitChanges, Task

String = tuple[str, ...]
Symbols = frozenset[str]
END = "</s>"
BITS = ("0", "1")
REJECT, ACCEPT = 0, 1
HELD_OUT = "test_short_held_out"
# The maximum number of proposals of a non-member, and of a string that is not held out.
_MOST_PROPOSALS = 100


class Continued(ABC):
    """A language defined by the symbols that may follow each prefix."""

    @abstractmethod
    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """The symbols, `</s>` among them, that may follow each prefix of a string, the shortest first.

        Called only for prefixes whose symbols may each follow those before them.
        """

    def next_symbols(self, string: Sequence[str]) -> list[Symbols]:
        """The symbols that may follow each of the n + 1 prefixes of a string: none if no member has the prefix.

        Args:
            string: n symbols.
        """
        following_sets: list[Symbols] = []
        sets = self.following(string)
        for symbol in chain(string, [END]):
            following_sets.append(next(sets))
            if symbol not in following_sets[-1]:
                break
        return following_sets + [frozenset()] * (len(string) + 1 - len(following_sets))

    def accepts(self, string: Sequence[str]) -> bool:
        """Return True if the string is a member of the language."""
        return END in self.next_symbols(string)[-1]


class RecognitionTask(Continued, Task):
    """A language, with a label for each string: 1 for members, 0 for others, equally likely.

    The size of an example is the longest length of its split; the distribution of lengths below it depends on the
    language. The source is `<s>` and the string, so that even the empty string has a symbol.

    NOTE: the `<s>` is our choice; the paper has one only for transformers.

    Args:
        splits: changes of the plan (see `Task`).
    """

    paper = "Butoi et al. 2025"
    kind = "classification"
    default_plan: ClassVar = {
        "train": Split(10_000, 0, 40),
        "validation": Split(1_000, 0, 40),
        "validation_long": Split(1_000, 0, 80),
        "test": Split(5_010, 0, 500),
        HELD_OUT: Split(1_000, 0, 40),
    }
    symbols: String = BITS
    # The longest length below which there is no member.
    smallest: ClassVar[int] = 0

    def __init__(self, *, splits: SplitChanges | None = None) -> None:
        super().__init__(splits=splits)
        self.vocabulary = (*self.symbols, "<s>")

    @property
    def target_vocabulary(self) -> tuple[str, ...]:
        """The labels: reject and accept."""
        return ("0", "1")

    @abstractmethod
    def positive(self, rng: random.Random, longest: int) -> String:
        """Draw a member.

        Args:
            rng: source of randomness.
            longest: its largest length, `smallest` or more.
        """

    def negative(self, rng: random.Random, longest: int) -> String:
        """Draw a non-member: an edited member or an arbitrary string, each proposed equally often.

        Args:
            rng: source of randomness.
            longest: its largest length, `smallest` or more.

        Raises:
            InputError: if none of a hundred proposals is a non-member.
        """
        return self._negative(rng, longest)[0]

    def _negative(self, rng: random.Random, longest: int) -> tuple[String, int | None]:
        """A non-member, and the number of edits that made it; None for an arbitrary string."""
        for _ in range(_MOST_PROPOSALS):
            edits: int | None = None
            if rng.random() < 0.5:
                string, edits = self._edited(rng, self.positive(rng, longest), longest)
            else:
                string = tuple(rng.choices(self.symbols, k=rng.randint(0, longest)))
            if not self.accepts(string):
                return string, edits
        raise InputError(f"{_MOST_PROPOSALS} strings of {self} up to length {longest} were all members")

    def _edited(self, rng: random.Random, string: String, longest: int) -> tuple[String, int]:
        """A string after K edits, and K, which is geometric: each further edit is half as likely."""
        edited = list(string)
        edits = 0
        while True:
            edits += 1
            kinds = ["insert"] * (len(edited) < longest)
            kinds += (["replace"] * (len(self.symbols) > 1) + ["delete"]) * bool(edited)
            kind = rng.choice(kinds) if kinds else ""
            if kind == "insert":
                edited.insert(rng.randint(0, len(edited)), rng.choice(self.symbols))
            elif kind:
                place = rng.randrange(len(edited))
                others = [symbol for symbol in self.symbols if symbol != edited[place]]
                edited[place : place + 1] = [rng.choice(others)] if kind == "replace" else []
            if rng.random() < 0.5:
                return tuple(edited), edits

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """Only the longest length of a window, if there are members and the window starts at the empty string."""
        if shortest not in (0, longest):
            raise InputError(f"the strings of {self} have all lengths from 0 on; got a shortest length of {shortest}")
        return {longest: 1.0} if longest >= self.smallest else {}

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a string, of at most a length."""
        return self._draw(rng, length, rng.randrange(2))

    def _draw(self, rng: random.Random, longest: int, label: int) -> Example:
        if label == ACCEPT:
            return self._labelled(self.positive(rng, longest), label)
        string, edits = self._negative(rng, longest)
        return self._labelled(string, label, edits)

    def example(self, string: Sequence[int]) -> Example:
        """A string with its label."""
        begin = len(self.symbols)
        if begin in string:
            raise InputError(f"<s> must not occur in a string of {self}")
        symbols = tuple(self.vocabulary[number] for number in string)
        return self._labelled(symbols, ACCEPT if self.accepts(symbols) else REJECT)

    def continuations(self, example: Example) -> list[frozenset[int]]:
        """See `Task.continuations`."""
        if example.target != (ACCEPT,):
            return []
        ids = {symbol: number for number, symbol in enumerate((*self.symbols, END))}
        string = [self.vocabulary[number] for number in example.source[1:]]
        return [frozenset(ids[symbol] for symbol in symbols) for symbols in self.next_symbols(string)]

    def _labelled(self, string: String, label: int, edits: int | None = None) -> Example:
        source = (len(self.symbols), *map(self.symbols.index, string))
        return AnnotatedExample.of(Example(source, (label,), (True,)), edits=edits)

    def split(self, name: str, seed: int) -> list[Example]:
        """See `Task.split`; no string of `test_short_held_out` is in training or validation.

        Raises:
            InputError: as `Task.split` does, and if there are too few strings to hold out.
        """
        if name != HELD_OUT:
            return super().split(name, seed)
        seen = {example.source for part in ("train", "validation") for example in self.split(part, seed)}
        plan = self.planned(name)
        rng = random.Random(f"{seed}/{name}")
        examples: list[Example] = []
        while len(examples) < plan.number:
            label = rng.randrange(2)
            for _ in range(_MOST_PROPOSALS * 100):
                example = self._draw(rng, plan.longest, label)
                if example.source not in seen:
                    break
            else:
                raise InputError(f"{self} has too few strings up to length {plan.longest} to hold some out")
            examples.append(example)
        return examples


class MeasuredLanguage(RecognitionTask):
    """A language whose members are drawn with known probabilities."""

    def log_probability(self, string: Sequence[str], longest: int) -> float:
        """The logarithm, in nats, of the probability that `positive` draws a string; -inf if it never does.

        Args:
            string: any.
            longest: as of `positive`.
        """
        if len(string) > longest or not self.accepts(string):
            return -inf
        return self.log_of_member(string, longest)

    @abstractmethod
    def log_of_member(self, string: Sequence[str], longest: int) -> float:
        """The logarithm, in nats, of the probability that `positive` draws a member of at most the longest length."""
