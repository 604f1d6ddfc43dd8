"""Baseline trees, made without a model."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

from stack_lm.core.errors import InputError

from .distances import DEFAULT_DECODER, spans_by_splitting, tree_from_distances
from .trees import ConstituencyTree

LONGEST_UNIFORM = 1000  # words


def _split(words: Sequence[str], split: Callable[[int, int], int]) -> ConstituencyTree:
    return ConstituencyTree.unlabelled(words, spans_by_splitting(len(words), split))


def left_branching(words: Sequence[str]) -> ConstituencyTree:
    """(((x_1 x_2) x_3) ...)."""
    return _split(words, lambda start, stop: stop - 1)


def right_branching(words: Sequence[str]) -> ConstituencyTree:
    """(x_1 (x_2 (x_3 ...)))."""
    return _split(words, lambda start, stop: start + 1)


def balanced(words: Sequence[str]) -> ConstituencyTree:
    """Halves of halves; with an odd number of words, the left half is smaller."""
    return _split(words, lambda start, stop: (start + stop) // 2)


def balanced_left(words: Sequence[str]) -> ConstituencyTree:
    """Halves of halves; with an odd number of words, the left half is larger."""
    return _split(words, lambda start, stop: (start + stop + 1) // 2)


def _power_of_two_below(n: int) -> int:
    return 1 << (n - 1).bit_length() - 1


def balanced_right_full(words: Sequence[str]) -> ConstituencyTree:
    """The right part of a phrase of n words has the largest power of two below n words (Htut et al. 2018)."""
    return _split(words, lambda start, stop: stop - _power_of_two_below(stop - start))


def balanced_left_full(words: Sequence[str]) -> ConstituencyTree:
    """The left part of a phrase of n words has the largest power of two below n words."""
    return _split(words, lambda start, stop: start + _power_of_two_below(stop - start))


def random_distances(words: Sequence[str], rng: random.Random, decoder: str = DEFAULT_DECODER) -> ConstituencyTree:
    """The tree that a decoder makes from random distances."""
    return tree_from_distances(words, [rng.random() for _ in words], decoder)


def random_merges(words: Sequence[str], rng: random.Random) -> ConstituencyTree:
    """Merge two random neighbours until one tree is left (Htut et al. 2018)."""
    bounds = list(range(len(words) + 1))
    spans = []
    while len(bounds) > 2:
        i = rng.randrange(len(bounds) - 2)
        spans.append((bounds[i], bounds[i + 2]))
        del bounds[i + 1]
    return ConstituencyTree.unlabelled(words, spans)


def random_splits(words: Sequence[str], rng: random.Random) -> ConstituencyTree:
    """Split each phrase at a random position."""
    return _split(words, lambda start, stop: rng.randrange(start + 1, stop))


def count_binary_trees(n: int) -> int:
    """Return the number of binary trees over n words, a Catalan number."""
    return math.comb(2 * n - 2, n - 1) // n


@lru_cache(maxsize=1024)
def _trees_by_split(n: int) -> list[int]:
    """Return the cumulative numbers of binary trees over n words by the position of their first split."""
    return list(accumulate(count_binary_trees(k) * count_binary_trees(n - k) for k in range(1, n)))


def random_uniform(words: Sequence[str], rng: random.Random) -> ConstituencyTree:
    """One of all binary trees, all equally likely.

    Raises:
        InputError: for more than 1,000 words, which have too many trees to count.
    """
    if len(words) > LONGEST_UNIFORM:
        raise InputError(
            f"a sentence must have at most {LONGEST_UNIFORM:,} words to be given a random tree; got {len(words):,}"
        )

    def split(start: int, stop: int) -> int:
        counts = _trees_by_split(stop - start)
        return start + 1 + bisect_right(counts, rng.randrange(counts[-1]))

    return _split(words, split)


def random_transitions(words: Sequence[str], rng: random.Random) -> ConstituencyTree:
    """A shift-reduce parser that tosses a fair coin for each choice (Kim et al. 2019)."""
    starts: list[int] = []
    spans = []
    place = 0
    while place < len(words) or len(starts) > 1:
        may_reduce, may_shift = len(starts) > 1, place < len(words)
        if may_shift and not (may_reduce and rng.random() < 0.5):
            starts.append(place)
            place += 1
        else:
            starts.pop()
            spans.append((starts[-1], place))
    return ConstituencyTree.unlabelled(words, spans)


# Baselines that always make the same tree, and those that draw one.
FIXED_BASELINES: dict[str, Callable[[Sequence[str]], ConstituencyTree]] = {
    "left": left_branching,
    "right": right_branching,
    "balanced": balanced,
    "balanced, left larger": balanced_left,
    "balanced, right full": balanced_right_full,
    "balanced, left full": balanced_left_full,
}
# Baselines that may vote, beside the trees of parsers.
PRIORS: dict[str, Callable[[Sequence[str]], ConstituencyTree]] = {"right-branching": right_branching}
RANDOM_BASELINES: dict[str, Callable[[Sequence[str], random.Random], ConstituencyTree]] = {
    "random distances": random_distances,
    "random merges": random_merges,
    "random splits": random_splits,
    "random, uniform": random_uniform,
    "random transitions": random_transitions,
}
