"""Baseline trees, made without a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from .distances import DEFAULT_DECODER, spans_by_splitting, tree_from_distances
from .trees import ConstituencyTree


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


# Baselines that always make the same tree, and those that draw one.
FIXED_BASELINES: dict[str, Callable[[Sequence[str]], ConstituencyTree]] = {
    "left": left_branching,
    "right": right_branching,
    "balanced": balanced,
}
# Baselines that may vote, beside the trees of parsers.
PRIORS: dict[str, Callable[[Sequence[str]], ConstituencyTree]] = {"right-branching": right_branching}
RANDOM_BASELINES: dict[str, Callable[[Sequence[str], random.Random], ConstituencyTree]] = {
    "random distances": random_distances,
    "random merges": random_merges,
}
