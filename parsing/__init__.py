"""From push strengths to trees, and from trees to F1."""

from .baselines import balanced, left_branching, random_distances, random_merges, right_branching
from .distances import DECODERS, distances_from_trace, tree_from_distances
from .f1 import CONVENTIONS, Convention, F1Score, score_trees
from .treebank import read_treebank

__all__ = [
    "CONVENTIONS",
    "DECODERS",
    "Convention",
    "F1Score",
    "balanced",
    "distances_from_trace",
    "left_branching",
    "random_distances",
    "random_merges",
    "read_treebank",
    "right_branching",
    "score_trees",
    "tree_from_distances",
]
