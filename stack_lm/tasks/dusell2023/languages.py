"""The seven languages of DuSell and Chiang (2023) that are not context-free."""

from __future__ import annotations

from ..registry import register_task
from .words import WordLanguage


@register_task("dusell2023/count_3")
class Count3(WordLanguage):
    """Strings of n `a`, n `b` and n `c`, in this order."""

    letters = ("a",)
    others = ("b", "c")

    def made_of(self, word: list[str]) -> list[str]:
        return [*word, *"b" * len(word), *"c" * len(word)]


@register_task("dusell2023/marked_reverse_and_copy")
class MarkedReverseAndCopy(WordLanguage):
    """`w # w reversed # w`."""

    others = ("#",)

    def made_of(self, word: list[str]) -> list[str]:
        return [*word, "#", *reversed(word), "#", *word]


@register_task("dusell2023/count_and_copy")
class CountAndCopy(WordLanguage):
    """`w`, as many `#` as it has symbols, and `w`."""

    others = ("#",)

    def made_of(self, word: list[str]) -> list[str]:
        return [*word, *"#" * len(word), *word]


@register_task("dusell2023/marked_copy")
class MarkedCopy(WordLanguage):
    """`w # w`."""

    others = ("#",)

    def made_of(self, word: list[str]) -> list[str]:
        return [*word, "#", *word]


@register_task("dusell2023/unmarked_copy_different_alphabets")
class UnmarkedCopyDifferentAlphabets(WordLanguage):
    """`w`, and `w` again in another alphabet: 2 for 0, and 3 for 1."""

    others = ("2", "3")

    def made_of(self, word: list[str]) -> list[str]:
        return [*word, *("2" if letter == "0" else "3" for letter in word)]


@register_task("dusell2023/unmarked_reverse_and_copy")
class UnmarkedReverseAndCopy(WordLanguage):
    """`w`, `w` reversed, and `w`."""

    def made_of(self, word: list[str]) -> list[str]:
        return [*word, *reversed(word), *word]


@register_task("dusell2023/unmarked_copy")
class UnmarkedCopy(WordLanguage):
    """`w` and `w`."""

    def made_of(self, word: list[str]) -> list[str]:
        return [*word, *word]
