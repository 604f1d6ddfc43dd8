"""From push strengths to trees, and from trees to F1."""

from .attachment import Attachments, compare_attachments
from .baselines import balanced, left_branching, random_distances, random_merges, right_branching
from .conventions import CONVENTIONS, Convention, get_convention, register_convention
from .distances import DECODERS, distances_from_trace, tree_from_distances
from .ensemble import Ensemble, combine_runs, vote_tree
from .evalb import read_parameters
from .export import write_trees
from .f1 import F1Score, GoldTree, prepare_gold, score_trees
from .significance import F1Comparison, compare_f1
from .treebank import read_every_tree, read_predictions, read_treebank
from .trees import ConstituencyTree, Span

__all__ = [
    "CONVENTIONS",
    "DECODERS",
    "Attachments",
    "ConstituencyTree",
    "Convention",
    "Ensemble",
    "F1Comparison",
    "F1Score",
    "GoldTree",
    "Span",
    "balanced",
    "combine_runs",
    "compare_attachments",
    "compare_f1",
    "distances_from_trace",
    "get_convention",
    "left_branching",
    "prepare_gold",
    "random_distances",
    "random_merges",
    "read_every_tree",
    "read_parameters",
    "read_predictions",
    "read_treebank",
    "register_convention",
    "right_branching",
    "score_trees",
    "tree_from_distances",
    "vote_tree",
    "write_trees",
]
