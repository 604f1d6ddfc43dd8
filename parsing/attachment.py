"""Attachment errors of parses, as defined in section 5.2 of Merrill et al. (2019).

A constituent attaches to its parent, the smallest phrase around it. A parse attaches it higher than the gold tree if
the parent in the parse starts further left, and lower if it starts further right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stack_lm.core.errors import InputError

from .trees import ConstituencyTree, base_label

FINAL_STOP = "final stop"
_PARENTS = {"NP": "PP in NP", "VP": "PP in VP"}
KINDS = (FINAL_STOP, *_PARENTS.values())


@dataclass
class Attachments:
    """Counts of constituents of a kind.

    Attributes:
        gold: number in the gold trees.
        found: of these, those also in the parses, anywhere below the whole sentence.
        higher, same, lower: where the parses attach those found.
    """

    gold: int = 0
    found: int = 0
    higher: int = 0
    same: int = 0
    lower: int = 0


def _parents(tree: ConstituencyTree) -> dict[tuple[int, int], tuple[int, str]]:
    """The start and the label of the parent of each word, and of each phrase but the root."""
    return {
        (child.start, child.stop): (start, base_label(label))
        for (start, _, label), children in zip(tree.spans, tree.children(), strict=True)
        for child in children
    }


def compare_attachments(gold: Sequence[ConstituencyTree], parses: Sequence[ConstituencyTree]) -> dict[str, Attachments]:
    """Compare where parses and gold trees attach the final stop and prepositional phrases of two words or more.

    Args:
        gold: trees with tags and labels, as annotated.
        parses: parses of the same sentences.

    Returns:
        The counts of each of `KINDS`: the last word, if its tag is "."; PPs whose parent is an NP; PPs in a VP.

    Raises:
        InputError: if the numbers of trees differ, or the words.
    """
    if len(gold) != len(parses):
        raise InputError(f"there are {len(parses)} parses for {len(gold)} gold trees")
    counts = {kind: Attachments() for kind in KINDS}
    for gold_tree, parse in zip(gold, parses, strict=True):
        if gold_tree.words != parse.words:
            raise InputError(f"{gold_tree.origin}: the parse has other words")
        collapsed = gold_tree.collapse_unaries()
        above, parsed = _parents(collapsed), _parents(parse.collapse_unaries())
        last = (len(gold_tree) - 1, len(gold_tree))
        constituents = {last: FINAL_STOP} if gold_tree.tags[-1] == "." and last in above else {}
        for start, stop, label in collapsed.spans:
            kind = _PARENTS.get(above.get((start, stop), (0, ""))[1])
            if kind is not None and base_label(label) == "PP":
                constituents[start, stop] = kind
        for span, kind in constituents.items():
            count = counts[kind]
            count.gold += 1
            if span in parsed:
                parsed_start, gold_start = parsed[span][0], above[span][0]
                count.found += 1
                count.higher += parsed_start < gold_start
                count.same += parsed_start == gold_start
                count.lower += parsed_start > gold_start
    return counts
