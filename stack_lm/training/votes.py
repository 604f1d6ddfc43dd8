"""Trees of several parsers, or annotators, as votes for the spans of each sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..parsing.baselines import PRIORS
from ..parsing.ensemble import count_votes, find_outliers, mean_agreement, mutual_f1
from ..parsing.treebank import read_predictions
from ..parsing.trees import ConstituencyTree
from ..scoring.spans import tree_of_spans

_PLACES = 2**20  # more than a sentence has
COMPARED = 1000  # sentences whose trees show which voters are outliers: comparing all pairs of trees takes long


class VotedSentence(NamedTuple):
    """A sentence and the votes for its spans.

    Attributes:
        words: n of them, three or more.
        spans: those with a vote, [V, 2].
        shares: the share of votes of each, in [0, 1], [V].
    """

    words: tuple[str, ...]
    spans: np.ndarray
    shares: np.ndarray

    def matrix(self, size: int) -> np.ndarray:
        """The shares by start and stop [size, size]."""
        shares = np.zeros((size, size), np.float32)
        shares[self.spans[:, 0], self.spans[:, 1]] = self.shares
        return shares

    def tree(self) -> ConstituencyTree:
        """The tree elected by the votes, as a parser's tree by its probabilities (`tree_of_spans`)."""
        return tree_of_spans(self.words, self.matrix(len(self.words) + 1))


class _Voter:
    """The spans of a file's trees; the trees themselves would take gigabytes.

    Args:
        trees: of S sentences.

    Attributes:
        compared: the first trees that can differ.
    """

    def __init__(self, trees: Sequence[ConstituencyTree]) -> None:
        each = [_spans(tree) for tree in trees]
        self.compared = [tree for tree in trees if len(tree) > 2][:COMPARED]
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
        outlier_share: see `stack_lm.parsing.ensemble.find_outliers`; outliers have no vote. The first 1,000 sentences
            decide.
        prior_votes: the number of votes that the prior has.

    Returns:
        The sentences of three words or more; shorter ones have only one tree. And a line about each outlier.

    Raises:
        InputError: for files that cannot be read, or have different sentences.
    """
    words, voters = _read(files)
    notes: list[str] = []
    if len(voters) > 2 and voters[0].compared:
        agreement = mean_agreement(mutual_f1([voter.compared for voter in voters]))
        outliers = find_outliers(agreement, outlier_share)
        for file, f1, out in zip(files, agreement, outliers, strict=True):
            if out:
                below = f"is below {outlier_share:g} of the median, {np.median(agreement):.1f}"
                notes.append(f"{file} has no vote: its mean F1 with the others, {f1:.1f}, {below} (data.outlier_share)")
        voters = [voter for voter, out in zip(voters, outliers, strict=True) if not out]
    sentences = []
    for number, of_sentence in enumerate(words):
        if len(of_sentence) > 2:
            votes = [voter[number] for voter in voters]
            if prior is not None:
                votes += [np.array([*_spans(PRIORS[prior](of_sentence))])] * prior_votes
            spans, counts = np.unique(np.concatenate(votes), return_counts=True)
            shares = (counts / len(votes)).astype(np.float32)
            sentences.append(VotedSentence(of_sentence, np.stack(np.divmod(spans, _PLACES), axis=1), shares))
    return sentences, notes


def _read(files: Sequence[str]) -> tuple[list[tuple[str, ...]], list[_Voter]]:
    """The words of the sentences, and the voters."""
    words: list[tuple[str, ...]] = []
    voters: list[_Voter] = []
    for file in files:
        trees = [tree for tree in read_predictions(file) if tree is not None]  # all of them, because errors are raised
        own = [tree.words for tree in trees]
        if not voters:
            words = own
        elif len(own) != len(words):
            raise InputError(f"{files[0]} has {len(words):,} trees, but {file} has {len(own):,}")
        elif own != words:
            other = next(i for i, pair in enumerate(zip(own, words, strict=True), start=1) if pair[0] != pair[1])
            raise InputError(f"{files[0]} and {file} have different words in tree {other:,}")
        voters.append(_Voter(trees))
    return words, voters


def _spans(tree: ConstituencyTree) -> set[int]:
    """The spans that a tree votes for, each as one number: its start times _PLACES, plus its stop."""
    return {start * _PLACES + stop for start, stop in count_votes([tree])}
