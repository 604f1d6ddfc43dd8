"""The five languages of DuSell and Chiang (2020), with the grammars and probabilities of the released code.

A nonterminal that continues with probability m / (m + 1) does so m times on average.

NOTE: when the released code removes rules that rewrite one nonterminal as another, it loses those of the start symbol.
    The strings here are those of the grammars; see `PaddedReversal` and `Dyck`.
"""

from __future__ import annotations

from ..exact import GrammarLanguage
from ..grammars import Grammar
from ..registry import register_task


def _again(mean: float) -> float:
    """The probability of continuing, from the mean number of times."""
    return mean / (mean + 1)


def _reversal(centre: str, mean: float = 60) -> Grammar:
    return Grammar({"S": {"0 S 0": _again(mean) / 2, "1 S 1": _again(mean) / 2, centre: 1 - _again(mean)}})


class _Language(GrammarLanguage):
    paper = "DuSell and Chiang 2020"


@register_task("dusell2020/marked_reversal")
class MarkedReversal(_Language):
    """`w # w reversed`, with 60 symbols in `w` on average."""

    symbols = "0 1 #"
    grammar = _reversal("#")


@register_task("dusell2020/unmarked_reversal")
class UnmarkedReversal(_Language):
    """`w` and `w` reversed."""

    symbols = "0 1"
    grammar = _reversal("")


@register_task("dusell2020/padded_reversal")
class PaddedReversal(_Language):
    """`w`, any number of one symbol, 30 on average, and `w` reversed.

    NOTE: `w` may be empty. In the released code it is not: there, no string is only padding.
    """

    symbols = "0 1"
    grammar = Grammar(
        {
            "S": dict.fromkeys(("0 S 0", "1 S 1"), _again(60) / 2) | dict.fromkeys(("T0", "T1"), (1 - _again(60)) / 2),
            "T0": {"0 T0": _again(30), "": 1 - _again(30)},
            "T1": {"1 T1": _again(30), "": 1 - _again(30)},
        }
    )


@register_task("dusell2020/dyck")
class Dyck(_Language):
    """Well-nested strings of two pairs: on average one split at each level, and 40 levels.

    NOTE: a string may be a single group, within one outermost pair, as are 78% of those of 60 symbols. In the released
        code none is: there, the top level has two groups or more.
    """

    symbols = "( ) [ ]"
    grammar = Grammar(
        {
            "S": {"S T": _again(1), "T": 1 - _again(1)},
            "T": dict.fromkeys(("( S )", "[ S ]"), _again(39) / 2)
            | dict.fromkeys(("( )", "[ ]"), (1 - _again(39)) / 2),
        }
    )


@register_task("dusell2020/hardest_cfl")
class HardestCFL(_Language):
    """A Dyck word cut into pieces, each of which hides among other strings (Greibach 1973).

    Sections end with `;`. In each, one of the strings between commas belongs to the word, which begins with `$`.
    """

    symbols = "( ) [ ] , ; $"
    grammar = Grammar(
        {
            "S'": ["R $ Q S L ;"],
            "L": ["L' , U"],
            "L'": {", V L'": _again(0.5), "": 1 - _again(0.5)},
            "R": ["U , R'"],
            "R'": {"R' V ,": _again(0.5), "": 1 - _again(0.5)},
            "U": {"W U": _again(0.5), "": 1 - _again(0.5)},
            "V": {"W V": _again(1), "W": 1 - _again(1)},
            "W": dict.fromkeys("( ) [ ] $".split(), 1 / 5),
            "Q": {"L ; R": 0.25, "": 0.75},
            "S": {"S Q T": _again(1.5), "T": 1 - _again(1.5)},
            "T": dict.fromkeys(("( Q S Q )", "[ Q S Q ]"), _again(3) / 2)
            | dict.fromkeys(("( Q )", "[ Q ]"), (1 - _again(3)) / 2),
        }
    )
