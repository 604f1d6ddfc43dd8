"""Verbs with and without an object, from trees in the style of the Penn Treebank."""

from __future__ import annotations

import re

from ..parsing.trees import Child, ConstituencyTree, base_label

VERB_FRAMES = ("transitive", "clausal", "intransitive")
"""The complement of a verb: an object, a clause without one, or neither."""

_VERB_TAGS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"})
_BE = frozenset("be am is are was were been being 's 're 'm".split())
_HAVE = frozenset("have has had having 've 's 'd".split())
_CLAUSES = frozenset({"S", "SBAR", "SBARQ", "SINV", "SQ"})
# Function tags of phrases that are not arguments of the verb next to them (Bies et al. 1995, section 2.2).
_ADVERBIAL = frozenset({"ADV", "BNF", "DIR", "EXT", "LOC", "MNR", "PRP", "TMP", "VOC"})


def verb_frames(tree: ConstituencyTree) -> list[str | None]:
    """Return each word's frame if it is a verb with a known frame.

    A verb is a word tagged VB, VBD, VBG, VBN, VBP or VBZ directly in a VP. To its right in that VP it has

    - "transitive": a noun phrase (NP) that is neither adverbial (a function tag such as TMP or EXT) nor predicative
      (PRD): its object, direct or indirect;
    - "clausal": no object, but a clause (S, SBAR, SBARQ, SINV, SQ) that is not adverbial;
    - "intransitive": neither.

    None for all other words, and for verbs of unknown frame: auxiliaries and copulas (forms of be, a VP, PRD or ADJP to
    the right); passive participles (VBN, unless a form of have is in the VP around it); and verbs, with an object or
    without, in a clause from which the object may have moved: an SBAR or SBARQ that opens with a wh-phrase, an SBAR in
    an NP or ADJP, an SQ, a clause with a fronted part (TPC), or a parenthesis (PRN).

    NOTE: Merrill et al. (2019), figure 4, choose verbs by hand and do not list them; here the tree of each sentence
    decides. Trees without function tags (those of most parsers) take adverbial phrases for objects.

    Args:
        tree: annotated with tags and labels, which give the frames.

    Returns:
        n frames, each one of `VERB_FRAMES` or None.
    """
    frames: list[str | None] = [None] * len(tree)
    children = tree.children()
    parents: list[int | None] = [None] * len(tree.spans)
    for number, inside in enumerate(children):
        for child in inside:
            if child.phrase is not None:
                parents[child.phrase] = number
    labels = [base_label(label) for _, _, label in tree.spans]
    for number, inside in enumerate(children):
        if labels[number] != "VP" or _may_have_lost_object(number, tree, labels, children, parents):
            continue
        for place, child in enumerate(inside):
            if child.phrase is None and child.label in _VERB_TAGS and tree.words[child.start].lower() not in _BE:
                frame = _frame(inside[place + 1 :])
                if frame is None or (child.label == "VBN" and not _is_perfect(number, tree, labels, children, parents)):
                    continue
                frames[child.start] = frame
    return frames


def _function_tags(label: str) -> frozenset[str]:
    return frozenset(re.split("[-=]", label)[1:])


def _frame(right: list[Child]) -> str | None:
    """The frame of a verb, from the material to its right in its VP; None for an auxiliary or a copula."""
    frame = "intransitive"
    for child in right:
        if child.phrase is None:
            continue
        label, functions = base_label(child.label), _function_tags(child.label)
        if label in ("VP", "ADJP") or "PRD" in functions:
            return None
        if functions & _ADVERBIAL:
            continue
        if label == "NP":
            frame = "transitive"
        elif label in _CLAUSES and frame != "transitive":
            frame = "clausal"
    return frame


def _is_perfect(
    phrase: int, tree: ConstituencyTree, labels: list[str], children: list[list[Child]], parents: list[int | None]
) -> bool:
    """True if the verb above a VP is a form of have. A VP without its own verb coordinates others."""
    above = parents[phrase]
    while above is not None and labels[above] == "VP":
        verbs = [c for c in children[above] if c.phrase is None and (c.label in _VERB_TAGS or c.label == "MD")]
        if verbs:
            return tree.words[verbs[-1].start].lower() in _HAVE
        above = parents[above]
    return False


def _may_have_lost_object(
    phrase: int, tree: ConstituencyTree, labels: list[str], children: list[list[Child]], parents: list[int | None]
) -> bool:
    """True if a VP is inside a clause from which a phrase may have moved; traces are not in the trees."""
    below, above = phrase, parents[phrase]
    while above is not None:
        if labels[above] in ("PRN", "SQ") or (labels[above] in ("NP", "ADJP") and labels[below] == "SBAR"):
            return True
        if labels[above] in ("SBAR", "SBARQ") and base_label(children[above][0].label).startswith("WH"):
            return True
        if any("TPC" in _function_tags(c.label) and c.phrase != below for c in children[above]):
            return True
        below, above = above, parents[above]
    return False
