"""Trees of several parsers, or annotators, as votes for the spans of each sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.errors import InputError, NoTree
from ..parsing.baselines import PRIORS
from ..parsing.ensemble import are_words, count_votes, elect_tree, find_outliers, mean_agreement, mutual_f1
from ..parsing.treebank import read_predictions
from ..parsing.trees import ConstituencyTree
from ..text.escapes import escape_words

_PLACES = 2**20  # more than a sentence has
# Sentences whose trees show which voters are outliers, because comparing all pairs of trees takes long; and the first
# sentences, among which they are.
COMPARED, _SEARCHED = 1000, 2000


class Votes(NamedTuple):
    """Spans and their votes.

    Attributes:
        spans: those with a vote, [V, 2].
        counts: the votes of each, [V].
    """

    spans: np.ndarray
    counts: np.ndarray

    @classmethod
    def tally(cls, ballots: Sequence[np.ndarray], weights: Sequence[int]) -> Votes:
        """Add up ballots: the different spans of a tree, as `_spans` has them, and the number of their votes."""
        spans, places = np.unique(np.concatenate(ballots), return_inverse=True)
        counts = np.zeros(len(spans), np.int64)
        np.add.at(counts, places, np.repeat(weights, [len(ballot) for ballot in ballots]))
        return cls(np.stack(np.divmod(spans, _PLACES), axis=1), counts)

    def by_span(self) -> dict[tuple[int, int], int]:
        starts, stops = self.spans.T.tolist()
        return dict(zip(zip(starts, stops, strict=True), self.counts.tolist(), strict=True))


class VotedSentence(NamedTuple):
    """A sentence and the votes for its spans.

    Attributes:
        words: n of them, three or more.
        votes: the votes of each span that has any.
        word_votes: those of spans of the words alone, without punctuation between them: a tree has one for each span,
            however many of its own spans differ only in punctuation.
        total: the votes that a span can have.
    """

    words: tuple[str, ...]
    votes: Votes
    word_votes: Votes
    total: int

    def matrix(self, size: int) -> np.ndarray:
        """The share of the votes, in [0, 1], by start and stop [size, size]."""
        shares = np.zeros((size, size), np.float32)
        shares[tuple(self.votes.spans.T)] = self.votes.counts / self.total
        return shares

    def tree(self) -> ConstituencyTree:
        """The tree elected by the votes, as by `stack_lm.parsing.ensemble.vote_by_words`."""
        return elect_tree(self.words, self.votes.by_span(), self.word_votes.by_span())


class _Voter:
    """The spans of a file's trees; the trees themselves would take gigabytes.

    Args:
        trees: of S sentences, None for those without.

    Attributes:
        has_tree: whether each sentence has a tree [S], bool.
        first: the first trees.
    """

    def __init__(self, trees: Sequence[ConstituencyTree | None]) -> None:
        each = [() if tree is None else _spans(tree) for tree in trees]
        self.has_tree = np.array([tree is not None for tree in trees], bool)
        self.first = trees[:_SEARCHED]
        self._spans = np.array([span for spans in each for span in spans], np.int64)
        self._stops = np.cumsum([0, *map(len, each)])

    def __getitem__(self, sentence: int) -> np.ndarray:
        """The spans of a sentence's tree, as `_spans` has them."""
        return self._spans[self._stops[sentence] : self._stops[sentence + 1]]


def read_votes(
    files: Sequence[str], prior: str | None = None, outlier_share: float = 0.0, prior_votes: int = 1
) -> tuple[list[VotedSentence], list[str]]:
    """Read the trees of several parsers, or annotators, as votes for spans.

    Args:
        files: files of trees of the same sentences in the same order, a file for each voter; see
            `stack_lm.parsing.treebank.read_predictions`.
        prior: trees that also vote, "right-branching"; None for none.
        outlier_share: see `stack_lm.parsing.ensemble.find_outliers`; outliers have no vote. The first sentences, up to
            1,000, decide by all their tokens.
        prior_votes: the number of votes that the prior has.

    Returns:
        The sentences of three words or more for which each file has a tree; shorter ones have only one tree. And lines
        about outliers and sentences left out.

    Raises:
        InputError: for files that cannot be read, or have different sentences.
    """
    words, voters = _read(files)
    notes: list[str] = []
    first = zip(*(voter.first for voter in voters), strict=False)  # trees of one or two words cannot differ
    compared = [trees for trees in first if all(tree is not None and len(tree) > 2 for tree in trees)]
    if len(voters) > 2 and compared:
        agreement = mean_agreement(mutual_f1(list(zip(*compared[:COMPARED], strict=True))))
        outliers = find_outliers(agreement, outlier_share)
        for file, f1, out in zip(files, agreement, outliers, strict=True):
            if out:
                below = f"is below {outlier_share:g} of the median, {np.median(agreement):.1f}"
                notes.append(f"{file} has no vote: its mean F1 with the others, {f1:.1f}, {below} (data.outlier_share)")
        voting = np.flatnonzero(~outliers).tolist()
        files, voters = [files[i] for i in voting], [voters[i] for i in voting]
    complete = np.all([voter.has_tree[: len(words)] for voter in voters], axis=0)
    if not complete.all():
        missing = int(complete.argmin())
        file = next(file for file, voter in zip(files, voters, strict=True) if not voter.has_tree[missing])
        left_out = f"{int((~complete).sum()):,} of {len(words):,} sentences are left out"
        notes.append(f"{left_out} because a file has no tree for them, such as {file} for sentence {missing + 1:,}")
    sentences = []
    for number, sentence_words in enumerate(words):
        if complete[number] and sentence_words is not None and len(sentence_words) > 2:
            ballots = [voter[number] for voter in voters]
            weights = [1] * len(ballots)
            if prior is not None:
                ballots.append(np.array([*_spans(PRIORS[prior](sentence_words))]))
                weights.append(prior_votes)
            before = np.cumsum([0, *are_words(sentence_words)])  # words before each place
            votes = Votes.tally(ballots, weights)
            word_votes = Votes.tally([_between_words(ballot, before) for ballot in ballots], weights)
            sentences.append(VotedSentence(sentence_words, votes, word_votes, sum(weights)))
    return sentences, notes


def _read(files: Sequence[str]) -> tuple[list[tuple[str, ...] | None], list[_Voter]]:
    """The words of the sentences, None for those without a tree in any file, and the voters."""
    words: list[tuple[str, ...] | None] = []
    voters: list[_Voter] = []
    for file in files:
        # With every empty line at the end, because another file may have a tree there.
        trees = read_predictions(file, sentences=sys.maxsize, on_error=_unless_missing)
        # Files of brackets have them escaped, and JSON lines need not.
        own = [None if tree is None else escape_words(tree.words) for tree in trees]
        for number, (one, other) in enumerate(zip(own, words, strict=False), start=1):
            if one is not None and other is not None and one != other:
                raise InputError(f"{files[0]} and {file} have different words in tree {number:,}")
        n = min(len(words), len(own))
        words = [a or b for a, b in zip(words, own, strict=False)] + words[n:] + own[n:]
        voters.append(_Voter(trees))
    while words and words[-1] is None:
        words.pop()
    for file, voter in zip(files, voters, strict=True):
        if len(voter.has_tree) < len(words):
            whole = next(file for file, voter in zip(files, voters, strict=True) if len(voter.has_tree) >= len(words))
            raise InputError(f"{whole} has {len(words):,} trees, but {file} has {len(voter.has_tree):,}")
    return words, voters


def _unless_missing(error: InputError) -> None:
    """Raise the error of a line, unless the line is empty because its sentence has no tree.

    Raises:
        InputError: the error.
    """
    if not isinstance(error, NoTree):
        raise error


def _spans(tree: ConstituencyTree) -> set[int]:
    """The spans that a tree votes for, each as one number: its start times _PLACES, plus its stop."""
    return {start * _PLACES + stop for start, stop in count_votes([tree])}


def _between_words(spans: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Spans, as `_spans` has them, of the words alone: those of two words or more, each once."""
    starts, stops = (before[places] for places in np.divmod(spans, _PLACES))
    return np.unique((starts * _PLACES + stops)[stops - starts > 1])
