"""Head rules for the binarisation of trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

# Collins (1999), appendix A: for each label the direction of the search, and the children's labels by priority.
# NOTE: his further rule, which makes the first of two conjuncts the head, is left out: without it the branching
# baselines come nearest to those known for the gold trees of Htut et al. (see docs/parse_f1.md).
_HEADS: dict[str, tuple[str, str]] = {
    "ADJP": ("left", "NNS QP NN $ ADVP JJ VBN VBG ADJP JJR NP JJS DT FW RBR RBS SBAR RB"),
    "ADVP": ("right", "RB RBR RBS FW ADVP TO CD JJR JJ IN NP JJS NN"),
    "CONJP": ("right", "CC RB IN"),
    "FRAG": ("right", ""),
    "INTJ": ("left", ""),
    "LST": ("right", "LS :"),
    "NAC": ("left", "NN NNS NNP NNPS NP NAC EX $ CD QP PRP VBG JJ JJS JJR ADJP FW"),
    "PP": ("right", "IN TO VBG VBN RP FW"),
    "PRN": ("left", ""),
    "PRT": ("right", "RP"),
    "QP": ("left", "$ IN NNS NN JJ RB DT CD NCD QP JJR JJS"),
    "RRC": ("right", "VP NP ADVP ADJP PP"),
    "S": ("left", "TO IN VP S SBAR ADJP UCP NP"),
    "SBAR": ("left", "WHNP WHPP WHADVP WHADJP IN DT S SQ SINV SBAR FRAG"),
    "SBARQ": ("left", "SQ S SINV SBARQ FRAG"),
    "SINV": ("left", "VBZ VBD VBP VB MD VP S SINV ADJP NP"),
    "SQ": ("left", "VBZ VBD VBP VB MD VP SQ"),
    "UCP": ("right", ""),
    "VP": ("left", "TO VBD VBN MD VBZ VB VBG VBP VP ADJP NN NNS NP"),
    "WHADJP": ("left", "CC WRB JJ ADJP"),
    "WHADVP": ("right", "CC WRB"),
    "WHNP": ("left", "WDT WP WP$ WHADJP WHPP WHNP"),
    "WHPP": ("right", "IN TO FW"),
    "X": ("right", ""),
}
_NOMINAL = frozenset("NN NNP NNPS NNS NX POS JJR".split())


def _head_of_noun_phrase(labels: Sequence[str]) -> int:
    """Collins (1999): the rules for NP, tried in order."""
    if labels[-1] == "POS":
        return len(labels) - 1
    backwards = range(len(labels) - 1, -1, -1)
    searches: list[tuple[Iterable[int], Callable[[str], bool]]] = [
        (backwards, lambda label: label in _NOMINAL),
        (range(len(labels)), lambda label: label == "NP"),
        (backwards, lambda label: label in ("$", "ADJP", "PRN")),
        (backwards, lambda label: label == "CD"),
        (backwards, lambda label: label in ("JJ", "JJS", "RB", "QP")),
    ]
    for places, matches in searches:
        for place in places:
            if matches(labels[place]):
                return place
    return len(labels) - 1


@lru_cache(maxsize=65536)
def collins_head(label: str, children: tuple[str, ...]) -> int:
    """Find the head child by the rules of Collins (1999).

    Args:
        label: the label of the phrase, without function tags.
        children: their labels, without function tags.
    """
    if label in ("NP", "NX"):
        return _head_of_noun_phrase(children)
    direction, priorities = _HEADS.get(label, ("left", ""))
    places = range(len(children)) if direction == "left" else range(len(children) - 1, -1, -1)
    heads = (place for wanted in priorities.split() for place in places if children[place] == wanted)
    return next(heads, places[0])


def first_child(label: str, children: tuple[str, ...]) -> int:
    """The first child: left branching, (((a b) c) d)."""
    return 0


def last_child(label: str, children: tuple[str, ...]) -> int:
    """The last child: right branching, (a (b (c d)))."""
    return len(children) - 1


# The choice of the head child, by the direction in which `ConstituencyTree.binarize` then branches.
HEAD_RULES: dict[str, Callable[[str, tuple[str, ...]], int]] = {
    "left": first_child,
    "right": last_child,
    "head": collins_head,
}
