"""F1 of trees, with its convention named: right branching scores 5, 11 or 40 on the same trees under three of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from nltk.tree import Tree

from stack_lm.errors import InputError

from .trees import Span, base_label, binarize_by_head, phrase_spans, words_and_tags

# Tags that are no words: punctuation and currency signs, as PRPN leaves out.
_NOT_WORD_TAGS = frozenset([",", ".", ":", "``", "''", "-LRB-", "-RRB-", "$", "#", "-NONE-"])
# The same without tags. It differs from the tags by a few ambiguous tokens.
_NOT_WORD_TOKENS = frozenset(
    """, . : ; ? ! ` `` ' '' " -- - ... -LRB- -RRB- -LCB- -RCB- ( ) { } $ # US$ C$ A$ HK$""".split()
)
_TINY = 1e-8


@dataclass(frozen=True)
class Convention:
    """What a number called F1 means.

    Attributes:
        name: to be reported with the score.
        punctuation: "removed" (with $ and #; spans are those of the words left) or "kept".
        gold: "annotated", or "head-binarized" (Collins heads; Htut et al. 2018).
        whole_sentence: whether the span of the whole sentence counts.
        average: "sentence" (the mean of the sentences' F1) or "corpus" (one F1 of all spans).
        brackets: "set" (distinct spans of two words or more, without labels) or "labelled" (every phrase counts, unary
            ones and those of one word too, and labels must match), as in EVALB.
        source: where it comes from.
    """

    name: str
    punctuation: Literal["removed", "kept"]
    gold: Literal["annotated", "head-binarized"]
    whole_sentence: bool
    average: Literal["sentence", "corpus"]
    brackets: Literal["set", "labelled"]
    source: str


CONVENTIONS = {
    convention.name: convention
    for convention in (
        Convention("prpn", "removed", "annotated", False, "sentence", "set", "Shen et al. (2018), PRPN and ON-LSTM"),
        Convention("merrill", "kept", "head-binarized", False, "sentence", "set", "Merrill et al. (2019), Table 3"),
        Convention("evalb", "kept", "annotated", True, "corpus", "labelled", "EVALB (Sekine and Collins)"),
    )
}


def get_convention(name: str) -> Convention:
    """The convention of that name.

    Raises:
        InputError: if there is none.
    """
    if name not in CONVENTIONS:
        raise InputError(f"convention must be one of {', '.join(CONVENTIONS)}; got {name!r}")
    return CONVENTIONS[name]


@dataclass(frozen=True, eq=False)
class F1Score:
    """A score and what it was computed from. All scores are in percent.

    Attributes:
        convention: by which it was computed.
        f1, precision, recall: means over sentences, or of all spans together, as the convention says.
        n_sentences: that were scored.
        per_sentence: precision, recall and F1 of each sentence [n_sentences, 3].
        label_recall: share of the gold phrases of a label that the predictions have, over all sentences, the whole
            sentence counted as found; without function tags. Empty for labelled brackets.
        label_counts: gold phrases of each label.
    """

    convention: Convention
    f1: float
    precision: float
    recall: float
    n_sentences: int
    per_sentence: np.ndarray
    label_recall: dict[str, float]
    label_counts: dict[str, int]


def is_word(token: str, tag: str | None) -> bool:
    """Whether a token stays where punctuation is removed: by its tag, or by itself if it has none."""
    return tag not in _NOT_WORD_TAGS if tag is not None else token not in _NOT_WORD_TOKENS


@dataclass(frozen=True, eq=False)
class GoldTree:
    """A gold tree, ready for a convention.

    Attributes:
        words: all words.
        tags: their tags, if there are any.
        kept: which words are left [n], bool.
        spans: its phrases over the words left.
    """

    words: list[str]
    tags: list[str] | None
    kept: np.ndarray
    spans: list[Span]

    @property
    def kept_words(self) -> list[str]:
        """The words left."""
        return [word for word, keep in zip(self.words, self.kept, strict=True) if keep]


def prepare_gold(tree: Tree, convention: Convention) -> GoldTree:
    """Apply a convention's rules for gold trees: binarise, remove punctuation."""
    words, tags = words_and_tags(tree)
    kept = np.ones(len(words), dtype=bool)
    if convention.punctuation == "removed":
        every_tag = tags if tags is not None else [None] * len(words)
        kept = np.array([is_word(*pair) for pair in zip(words, every_tag, strict=True)], dtype=bool)
    if convention.gold == "head-binarized":
        tree = binarize_by_head(tree)
    return GoldTree(words, tags, kept, _project(phrase_spans(tree), kept))


def _project(spans: Sequence[Span], kept: np.ndarray) -> list[Span]:
    """Spans over the words that are kept; those that lose all their words go."""
    if kept.all():
        return list(spans)
    place = np.concatenate(([0], np.cumsum(kept))).tolist()
    projected = (Span(place[span.start], place[span.stop], span.label) for span in spans)
    return [span for span in projected if span.stop > span.start]


def _prediction_spans(tree: Tree, gold: GoldTree, number: int) -> list[Span]:
    """A predicted tree's spans over the words left; it may be of all words, or of those alone."""
    words, _ = words_and_tags(tree)
    if _same(words, gold.words):
        return _project(phrase_spans(tree), gold.kept)
    if _same(words, gold.kept_words):
        return phrase_spans(tree)
    expected = gold.words if abs(len(words) - len(gold.words)) <= abs(len(words) - sum(gold.kept)) else gold.kept_words
    if len(words) != len(expected):
        detail = f"it has {len(words)} words, the gold tree {len(expected)}"
    else:
        place = next(i for i, (a, b) in enumerate(zip(words, expected, strict=True)) if not _same([a], [b]))
        detail = f"word {place + 1} is {words[place]!r}, in the gold tree {expected[place]!r}"
    raise InputError(f"the predicted tree {number} is of another sentence than the gold tree: {detail}")


def _same(words: Sequence[str], others: Sequence[str]) -> bool:
    return len(words) == len(others) and all(
        a == b or a.casefold() == b.casefold() for a, b in zip(words, others, strict=True)
    )


def score_trees(
    gold: Sequence[Tree | GoldTree],
    predictions: Sequence[Tree],
    convention: str | Convention,
    *,
    labelled: bool = True,
) -> F1Score:
    """Score predicted trees.

    Args:
        gold: trees, or what `prepare_gold` made of them for the same convention.
        predictions: as many trees, over all words or over those left when punctuation is removed. Upper and lower case
            may differ.
        convention: a name in `CONVENTIONS`, or a convention of your own.
        labelled: False ignores labels where the convention would compare them, for parses that have none.

    Raises:
        InputError: if the numbers of trees differ, or a prediction is of other words than its gold tree.
    """
    rules = get_convention(convention) if isinstance(convention, str) else convention
    if len(gold) != len(predictions):
        raise InputError(f"there are {len(predictions)} predicted trees for {len(gold)} gold trees")
    if not gold:
        raise InputError("there are no trees to score")
    counts = np.zeros((len(gold), 3), dtype=np.int64)  # spans in both, in the prediction, in the gold tree
    hits: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for i, (item, prediction) in enumerate(zip(gold, predictions, strict=True)):
        golden = item if isinstance(item, GoldTree) else prepare_gold(item, rules)
        predicted = _prediction_spans(prediction, golden, i + 1)
        if rules.brackets == "labelled":
            counts[i] = _count_labelled(golden.spans, predicted, labelled)
        else:
            counts[i] = _count_set(golden, predicted, rules, hits)
    per_sentence = _sentence_scores(counts)
    if rules.average == "sentence":
        precision, recall, f1 = per_sentence.mean(axis=0)
    else:
        precision, recall, f1 = _corpus_score(counts.sum(axis=0))
    by_count = sorted(hits, key=lambda label: -hits[label][1])
    return F1Score(
        convention=rules,
        f1=100 * float(f1),
        precision=100 * float(precision),
        recall=100 * float(recall),
        n_sentences=len(gold),
        per_sentence=100 * per_sentence,
        label_recall={label: 100 * hits[label][0] / hits[label][1] for label in by_count},
        label_counts={label: hits[label][1] for label in by_count},
    )


def _count_labelled(gold: Sequence[Span], predicted: Sequence[Span], labelled: bool) -> tuple[int, int, int]:
    """EVALB: multisets of brackets."""
    sides = [gold, predicted]
    if not labelled:
        sides = [[span._replace(label="") for span in side] for side in sides]
    gold_counts, predicted_counts = Counter(sides[0]), Counter(sides[1])
    return sum((gold_counts & predicted_counts).values()), len(predicted), len(gold)


def _count_set(
    gold: GoldTree, predicted: Sequence[Span], rules: Convention, hits: dict[str, list[int]]
) -> tuple[int, int, int]:
    n = int(gold.kept.sum())

    def distinct(spans: Sequence[Span]) -> set[tuple[int, int]]:
        wide = {(a, b) for a, b, _ in spans if b - a > 1}
        return wide if rules.whole_sentence else wide - {(0, n)}

    gold_set, predicted_set = distinct(gold.spans), distinct(predicted)
    for label, start, stop in {(base_label(label), a, b) for a, b, label in gold.spans if b - a > 1}:
        hits[label][0] += (start, stop) in predicted_set or (start, stop) == (0, n)
        hits[label][1] += 1
    return len(gold_set & predicted_set), len(predicted_set), len(gold_set)


def _sentence_scores(counts: np.ndarray) -> np.ndarray:
    """Precision, recall and F1 of each sentence [n, 3], as PRPN computes them, its empty cases included."""
    both, predicted, gold = counts.T.astype(float)
    precision, recall = both / (predicted + _TINY), both / (gold + _TINY)
    recall[gold == 0] = 1.0
    precision[(gold == 0) & (predicted == 0)] = 1.0
    f1 = 2 * precision * recall / (precision + recall + _TINY)
    return np.stack((precision, recall, f1), axis=1)


def _corpus_score(totals: np.ndarray) -> tuple[float, float, float]:
    both, predicted, gold = totals.tolist()
    precision = both / predicted if predicted else 0.0
    recall = both / gold if gold else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0
