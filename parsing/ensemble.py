"""One tree from the trees of several runs.

F1 of a single unsupervised run depends on its seed. Several runs vote for spans, and the binary tree with the most
votes is the minimum-risk tree under span recall. Nothing here sees a gold tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stack_lm.core.errors import InputError
from stack_lm.core.messages import shortened

from .conventions import PUNCTUATION_TOKENS
from .distances import spans_by_splitting
from .trees import ConstituencyTree

OUTLIER_SHARE = 0.85
LONGEST = 2000  # words: the votes of a sentence take memory quadratic in its length, and cubic time


@dataclass(frozen=True, eq=False)
class Ensemble:
    """The trees for which several runs vote.

    Attributes:
        trees: one for each sentence, binary, over the sentence's words.
        mutual_f1: F1 of each run's trees against those of each other run, in percent [R, R]; the diagonal is 100.
        agreement: mean F1 of each run with the others, in percent [R].
        voted: whether each run voted [R]; the others are outliers.
    """

    trees: tuple[ConstituencyTree, ...]
    mutual_f1: np.ndarray
    agreement: np.ndarray
    voted: np.ndarray


def count_votes(trees: Sequence[ConstituencyTree], weights: Sequence[int] | None = None) -> Counter[tuple[int, int]]:
    """The number of trees that have each span of two words or more.

    Args:
        trees: any number.
        weights: the number of votes of each tree; None for one each.
    """
    votes: Counter[tuple[int, int]] = Counter()
    for tree, weight in zip(trees, weights or [1] * len(trees), strict=True):
        for span in tree.wide_spans:
            votes[span] += weight
    return votes


def vote_tree(words: Sequence[str], votes: Mapping[tuple[int, int], float]) -> ConstituencyTree:
    """The binary tree whose spans have the most votes, by dynamic programming.

    S(i, j) = votes(i, j) + max_k [S(i, k) + S(k, j)]. Among splits with equal votes the one nearest to the middle is
    taken, and of two such the left one: a tie must not favour left or right branching.

    Args:
        words: n of them, at least one.
        votes: the votes of spans [start, stop); a span without any counts 0.

    Raises:
        InputError: for more than 2,000 words.
    """
    n = len(words)
    if n > LONGEST:
        raise InputError(f"a sentence must have at most {LONGEST:,} words to be voted on; got {n:,}")
    # best[i, l] is S(i, i + l) and ending[j, l] is S(j - l, j), so the sums for a width are slices of both.
    best, ending = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
    splits = np.zeros((n + 1, n + 1), dtype=np.int64)
    by_width: dict[int, list[tuple[int, float]]] = {}
    for (start, stop), number in votes.items():
        by_width.setdefault(stop - start, []).append((start, number))
    for width in range(2, n + 1):
        starts = n - width + 1
        sums = best[:starts, 1:width] + ending[width:, width - 1 : 0 : -1]
        order = sorted(range(width - 1), key=lambda k: (abs(2 * (k + 1) - width), k))
        chosen = np.asarray(order)[sums[:, order].argmax(axis=1)]
        splits[:starts, width] = chosen + 1
        total = sums[np.arange(starts), chosen]
        for start, number in by_width.get(width, ()):
            total[start] += number
        best[:starts, width] = total
        ending[width:, width] = total
    return ConstituencyTree.unlabelled(
        words, spans_by_splitting(n, lambda start, stop: start + int(splits[start, stop - start]))
    )


def are_words(words: Sequence[str]) -> list[bool]:
    """True for each word of a sentence that is no punctuation token."""
    return [word not in PUNCTUATION_TOKENS for word in words]


def without_punctuation(tree: ConstituencyTree) -> ConstituencyTree:
    """The tree without punctuation tokens; the whole tree, if it has no others."""
    words = are_words(tree.words)
    return tree.keep(words) if any(words) else tree


def elect_tree(
    words: Sequence[str], votes: Mapping[tuple[int, int], float], word_votes: Mapping[tuple[int, int], float]
) -> ConstituencyTree:
    """The binary tree with the most votes, elected by the words without punctuation.

    Whether a phrase includes the punctuation at its ends matters little, but divides its votes. So the tree of the
    words alone is elected first, and then, of the trees of the whole sentence that agree with it, the one with the most
    votes. Both by `vote_tree`.

    Args:
        words: n of them.
        votes: the votes of spans [start, stop), none of them negative.
        word_votes: the votes of spans of the words alone, without punctuation between them.

    Raises:
        InputError: as `vote_tree`.
    """
    counts = are_words(words)
    number = sum(counts)
    if not 2 < number < len(words):
        return vote_tree(words, votes)
    alone = vote_tree([word for word, is_word in zip(words, counts, strict=True) if is_word], word_votes)
    elected = np.eye(number + 1, dtype=bool) | np.eye(number + 1, k=1, dtype=bool)
    for start, stop, _ in alone.spans:
        elected[start, stop] = True
    before = np.cumsum([0, *counts])  # words before each place
    starts, stops = (places.tolist() for places in np.nonzero(np.triu(elected[before][:, before], k=2)))
    more = len(words) * max(votes.values(), default=1) + 1  # than all votes for the spans of a tree together
    raised = {span: votes.get(span, 0) + more for span in zip(starts, stops, strict=True)}
    return vote_tree(words, {**votes, **raised})


def vote_by_words(trees: Sequence[ConstituencyTree], weights: Sequence[int] | None = None) -> ConstituencyTree:
    """The tree of one sentence that some trees elect, by `elect_tree`; they may have punctuation.

    Args:
        trees: at least one, over the same words.
        weights: see `count_votes`.
    """
    word_votes = count_votes(list(map(without_punctuation, trees)), weights)
    return elect_tree(trees[0].words, count_votes(trees, weights), word_votes)


def best_existing_tree(
    words: Sequence[str], trees: Sequence[ConstituencyTree], votes: Mapping[tuple[int, int], float]
) -> ConstituencyTree:
    """Return the run's tree whose spans have the most votes; the first run's if several are equal."""
    chosen = max(trees, key=lambda tree: sum(votes.get(span, 0) for span in tree.wide_spans))
    return ConstituencyTree.unlabelled(words, chosen.wide_spans)


def mutual_f1(runs: Sequence[Sequence[ConstituencyTree]]) -> np.ndarray:
    """F1 of each run's trees against those of each other run, in percent [R, R].

    This is the mean F1 of spans, the whole sentence excluded, over sentences of three words or more. Trees of fewer
    words cannot differ: without longer sentences all runs agree.
    """
    spans = [[tree.wide_spans - {(0, len(tree))} for tree in run if len(tree) > 2] for run in runs]
    result = np.full((len(runs), len(runs)), 100.0)
    if not spans[0]:
        return result
    for i, run in enumerate(spans):
        for j, other in enumerate(spans[:i]):
            scores = [2 * len(a & b) / (len(a) + len(b)) if a or b else 1.0 for a, b in zip(run, other, strict=True)]
            result[i, j] = result[j, i] = 100 * float(np.mean(scores))
    return result


def mean_agreement(mutual: np.ndarray) -> np.ndarray:
    """Mean F1 of each run with the others, in percent [R], from `mutual_f1` [R, R]."""
    agreement: np.ndarray = (mutual.sum(axis=1) - 100) / (len(mutual) - 1)
    return agreement


def find_outliers(agreement: np.ndarray, share: float = OUTLIER_SHARE) -> np.ndarray:
    """Runs whose trees are far from those of all others, usually because they failed [R], bool.

    A run is an outlier if its agreement is below `share` of the median. At least half of the runs, and two, stay.

    Args:
        agreement: mean F1 of each run with the others [R].
        share: a number in [0, 1]; 0 keeps all runs.
    """
    low = agreement < share * np.median(agreement)
    most = min(len(agreement) // 2, max(0, len(agreement) - 2))
    worst = np.argsort(agreement, kind="stable")[:most]
    outliers = np.zeros(len(agreement), dtype=bool)
    outliers[worst] = low[worst]
    return outliers


def combine_runs(
    runs: Sequence[Sequence[ConstituencyTree]],
    *,
    names: Sequence[str] | None = None,
    outlier_share: float = OUTLIER_SHARE,
    prior: Callable[[Sequence[str]], ConstituencyTree] | None = None,
    prior_votes: int = 1,
    existing: bool = False,
    pool_punctuation: bool = False,
) -> Ensemble:
    """One tree for each sentence from the trees of several runs, by `vote_tree`.

    Args:
        runs: R of them, two or more, each with the trees of the same sentences in the same order.
        names: the names of the runs, for messages.
        outlier_share: see `find_outliers`.
        prior: one more voter, such as `stack_lm.parsing.right_branching`. It is knowledge about a language: report
            scores with it separately.
        prior_votes: the number of its votes.
        existing: choose the best of the runs' own trees instead of a new one.
        pool_punctuation: elect the tree by the words without punctuation, see `vote_by_words`, and compare the runs by
            them; for trees that have it.

    Raises:
        InputError: for fewer than two runs, runs over different sentences, or no sentences.
    """
    labels = list(names) if names is not None else [f"run {i + 1}" for i in range(len(runs))]
    _check_runs(runs, labels)
    mutual = mutual_f1([list(map(without_punctuation, run)) for run in runs] if pool_punctuation else runs)
    agreement = mean_agreement(mutual)
    voted = ~find_outliers(agreement, outlier_share)
    voters = [run for run, votes in zip(runs, voted, strict=True) if votes]
    trees = []
    for candidates in zip(*voters, strict=True):
        words = candidates[0].words
        weights = [1] * len(candidates)
        if prior is not None:
            candidates, weights = (*candidates, prior(words)), [*weights, prior_votes]
        if existing:
            trees.append(best_existing_tree(words, candidates[: len(voters)], count_votes(candidates, weights)))
        elif pool_punctuation:
            trees.append(vote_by_words(candidates, weights))
        else:
            trees.append(vote_tree(words, count_votes(candidates, weights)))
    return Ensemble(tuple(trees), mutual, agreement, voted)


def _check_runs(runs: Sequence[Sequence[ConstituencyTree]], names: Sequence[str]) -> None:
    if len(runs) < 2:
        raise InputError(f"an ensemble needs the trees of two runs or more; got {len(runs)}")
    if not len(runs[0]):
        raise InputError(f"{names[0]} has no trees")
    for name, run in zip(names[1:], runs[1:], strict=True):
        if len(run) != len(runs[0]):
            raise InputError(f"{name} has {len(run)} trees, but {names[0]} has {len(runs[0])}")
        for number, (tree, first) in enumerate(zip(run, runs[0], strict=True), start=1):
            if [word.casefold() for word in tree.words] != [word.casefold() for word in first.words]:
                raise InputError(
                    f"tree {number} of {name} has other words than that of {names[0]}: "
                    f"{shortened(' '.join(tree.words), 40)!r}, {shortened(' '.join(first.words), 40)!r}"
                )
