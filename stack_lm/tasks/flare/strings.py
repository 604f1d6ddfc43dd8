"""The languages of FLaRe in which a part of a string determines another (Butoi et al. 2025)."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from math import comb, log
from typing import ClassVar

from ..recognition import BITS, END, MeasuredLanguage, String, Symbols
from ..registry import register_task

MARK = "#"
_ANY = frozenset(BITS)
_END = frozenset([END])
_HIDDEN = "_"
_PUSH, _POP = "PUSH", "POP"


def determined(due: Sequence[str]) -> Iterator[Symbols]:
    """One symbol at a time, then the end."""
    yield from (frozenset([symbol]) for symbol in due)
    yield _END


@register_task("flare/majority")
class Majority(MeasuredLanguage):
    """More ones than zeros."""

    smallest = 1

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """Any symbol; the end while ones lead."""
        lead = 0
        yield _ANY
        for symbol in string:
            lead += 1 if symbol == "1" else -1
            yield _ANY | _END if lead > 0 else _ANY

    def positive(self, rng: random.Random, longest: int) -> String:
        """The length and the number of ones are uniform."""
        length = rng.randint(1, longest)
        ones = rng.randint(length // 2 + 1, length)
        return tuple(rng.sample(["1"] * ones + ["0"] * (length - ones), length))

    def log_of_member(self, string: Sequence[str], longest: int) -> float:
        """See `MeasuredLanguage.log_of_member`."""
        length, ones = len(string), string.count("1")
        return -log(longest) - log(length - length // 2) - log(comb(length, ones))


class _Unfolded(MeasuredLanguage):
    """Strings determined by a word of k symbols: k is uniform over all that fit, and the word over those of k."""

    letters: ClassVar[String] = BITS

    @abstractmethod
    def most(self, longest: int) -> int:
        """The largest k."""

    @abstractmethod
    def unfold(self, word: String) -> String:
        """The string of a word."""

    def positive(self, rng: random.Random, longest: int) -> String:
        """A word, unfolded."""
        return self.unfold(tuple(rng.choices(self.letters, k=rng.randint(0, self.most(longest)))))

    def log_of_member(self, string: Sequence[str], longest: int) -> float:
        """See `MeasuredLanguage.log_of_member`."""
        return -log(self.most(longest) + 1) - len(string) // 2 * log(len(self.letters))


@register_task("flare/unmarked_reversal")
class UnmarkedReversal(_Unfolded):
    """A word and its reversal."""

    def most(self, longest: int) -> int:
        """Half of the length."""
        return longest // 2

    def unfold(self, word: String) -> String:
        """The word and its reversal."""
        return word + word[::-1]

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """Any symbol; the end after a palindrome of even length."""
        for end in range(len(string) + 1):
            prefix = string[:end]
            yield _ANY | _END if end % 2 == 0 and prefix == prefix[::-1] else _ANY


class _Marked(_Unfolded):
    """A word, #, and as many symbols again, determined by the word."""

    symbols: String = (*BITS, MARK)
    smallest = 1

    def most(self, longest: int) -> int:
        """Half of the length, without the mark."""
        return (longest - 1) // 2

    def unfold(self, word: String) -> String:
        """The word, the mark and the image."""
        return (*word, MARK, *self.image(word))

    @abstractmethod
    def image(self, word: String) -> String:
        """Return the string that follows the mark."""

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """Any symbol up to the mark, then one at a time."""
        word = tuple(string[: string.index(MARK)] if MARK in string else string)
        yield from (frozenset(self.symbols) for _ in range(len(word) + 1))
        yield from determined(self.image(word))


@register_task("flare/marked_reversal")
class MarkedReversal(_Marked):
    """`w # w` reversed."""

    def image(self, word: String) -> String:
        """The word, reversed."""
        return word[::-1]


@register_task("flare/marked_copy")
class MarkedCopy(_Marked):
    """`w # w`."""

    def image(self, word: String) -> String:
        """The word."""
        return word


@register_task("flare/odds_first")
class OddsFirst(_Marked):
    """A word, #, its symbols at odd positions, counted from 1, and those at even ones."""

    def image(self, word: String) -> String:
        """Every other symbol from the first on, then the others."""
        return word[::2] + word[1::2]


@register_task("flare/bucket_sort")
class BucketSort(_Marked):
    """A word, #, and its symbols in ascending order."""

    letters: ClassVar[String] = ("1", "2", "3", "4", "5")
    symbols: String = (*letters, MARK)

    def image(self, word: String) -> String:
        """The word, sorted."""
        return tuple(sorted(word))


@register_task("flare/missing_duplicate_string")
class MissingDuplicateString(MeasuredLanguage):
    """A word twice, in which one 1 is hidden as `_`."""

    symbols = (*BITS, _HIDDEN)
    smallest = 2

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """Any symbol, `_` once; the end if replacing `_` by 1 gives a word twice."""
        string = tuple(string)
        for end in range(len(string) + 1):
            prefix = string[:end]
            if _HIDDEN not in prefix:
                yield frozenset(self.symbols)
                continue
            place, half = prefix.index(_HIDDEN), end // 2
            full = (*prefix[:place], "1", *prefix[place + 1 :])
            yield _ANY | _END if end % 2 == 0 and full[:half] == full[half:] else _ANY

    def positive(self, rng: random.Random, longest: int) -> String:
        """A word of uniform length, one of its symbols set to 1, and one of the ones hidden."""
        word = rng.choices(BITS, k=rng.randint(1, longest // 2))
        word[rng.randrange(len(word))] = "1"
        string = word * 2
        string[rng.choice([place for place, symbol in enumerate(string) if symbol == "1"])] = _HIDDEN
        return tuple(string)

    def log_of_member(self, string: Sequence[str], longest: int) -> float:
        """See `MeasuredLanguage.log_of_member`.

        A word of k symbols with h ones is drawn with a probability of h / k * 2^(1 - k), and one of its 2 h ones is
        hidden: all strings of a length are equally likely.
        """
        half = len(string) // 2
        return -log(longest // 2) - log(half) - half * log(2)


@register_task("flare/stack_manipulation")
class StackManipulation(MeasuredLanguage):
    """A stack of bits from its bottom, operations `POP`, `PUSH 0` and `PUSH 1`, #, and the stack from its top.

    An empty stack must not be popped.
    """

    symbols = (*BITS, _PUSH, _POP, MARK)
    smallest = 1

    def following(self, string: Sequence[str]) -> Iterator[Symbols]:
        """Bits, operations that the stack allows, and the stack one symbol at a time."""
        stack: list[str] = []
        begun = pushing = False
        for symbol in (None, *string):
            if symbol == MARK:
                break
            begun |= symbol in (_PUSH, _POP)
            pushing = symbol == _PUSH
            if symbol in BITS:
                stack.append(symbol)
            elif symbol == _POP:
                stack.pop()
            if pushing:
                yield _ANY
            else:
                yield frozenset([_PUSH, MARK, *[_POP] * bool(stack), *([] if begun else BITS)])
        else:
            return
        yield from determined(stack[::-1])

    def positive(self, rng: random.Random, longest: int) -> String:
        """Some bits, and operations until the next push would be one too many."""
        bits = rng.randint(0, (longest - 1) // 2)
        pushes = rng.randint(0, (longest - 2 * bits - 1) // 3)
        stack = rng.choices(BITS, k=bits)
        string = [*stack]
        while True:
            if stack and rng.random() < 0.5:
                stack.pop()
                string.append(_POP)
            elif pushes:
                pushes -= 1
                stack.append(rng.choice(BITS))
                string += [_PUSH, stack[-1]]
            else:
                return (*string, MARK, *reversed(stack))

    def log_of_member(self, string: Sequence[str], longest: int) -> float:
        """See `MeasuredLanguage.log_of_member`."""
        operations = string[: string.index(MARK)]
        bits = next((i for i, symbol in enumerate(operations) if symbol not in BITS), len(operations))
        pushes = operations.count(_PUSH)
        # A coin decides between push and pop if the stack is not empty, even before the push too many.
        height, coins = bits, 0
        for symbol in operations[bits:]:
            if symbol not in BITS:
                coins += height > 0
                height += 1 if symbol == _PUSH else -1
        coins += height > 0
        numbers = log((longest - 1) // 2 + 1) + log((longest - 2 * bits - 1) // 3 + 1)
        return -numbers - (bits + pushes + coins) * log(2)
