"""Verb frames, read off trees."""

import pytest

from stack_lm.figures import verb_frames
from stack_lm.parsing import ConstituencyTree

OBJECT = "(NP (DT a) (NN cat))"


def frames(brackets):
    """Frame of each verb that has one."""
    tree = ConstituencyTree.from_brackets(brackets)
    found = verb_frames(tree)
    assert len(found) == len(tree)
    return {word: frame for word, frame in zip(tree.words, found, strict=True) if frame}


def sentence(vp):
    return f"(S (NP-SBJ (PRP she)) {vp} (. .))"


@pytest.mark.parametrize(
    ("vp", "expected"),
    [
        (f"(VP (VBD saw) {OBJECT})", {"saw": "transitive"}),
        (f"(VP (VBD gave) (NP (PRP him)) {OBJECT})", {"gave": "transitive"}),
        (f"(VP (VBD bought) (CC and) (VBD sold) {OBJECT})", {"bought": "transitive", "sold": "transitive"}),
        (f"(VP (MD will) (VP (VB see) {OBJECT}))", {"see": "transitive"}),
        (f"(VP (VBD told) {OBJECT} (SBAR (IN that) (S (NP (PRP it)) (VP (VBD slept)))))",
         {"told": "transitive", "slept": "intransitive"}),
        ("(VP (VBD slept) (PP (IN in) (NP (NN bed))))", {"slept": "intransitive"}),
        ("(VP (VBD slept) (NP-TMP (NN today)))", {"slept": "intransitive"}),
        ("(VP (VBD rose) (NP-EXT (CD 3) (NN %)))", {"rose": "intransitive"}),
        ("(VP (VBD said) (SBAR (IN that) (S (NP (PRP it)) (VP (VBD slept)))))",
         {"said": "clausal", "slept": "intransitive"}),
        ("(VP (VBD slept) (SBAR-TMP (IN while) (S (NP (PRP it)) (VP (VBD rained)))))",
         {"slept": "intransitive", "rained": "intransitive"}),
        # Auxiliaries and copulas have no frame.
        (f"(VP (VBZ is) {OBJECT})", {}),
        (f"(VP (VBD became) (NP-PRD {OBJECT}))", {}),
        ("(VP (VBZ seems) (ADJP (JJ old)))", {}),
        ("(VP (VBZ has) (VP (VBN slept)))", {"slept": "intransitive"}),
        (f"(VP (VBZ has) {OBJECT})", {"has": "transitive"}),
        # Perfects, also coordinated ones, count; passives and reduced relative clauses do not.
        (f"(VP (VBZ has) (VP (VP (VBN slept)) (CC and) (VP (VBN eaten) {OBJECT})))",
         {"slept": "intransitive", "eaten": "transitive"}),
        ("(VP (VBD was) (VP (VBN eaten)))", {}),
        ("(VP (VBZ has) (VP (VBN been) (VP (VBN eaten))))", {}),
        (f"(VP (VBD saw) (NP {OBJECT} (VP (VBN eaten) (PP (IN by) (NP (NNS dogs))))))", {"saw": "transitive"}),
        # Clauses that may have lost the object: neither verb counts.
        (f"(VP (VBD saw) (NP {OBJECT} (SBAR (WHNP (WDT that)) (S (NP (PRP he)) (VP (VBD liked))))))",
         {"saw": "transitive"}),
        (f"(VP (VBD saw) (NP {OBJECT} (SBAR (S (NP (PRP he)) (VP (VBD liked))))))", {"saw": "transitive"}),
        (f"(VP (VBD knew) (SBAR (WHNP (WP who)) (S (VP (VBD saw) {OBJECT}))))", {"knew": "clausal"}),
    ],
)  # fmt: skip
def test_frames(vp, expected):
    assert frames(sentence(vp)) == expected


def test_fronted_parts_and_parentheses():
    inside = f"(S-TPC (NP (PRP it)) (VP (VBD ate) {OBJECT}))"
    assert frames(f"(S {inside} (, ,) (NP-SBJ (PRP she)) (VP (VBD said)))") == {"ate": "transitive"}
    aside = "(PRN (, ,) (S (NP (PRP she)) (VP (VBD said))) (, ,))"
    assert frames(f"(S (NP (PRP it)) {aside} (VP (VBD slept)))") == {"slept": "intransitive"}
    assert frames("(SQ (VBD did) (NP (PRP she)) (VP (VB sleep)) (. ?))") == {}


def test_modals_nouns_and_verbs_outside_of_verb_phrases_have_no_frame():
    assert frames("(NP (VBG running) (NN water))") == {}
    assert frames(sentence("(VP (MD must))")) == {}
