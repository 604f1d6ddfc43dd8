"""F1 conventions: the rules, and the combinations of rules that papers use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from stack_lm.core.checks import CountOrZero, check_fields
from stack_lm.core.errors import InputError
from stack_lm.core.plugins import Registry

from .dependencies import Heads
from .trees import base_label

Removed = Literal["nothing", "period", "punctuation", "punctuation+currency"]
WordRule = Literal["tags", "tokens"]
GoldForm = Literal["annotated", "collapsed", "left", "right", "head"]
WholeSentence = Literal["counted", "excluded", "outermost excluded"]

# By part of speech. The Penn Treebank's tags; those of NEGRA and TIGER; of the French, Chinese, Arabic and Hungarian
# treebanks; the universal one.
_PUNCTUATION_TAGS = frozenset(""", . : `` '' -LRB- -RRB- $, $. $( $[ $LRB $*LRB* PONCT PU PUNC PUNCT""".split())
_CURRENCY_TAGS = frozenset("$ #".split())
# The same without tags. The two differ in a few ambiguous tokens.
PUNCTUATION_TOKENS = frozenset(
    """, . : ; ? ! ` `` ' '' " -- - ... -LRB- -RRB- -LCB- -RCB- ( ) [ ] { } « » „ “ ” ‘ ’ – — …""".split()  # noqa: RUF001
)
_CURRENCY_TOKENS = frozenset("$ # US$ C$ A$ HK$".split())
_PERIOD = frozenset(["."])

# The tags of the removed words, and the tokens.
_REMOVED: dict[Removed, tuple[frozenset[str], frozenset[str]]] = {
    "nothing": (frozenset(), frozenset()),
    "period": (_PERIOD, _PERIOD),
    "punctuation": (_PUNCTUATION_TAGS, PUNCTUATION_TOKENS),
    "punctuation+currency": (_PUNCTUATION_TAGS | _CURRENCY_TAGS, PUNCTUATION_TOKENS | _CURRENCY_TOKENS),
}


@dataclass(frozen=True)
class Convention:
    """The rules by which trees are scored.

    Attributes:
        name: reported with every score.
        source: the paper or code that defines it.
        removed: tokens removed before spans are counted: "nothing", "period" (the token "."),
            "punctuation", or "punctuation+currency" (PRPN: $ and # as well).
        removed_by: "tags" (or tokens, if a tree has no tags), or "tokens".
        gold: gold trees "annotated", "collapsed" (without unary phrases and those of one word), or binarised: "left",
            "right", or by Collins' "head" rules (Htut et al. 2018).
        whole_sentence: whether the span of the whole sentence is "counted" or "excluded"; "outermost excluded" leaves
            out only the outermost phrase, so a gold tree with a unary phrase below it keeps the span.
        average: "sentence" (the mean of the sentences' F1) or "corpus" (one F1 of all spans).
        brackets: "set" (distinct spans of two words or more), "multiset" (every phrase counts, including unary ones
            and those of one word), as in EVALB, or "edges" (pairs of a word and its head, for dependency trees).
        heads: with `brackets="edges"`, the heads of predicted phrases; see `stack_lm.parsing.dependencies.edges_of`.
        labels: "ignored", or "compared" if both sides have them.
        min_words: sentences with fewer words left are not scored.
        without_spans: whether sentences whose gold trees have no counted span are "scored" or "skipped".
        deleted_labels: with `brackets="multiset"`, labels of phrases that do not count, and tags of words that are
            removed in addition to `removed`.
        uncounted_tags: tags of words that do not count for a sentence's length.
        equal_labels, equal_words: labels and words that count as equal, each mapped to its representative.
        cutoff: longest sentence, in words, of the separate score for short sentences.
    """

    name: str
    source: str
    removed: Removed = "nothing"
    removed_by: WordRule = "tags"
    gold: GoldForm = "annotated"
    whole_sentence: WholeSentence = "excluded"
    average: Literal["sentence", "corpus"] = "sentence"
    brackets: Literal["set", "multiset", "edges"] = "set"
    heads: Heads = "gold"
    labels: Literal["ignored", "compared"] = "ignored"
    min_words: CountOrZero = 0
    without_spans: Literal["scored", "skipped"] = "scored"
    deleted_labels: frozenset[str] = frozenset()
    uncounted_tags: frozenset[str] = frozenset()
    equal_labels: Mapping[str, str] = field(default_factory=dict)
    equal_words: Mapping[str, str] = field(default_factory=dict)
    cutoff: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.labels == "compared" and self.brackets != "multiset":
            raise InputError(f"labels can be compared with brackets='multiset' only; got brackets={self.brackets!r}")
        if self.heads != "gold" and self.brackets != "edges":
            raise InputError(f"heads are for dependencies, as in uuas; {self.name} has brackets={self.brackets!r}")

    def kept(self, words: Sequence[str], tags: Sequence[str | None]) -> tuple[bool, ...]:
        """Return for each token of a sentence whether it is scored.

        Args:
            words: the tokens.
            tags: their parts of speech; None if the tree has none.
        """
        names, tokens = _REMOVED[self.removed]
        by_token = self.removed_by == "tokens" or self.removed == "period"
        kept = []
        quoted = False
        for word, tag in zip(words, tags, strict=True):
            quoted = quoted or word == "`"
            name = base_label(tag) if tag is not None else None
            if name is not None and name in self.deleted_labels:
                kept.append(False)
            elif name is None or by_token:
                # Without an opening quotation mark, an apostrophe after a word is a possessive.
                kept.append(word not in tokens or (word == "'" and not quoted))
            else:
                kept.append(name not in names)
        return tuple(kept)


CONVENTIONS: Registry[Convention] = Registry("convention", "stack_lm.conventions")
"""The conventions by name."""


def register_convention(convention: Convention) -> Convention:
    """Make a convention available by its name, to `score_trees` and to commands.

    Raises:
        ValueError: if another convention has that name.
    """
    CONVENTIONS.register(convention.name, convention)
    return convention


def get_convention(name: str) -> Convention:
    """The convention of that name.

    Raises:
        InputError: if there is none.
    """
    return CONVENTIONS.find(name)


for _convention in (
    Convention("prpn", "Shen et al. 2018: PRPN, ON-LSTM", removed="punctuation+currency"),
    Convention(
        "compound-pcfg",
        "Kim et al. 2019",
        removed="punctuation+currency",
        whole_sentence="outermost excluded",
        min_words=2,
    ),
    Convention("htut", "Htut et al. 2018", gold="head", whole_sentence="counted"),
    Convention("merrill", "Merrill et al. 2019, Table 3", gold="head"),
    Convention("corpus", "one F1 of all distinct spans", removed="punctuation+currency", average="corpus"),
    Convention(
        "evalb",
        "EVALB, Sekine and Collins",
        whole_sentence="counted",
        average="corpus",
        brackets="multiset",
        labels="compared",
        min_words=1,
    ),
    Convention("uuas", "Klein and Manning 2004", removed="punctuation", average="corpus", brackets="edges"),
):
    register_convention(_convention)
