"""F1 of trees under a named convention."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stack_lm.core.errors import InputError
from stack_lm.text.escapes import unescape_word

from .averages import Score, sentence_scores, summarize
from .conventions import Convention, get_convention
from .dependencies import edges_of
from .heads import HEAD_RULES
from .trees import ConstituencyTree, Span, base_label

if TYPE_CHECKING:  # slow to load
    from nltk.tree import Tree

LENGTHS = (10, 20, 30, 40)


@dataclass(frozen=True, eq=False)
class GoldTree:
    """A gold tree, ready for a convention.

    Attributes:
        annotated: the tree as read.
        kept: for each word, whether the convention keeps it.
        tree: over the kept words, in the form that the convention scores; None if no word is kept.
        length: the length of the sentence, by the convention's count.
        equal_words: words that count as equal, each mapped to its representative.
    """

    annotated: ConstituencyTree
    kept: tuple[bool, ...]
    tree: ConstituencyTree | None
    length: int
    equal_words: Mapping[str, str]

    @property
    def kept_words(self) -> tuple[str, ...]:
        """The words that the convention keeps."""
        return self.tree.words if self.tree is not None else ()

    def align(self, prediction: ConstituencyTree) -> ConstituencyTree | None:
        """Restrict a predicted tree to the kept words, as the gold tree spells them; None if there are none.

        Args:
            prediction: over all words, or over the kept ones. Upper and lower case may differ, and so may the escapes.

        Raises:
            InputError: if the words differ; the message names the first difference.
        """
        words, whole, left = prediction.words, self.annotated.words, self.kept_words
        if _same(words, whole, self.equal_words):
            return replace(prediction.keep(self.kept), words=left) if self.tree is not None else None
        if _same(words, left, self.equal_words):
            return replace(prediction, words=left)
        others = whole if abs(len(words) - len(whole)) <= abs(len(words) - len(left)) else left
        problem = [f"it has {len(words)} words, the gold tree {len(others)}"] if len(words) != len(others) else []
        for place, (word, other) in enumerate(zip(words, others, strict=False), start=1):
            if not _same((word,), (other,), self.equal_words):
                problem.append(f"word {place} is {word!r}, in the gold tree {other!r}")
                break
        raise InputError(f"its words differ from those of its gold tree: {'; '.join(problem)}")


@dataclass(frozen=True, eq=False)
class F1Score:
    """F1 under a convention, with the counts behind it. All scores are in percent.

    Attributes:
        convention: the rules.
        f1: mean over sentences, or of all spans together, depending on the convention.
        precision: likewise.
        recall: likewise.
        n_sentences: sentences scored.
        counts: per sentence, the spans in both trees, in the prediction and in the gold tree [n_sentences, 3].
        lengths: sentence lengths, by the convention's count [n_sentences].
        numbers: the index of each sentence among the given trees, from 0 [n_sentences].
        label_recall: share of the gold phrases of each label found in the predictions, pooled over sentences; the whole
            sentence counts as found; without function tags. Phrases of two words or more, distinct by label and span.
            With `brackets="edges"`, of the gold dependencies of each relation.
        label_counts: gold phrases of each label, or dependencies.
        crossing: per sentence, predicted brackets that cross a gold bracket [n_sentences].
        tags_right: words whose tags agree.
        n_tags: words of predictions that have tags.
        errors: the reasons why predictions were left out.
    """

    convention: Convention
    f1: float
    precision: float
    recall: float
    n_sentences: int
    counts: np.ndarray
    lengths: np.ndarray
    numbers: np.ndarray
    label_recall: dict[str, float]
    label_counts: dict[str, int]
    crossing: np.ndarray
    tags_right: int
    n_tags: int
    errors: tuple[str, ...]

    @property
    def per_sentence(self) -> np.ndarray:
        """Precision, recall and F1 of each sentence [n_sentences, 3]."""
        return 100 * sentence_scores(self.counts)

    def of_lengths(self, shortest: int, longest: float) -> Score:
        """The score of sentences of `shortest` to `longest` words."""
        chosen = (self.lengths >= shortest) & (self.lengths <= longest)
        return summarize(self.counts[chosen], self.convention)

    @property
    def by_length(self) -> dict[str, Score]:
        """Scores of sentences of 1 to 10 words, 11 to 20 and so on; lengths without sentences are left out."""
        bounds = zip((0, *LENGTHS), (*LENGTHS, float("inf")), strict=True)
        scores = {
            f"{below + 1}-{top}" if top < float("inf") else f"{below + 1} or more": self.of_lengths(below + 1, top)
            for below, top in bounds
        }
        return {name: score for name, score in scores.items() if score.n_sentences}

    @property
    def complete_match(self) -> float:
        """Percentage of sentences whose brackets are all right."""
        return 100 * float((self.counts == self.counts[:, :1]).all(axis=1).mean())

    @property
    def tagging_accuracy(self) -> float | None:
        """Percentage of words with the right tag, among those of predictions that have tags; None if none has."""
        return 100 * self.tags_right / self.n_tags if self.n_tags else None


def prepare_gold(tree: Tree | ConstituencyTree, convention: Convention) -> GoldTree:
    """Apply a convention's rules for gold trees: remove punctuation, then binarise."""
    whole = tree if isinstance(tree, ConstituencyTree) else ConstituencyTree.from_nltk(tree)
    if convention.brackets == "edges" and not whole.arcs:
        raise InputError(f"convention {convention.name} is for dependency trees (.conllu); {whole.origin} has none")
    tags: Sequence[str | None] = whole.word_tags or (None,) * len(whole.words)
    kept = convention.kept(whole.words, tags)
    counted = [tag not in convention.uncounted_tags for tag in tags]
    length = sum(counted) if convention.brackets == "multiset" else sum(kept)
    if not any(kept):
        return GoldTree(whole, kept, None, length, convention.equal_words)
    left = whole.keep(kept)
    if convention.gold == "collapsed":
        left = left.collapse_unaries()
    elif convention.gold in HEAD_RULES:
        left = left.binarize(HEAD_RULES[convention.gold])
    return GoldTree(whole, kept, left, length, convention.equal_words)


def _same(words: Sequence[str], others: Sequence[str], equal: Mapping[str, str]) -> bool:
    if words == others:
        return True
    return len(words) == len(others) and all(
        a == b or unescape_word(a).casefold() == unescape_word(b).casefold() or equal.get(a, a) == equal.get(b, b)
        for a, b in zip(words, others, strict=True)
    )


def score_trees(
    gold: Sequence[Tree | ConstituencyTree | GoldTree],
    predictions: Sequence[Tree | ConstituencyTree | None],
    convention: str | Convention,
    *,
    keep_going: bool = False,
    numbers: Sequence[int] | None = None,
) -> F1Score:
    """Score predicted trees.

    Args:
        gold: trees, or the results of `prepare_gold` for the same convention.
        predictions: one tree for each gold tree, over all words or over the kept ones. Upper and lower case
            may differ. None marks a missing tree. If all labels are "X", labels are not compared.
        convention: a name in `CONVENTIONS`, or your own convention.
        keep_going: leave out predictions that are missing or whose words differ from the gold tree's, and list them
            in `errors`.
        numbers: the numbers of the trees, for messages; None counts from 1.

    Raises:
        InputError: if the numbers of trees differ, a prediction cannot be scored, or no sentence is left.
    """
    rules = get_convention(convention) if isinstance(convention, str) else convention
    if len(gold) != len(predictions):
        raise InputError(f"there are {len(predictions)} predicted trees for {len(gold)} gold trees")
    if not gold:
        raise InputError("there are no trees to score")
    trees = [
        tree if tree is None or isinstance(tree, ConstituencyTree) else ConstituencyTree.from_nltk(tree)
        for tree in predictions
    ]
    if rules.labels == "compared" and not any(tree.has_labels for tree in trees if tree is not None):
        rules = replace(rules, labels="ignored")
    tally = _Tally(rules)
    errors = []
    for number, (item, prediction) in enumerate(zip(gold, trees, strict=True)):
        golden = item if isinstance(item, GoldTree) else prepare_gold(item, rules)
        try:
            if prediction is None:
                raise InputError("it is missing")
            tally.add(number, golden, golden.align(prediction))
        except InputError as error:
            where = f" ({prediction.origin})" if prediction is not None and prediction.origin else ""
            named = number + 1 if numbers is None else numbers[number]
            message = f"the predicted tree {named}{where} cannot be scored: {error}"
            if not keep_going:
                raise InputError(message) from error
            errors.append(message)
    if not tally.numbers:
        raise InputError("no sentence is left to score" + (f"; {errors[0]}" if errors else ""))
    return tally.score(errors)


class _Tally:
    """A counter of spans, sentence by sentence."""

    def __init__(self, rules: Convention) -> None:
        self.rules = rules
        self.counts: list[tuple[int, int, int]] = []
        self.lengths: list[int] = []
        self.numbers: list[int] = []
        self.crossing: list[int] = []
        self.hits: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.tags_right = self.n_tags = 0

    def add(self, number: int, gold: GoldTree, predicted: ConstituencyTree | None) -> None:
        """Count a sentence's spans; the prediction is over the kept words, or None if there are none."""
        if len(gold.kept_words) < self.rules.min_words:
            return
        counts, crossing = (0, 0, 0), 0
        if gold.tree is not None and predicted is not None:
            if self.rules.brackets == "edges":
                relations = {frozenset(arc[:2]): base_label(arc.relation) for arc in gold.tree.arcs if arc.head >= 0}
                edges = edges_of(predicted, gold.tree.arcs, self.rules.heads)
                counts = len(relations.keys() & edges), len(edges), len(relations)
                for edge, relation in relations.items():
                    self._count_label(relation, edge in edges)
            elif self.rules.brackets == "set":
                golden, spans = self._spans(gold.tree), self._spans(predicted)
                counts = len(golden & spans), len(spans), len(golden)
                self._count_labels(gold.tree, spans)
            else:
                golden_brackets, predicted_brackets = self._brackets(gold.tree), self._brackets(predicted)
                both = Counter(golden_brackets) & Counter(predicted_brackets)
                counts = sum(both.values()), len(predicted_brackets), len(golden_brackets)
                crossing = _count_crossing(golden_brackets, predicted_brackets)
                self._count_tags(gold.tree, predicted)
        if not counts[2] and self.rules.without_spans == "skipped":
            return
        self.counts.append(counts)
        self.crossing.append(crossing)
        self.lengths.append(gold.length)
        self.numbers.append(number)

    def _spans(self, tree: ConstituencyTree) -> set[tuple[int, int]]:
        """The distinct spans that count."""
        whole = (0, len(tree.words))
        spans = tree.wide_spans
        # Trees without labels have no unary phrases: apparent ones come from punctuation that was split off.
        unary = tree.has_labels and [span[:2] for span in tree.spans].count(whole) > 1
        if self.rules.whole_sentence == "excluded" or (self.rules.whole_sentence == "outermost excluded" and not unary):
            spans.discard(whole)
        return spans

    def _brackets(self, tree: ConstituencyTree) -> list[Span]:
        """The brackets that count, with their labels if those are compared."""
        rules, whole = self.rules, (0, len(tree.words))
        brackets = []
        for start, stop, full_label in tree.spans:
            label = rules.equal_labels.get(base_label(full_label), base_label(full_label))
            if label not in rules.deleted_labels:
                brackets.append((start, stop, label if rules.labels == "compared" else ""))
        if rules.whole_sentence == "excluded":
            return [bracket for bracket in brackets if bracket[:2] != whole]
        if rules.whole_sentence == "outermost excluded" and brackets and brackets[0][:2] == whole:
            return brackets[1:]
        return brackets

    def _count_labels(self, gold: ConstituencyTree, predicted: set[tuple[int, int]]) -> None:
        predicted = predicted | {(0, len(gold.words))}
        for label, start, stop in {(base_label(label), a, b) for a, b, label in gold.spans if b - a > 1}:
            self._count_label(label, (start, stop) in predicted)

    def _count_label(self, label: str, hit: bool) -> None:
        self.hits[label][0] += hit
        self.hits[label][1] += 1

    def _count_tags(self, gold: ConstituencyTree, predicted: ConstituencyTree) -> None:
        tags = predicted.word_tags
        if tags is not None and self.rules.labels == "compared":
            equal = self.rules.equal_labels
            self.n_tags += len(tags)
            self.tags_right += sum(
                tag is not None and equal.get(tag, tag) == equal.get(other, other)
                for tag, other in zip(gold.tags, tags, strict=True)
            )

    def score(self, errors: Iterable[str]) -> F1Score:
        counts = np.array(self.counts, dtype=np.int64)
        by_count = sorted(self.hits, key=lambda label: -self.hits[label][1])
        return F1Score(
            self.rules,
            *summarize(counts, self.rules),
            counts=counts,
            lengths=np.array(self.lengths),
            numbers=np.array(self.numbers),
            label_recall={label: 100 * self.hits[label][0] / self.hits[label][1] for label in by_count},
            label_counts={label: self.hits[label][1] for label in by_count},
            crossing=np.array(self.crossing),
            tags_right=self.tags_right,
            n_tags=self.n_tags,
            errors=tuple(errors),
        )


def _count_crossing(gold: Sequence[Span], predicted: Sequence[Span]) -> int:
    """Count predicted brackets that cross a gold one: they share words, and neither contains the other."""
    if not gold or not predicted:
        return 0
    start, stop = np.array([bracket[:2] for bracket in gold]).T
    begin, end = np.array([bracket[:2] for bracket in predicted]).T[..., None]
    crosses = (start < begin) & (begin < stop) & (stop < end) | (begin < start) & (start < end) & (end < stop)
    return int(crosses.any(axis=1).sum())
