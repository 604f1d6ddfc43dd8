"""The layout of a tree, the basis of every drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .trees import ConstituencyTree


class PlacedPhrase(NamedTuple):
    """A phrase in a drawing.

    Attributes:
        middle: its position along the words: halfway between its first child and its last.
        level: its height above the words, which are at 0: one more than that of its highest child.
        children: the position and the level of each child.
    """

    middle: float
    level: int
    children: list[tuple[float, int]]


def place_phrases(tree: ConstituencyTree, positions: Sequence[float]) -> list[PlacedPhrase]:
    """Lay a tree out above its words.

    Args:
        tree: a tree of n words.
        positions: the positions of the words along a line [n], in any unit.

    Returns:
        A place for each phrase, in the order of `tree.spans`.
    """
    placed: dict[int, PlacedPhrase] = {}
    for number, children in reversed(list(enumerate(tree.children()))):  # from the inside out
        places = [
            (float(positions[child.start]), 0) if child.phrase is None else placed[child.phrase][:2]
            for child in children
        ]
        level = 1 + max(level for _, level in places)
        placed[number] = PlacedPhrase((places[0][0] + places[-1][0]) / 2, level, places)
    return [placed[number] for number in range(len(tree.spans))]
