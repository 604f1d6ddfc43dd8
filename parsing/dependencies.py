"""Dependency trees as treebanks: their subtrees as phrases, and the frames of verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stack_lm.core.errors import InputError
from stack_lm.text.conllu import Dependent

from .trees import Arc, ConstituencyTree, Span

Heads = Literal["gold", "first", "last"]

# Relations of Universal Dependencies that make a verb transitive, and those of clauses in its place.
_OBJECTS, _CLAUSES = ("obj", "iobj"), ("ccomp", "xcomp")
# A verb with one of these may lack its object or subject for another reason.
_PASSIVE = ("nsubj:pass", "csubj:pass", "aux:pass", "expl:pass")


def tree_of_dependencies(
    words: Sequence[str], tags: Sequence[str] | None, parts: Sequence[Dependent], origin: str = ""
) -> ConstituencyTree:
    """The phrases of a dependency tree: a word with all that depends on it, labelled with its relation.

    Only subtrees without gaps are phrases. A word of several parts, such as "du", is in a phrase with all of them or
    with none. The whole sentence is a phrase, "root".

    Args:
        words: at least one.
        tags: their parts of speech.
        parts: the parts of the words, in order.
        origin: file and sentence, for messages.

    Raises:
        InputError: if heads are missing, or are no tree.
    """
    heads = _heads(parts, origin)
    below: list[set[int]] = [{i} for i in range(len(parts))]
    for i in range(len(parts)):
        above = heads[i]
        for _ in parts:
            if above < 0:
                break
            below[above].add(i)
            above = heads[above]
        else:
            raise InputError(f"{origin}: a word depends on itself")
    of_word: list[set[int]] = [set() for _ in words]
    for i, part in enumerate(parts):
        of_word[part.word].add(i)
    spans: dict[tuple[int, int], Span] = {}
    for i in sorted(range(len(parts)), key=lambda i: -len(below[i])):
        inside = {parts[j].word for j in below[i]}
        start, stop = min(inside), max(inside) + 1
        whole = stop - start == len(inside) and all(of_word[word] <= below[i] for word in inside)
        if whole and stop - start > 1:
            spans.setdefault((start, stop), (start, stop, parts[i].relation))
    spans.setdefault((0, len(words)), (0, len(words), "root"))
    ordered = tuple(spans[key] for key in sorted(spans, key=lambda key: (key[0], -key[1])))
    ends = [(part.word, parts[above].word if above >= 0 else -1) for part, above in zip(parts, heads, strict=True)]
    arcs = tuple(Arc(*pair, part.relation) for pair, part in zip(ends, parts, strict=True) if pair[0] != pair[1])
    return ConstituencyTree(tuple(words), tuple(tags or [None] * len(words)), ordered, origin, arcs)


def edges_of(tree: ConstituencyTree, gold: Sequence[Arc], heads: Heads) -> set[frozenset[int]]:
    """The pairs of words that a tree of phrases joins: the head of each phrase, and those of its other children.

    Args:
        tree: n words; a binary tree joins n - 1 pairs.
        gold: the dependencies of the same words.
        heads: which child has the head: the one whose head is highest in the gold tree ("gold"; the first of equals),
            or the "first" or "last" one.
    """
    above = {arc.word: arc.head for arc in reversed(gold)}

    def depth(word: int) -> int:
        n = 0
        while (word := above.get(word, -1)) >= 0 and n < len(tree):  # the parts of words may make a circle
            n += 1
        return n

    chosen, edges = [0] * len(tree.spans), set()
    phrases = list(enumerate(tree.children()))
    for number, children in reversed(phrases):
        own = [child.start if child.phrase is None else chosen[child.phrase] for child in children]
        chosen[number] = min(own, key=depth) if heads == "gold" else own[0 if heads == "first" else -1]
        edges |= {frozenset((word, chosen[number])) for word in own if word != chosen[number]}
    return edges


def verb_frames_of(tags: Sequence[str], parts: Sequence[Dependent], origin: str = "") -> list[str | None]:
    """The frame of each word that is a verb: "transitive" with an object, "clausal" with a clause and no object, or
    "intransitive"; None for passives, for verbs of relative clauses, and for other words.

    Raises:
        InputError: as `tree_of_dependencies`.
    """
    frames: list[str | None] = [None] * len(tags)
    heads = _heads(parts, origin)
    for i, part in enumerate(parts):
        if tags[part.word] != "VERB" or part.relation == "acl:relcl":
            continue
        relations = [other.relation for j, other in enumerate(parts) if heads[j] == i]
        kinds = {relation.partition(":")[0] for relation in relations}
        if not kinds.isdisjoint(_OBJECTS):
            frames[part.word] = "transitive"
        elif set(relations).isdisjoint(_PASSIVE):
            frames[part.word] = "intransitive" if kinds.isdisjoint(_CLAUSES) else "clausal"
    return frames


def _heads(parts: Sequence[Dependent], origin: str) -> list[int]:
    """The part that each part depends on, from 0; -1 for the root."""
    for part in parts:
        if not part.head.isdecimal() or int(part.head) > len(parts):
            raise InputError(f"{origin}: a head must be a number up to {len(parts)}; got {part.head!r} (column 7)")
    return [int(part.head) - 1 for part in parts]
