"""Constituency trees (`nltk.Tree`): brackets in and out, spans, cleaning and head binarisation.

A leaf is a string. A node with one leaf as its only child is a preterminal: its label is the word's tag. Spans are
half-open pairs (a, b) of word positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from nltk.tree import Tree

from stack_lm.errors import InputError

TRACE = "-NONE-"
_TOKENS = re.compile(r"\(\s*([^\s()]*)|\)|([^\s()]+)")


class LocatedTree(NamedTuple):
    """A tree, and the line of the file it starts on."""

    tree: Tree
    line: int


class Span(NamedTuple):
    """A phrase's words [start, stop) and its label."""

    start: int
    stop: int
    label: str


def read_brackets(lines: Iterable[tuple[int, str]], source: str) -> Iterator[LocatedTree]:
    """Read bracketed trees that may run over several lines.

    Args:
        lines: pairs of a line's number and its text.
        source: the file's name, for error messages.

    Yields:
        The trees; an outer pair of brackets without a label, as the Penn Treebank has, is taken off.

    Raises:
        InputError: for brackets that do not match, or words outside brackets; the message names the line.
    """
    open_nodes: list[Tree] = []
    start = 0
    for number, line in lines:
        for match in _TOKENS.finditer(line):
            token = match.group()
            if token[0] == "(":
                if not open_nodes:
                    start = number
                open_nodes.append(Tree(match.group(1), []))
            elif token == ")":
                if not open_nodes:
                    raise InputError(f"{source}, line {number}: a closing bracket without an opening one")
                node = open_nodes.pop()
                if not node:
                    raise InputError(f"{source}, line {number}: empty brackets ({node.label()})")
                if open_nodes:
                    open_nodes[-1].append(node)
                else:
                    while node.label() == "" and len(node) == 1 and isinstance(node[0], Tree):
                        node = node[0]
                    yield LocatedTree(node, start)
            elif open_nodes:
                open_nodes[-1].append(token)
            else:
                raise InputError(f"{source}, line {number}: {token!r} stands outside all brackets")
    if open_nodes:
        missing = len(open_nodes)
        raise InputError(
            f"{source}: the tree that starts on line {start} lacks {missing} closing bracket{'s' * (missing > 1)}"
        )


def read_binary_parse(text: str, where: str) -> Tree:
    """Read a binary parse without labels, "( ( the cat ) sat )", as in JSON lines with `sentence1_binary_parse`.

    Raises:
        InputError: if it is malformed; `where` opens the message.
    """
    stack: list[list[Tree | str]] = []
    done: Tree | str | None = None
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if done is not None:
            raise InputError(f"{where}: {token!r} stands behind the end of the tree")
        if token == "(":
            stack.append([])
            continue
        item: Tree | str = token
        if token == ")":
            if not stack:
                raise InputError(f"{where}: a closing bracket without an opening one")
            children = stack.pop()
            if not children:
                raise InputError(f"{where}: empty brackets")
            item = Tree("X", children) if len(children) > 1 else children[0]
        if stack:
            stack[-1].append(item)
        else:
            done = item
    if stack or done is None:
        raise InputError(f"{where}: " + (f"{len(stack)} closing brackets are missing" if stack else "no tree"))
    return done if isinstance(done, Tree) else Tree("X", [done])


def is_preterminal(node: Tree | str) -> bool:
    """Whether a node is a tag over one word."""
    return isinstance(node, Tree) and len(node) == 1 and isinstance(node[0], str)


def words_and_tags(tree: Tree) -> tuple[list[str], list[str] | None]:
    """The words, and their tags if every word has one.

    A tree without tags, whose phrases hold words directly or all of whose labels are one dummy, has None.
    """
    words: list[str] = []
    tags: list[str] = []
    labels: set[str] = set()

    def walk(node: Tree) -> None:
        labels.add(node.label())
        for child in node:
            if isinstance(child, str):
                words.append(child)
                if len(node) == 1:
                    tags.append(node.label())
            else:
                walk(child)

    walk(tree)
    tagged = len(tags) == len(words) and len(labels) > 1
    return words, tags if tagged else None


def phrase_spans(tree: Tree) -> list[Span]:
    """All phrases, outermost first: every node but preterminals, of any width."""
    spans: list[Span] = []

    def walk(node: Tree, start: int) -> int:
        if is_preterminal(node):
            return start + 1
        here = len(spans)
        spans.append(Span(start, start, node.label()))
        stop = start
        for child in node:
            stop = stop + 1 if isinstance(child, str) else walk(child, stop)
        spans[here] = Span(start, stop, node.label())
        return stop

    walk(tree, 0)
    return spans


def clean(tree: Tree) -> Tree | None:
    """A copy without traces, and without the phrases that they leave empty; None if nothing is left."""
    if is_preterminal(tree):
        return None if tree.label() == TRACE else Tree(tree.label(), list(tree))
    children: list[Tree | str] = []
    for child in tree:
        kept = child if isinstance(child, str) else clean(child)
        if kept is not None:
            children.append(kept)
    return Tree(tree.label(), children) if children else None


def to_brackets(tree: Tree | str, label: str = "X") -> str:
    """One line in the style of the Penn Treebank, readable by EVALB: `(X (X the) (X cat))`.

    Args:
        tree: a word that has no preterminal gets one.
        label: of such preterminals.
    """
    if isinstance(tree, str):
        return f"({label} {tree})"
    if is_preterminal(tree):
        return f"({tree.label()} {tree[0]})"
    return f"({tree.label()} {' '.join(to_brackets(child, label) for child in tree)})"


def to_plain(tree: Tree | str) -> str:
    """One line for people, without labels: `((the cat) sat)`."""
    if isinstance(tree, str):
        return tree
    if len(tree) == 1:
        return to_plain(tree[0])
    return f"({' '.join(to_plain(child) for child in tree)})"


# Collins (1999), appendix A: for each label the direction of the search, and the children's labels by priority.
# NOTE: his further rule, which makes the first of two conjuncts the head, is left out: without it the branching
# baselines come nearest to those known for the gold trees of Htut et al. (see docs/evaluation.md).
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


def base_label(label: str) -> str:
    """A label without function tags and indices: NP-SBJ-1 and NP=2 are NP."""
    return re.split("[-=]", label)[0] if label[:1] != "-" else label


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


def head_child(label: str, children: Sequence[str]) -> int:
    """Which child is the head, by the rules of Collins (1999).

    Args:
        label: of the phrase, without function tags.
        children: their labels, without function tags.
    """
    if label in ("NP", "NX"):
        return _head_of_noun_phrase(children)
    direction, priorities = _HEADS.get(label, ("left", ""))
    places = range(len(children)) if direction == "left" else range(len(children) - 1, -1, -1)
    found = (place for wanted in priorities.split() for place in places if children[place] == wanted)
    return next(found, places[0])


def binarize_by_head(tree: Tree) -> Tree:
    """A binary copy: the children left of the head are split off one by one, then those to its right, from the outside
    in: (NP (VP .)) and ((V NP) PP). Unary chains collapse to their lowest node.

    This is the gold standard of Htut et al. (2018), which Merrill et al. (2019) use.
    """
    while len(tree) == 1 and isinstance(tree[0], Tree):
        tree = tree[0]
    if is_preterminal(tree) or (all(isinstance(child, str) for child in tree) and len(tree) <= 2):
        return tree
    children: list[Tree | str] = [c if isinstance(c, str) else binarize_by_head(c) for c in tree]
    labels = [base_label(child.label()) if isinstance(child, Tree) else "" for child in tree]
    head = head_child(base_label(tree.label()), labels)
    core = children[head]
    for right in children[head + 1 :]:
        core = Tree(tree.label(), [core, right])
    for left in reversed(children[:head]):
        core = Tree(tree.label(), [left, core])
    assert isinstance(core, Tree)
    return core
