"""Trees that need no model: what a score must be compared with."""

from __future__ import annotations

import random
from collections.abc import Sequence

from nltk.tree import Tree

from .distances import LABEL, tree_from_distances


def left_branching(words: Sequence[str]) -> Tree:
    """(((x_1 x_2) x_3) ...)."""
    tree = Tree(LABEL, list(words[:2]))
    for word in words[2:]:
        tree = Tree(LABEL, [tree, word])
    return tree


def right_branching(words: Sequence[str]) -> Tree:
    """(x_1 (x_2 (x_3 ...)))."""
    tree = Tree(LABEL, list(words[-2:]))
    for word in reversed(words[:-2]):
        tree = Tree(LABEL, [word, tree])
    return tree


def balanced(words: Sequence[str]) -> Tree:
    """Halves of halves; of an odd number of words the left half is the smaller."""
    if len(words) <= 2:
        return Tree(LABEL, list(words))
    middle = len(words) // 2
    halves = (words[:middle], words[middle:])
    return Tree(LABEL, [half[0] if len(half) == 1 else balanced(half) for half in halves])


def random_merges(words: Sequence[str], rng: random.Random) -> Tree:
    """Merges two neighbours chosen at random until one tree is left."""
    items: list[Tree | str] = list(words)
    while len(items) > 1:
        i = rng.randrange(len(items) - 1)
        items[i : i + 2] = [Tree(LABEL, items[i : i + 2])]
    return items[0] if isinstance(items[0], Tree) else Tree(LABEL, items)


def random_distances(words: Sequence[str], rng: random.Random, decoder: str = "algorithm1") -> Tree:
    """The tree of random distances: what a decoder makes of no information at all."""
    return tree_from_distances(words, [rng.random() for _ in words], decoder)
