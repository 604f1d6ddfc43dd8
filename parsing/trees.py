"""Constituency trees, flat: words, their tags, and the spans of their phrases.

Scoring needs only spans, so readers and decoders produce spans; `nltk_tree` converts to an `nltk.Tree`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from stack_lm.core.errors import InputError, NoTree, OnError, fail
from stack_lm.text.brackets import CLOSE, OPEN, TRACE, leaf_word, split_trees
from stack_lm.text.escapes import escape_word

if TYPE_CHECKING:  # slow to load
    from nltk.tree import Tree

LABEL = "X"


# A phrase: its words [start, stop) and its label. A plain tuple, because a treebank has millions of them and Python's
# garbage collector need not look into those.
Span = tuple[int, int, str]


class Leaf(NamedTuple):
    """A word of a tree: its tag, the phrases that open before it, and the number that close after it."""

    tag: str | None
    opening: tuple[Span, ...]
    n_closing: int


class Arc(NamedTuple):
    """A dependency: a word, its head (-1 for none), and the relation."""

    word: int
    head: int
    relation: str


class Child(NamedTuple):
    """A child of a phrase: its words [start, stop), its label or tag, and its index in `spans`; None for a word."""

    start: int
    stop: int
    label: str
    phrase: int | None


def _order(span: tuple[int, int] | Span) -> tuple[int, int]:
    """The sorting key for the order in which brackets open; of equal spans the first stays above."""
    return span[0], -span[1]


@dataclass(frozen=True)
class ConstituencyTree:
    """A constituency tree.

    Attributes:
        words: n of them, at least one.
        tags: each word's part-of-speech tag (the label of its preterminal), or None if it has no preterminal.
        spans: the spans of all phrases, in the order in which their brackets open: a phrase precedes the phrases inside
            it. A preterminal is not a phrase.
        origin: file and line, for messages.
        arcs: the dependencies, if the phrases are those of a dependency tree.
    """

    words: tuple[str, ...]
    tags: tuple[str | None, ...]
    spans: tuple[Span, ...]
    origin: str = field(default="", compare=False)
    arcs: tuple[Arc, ...] = field(default=(), compare=False)

    @classmethod
    def unlabelled(cls, words: Sequence[str], spans: Iterable[tuple[int, int]]) -> ConstituencyTree:
        """A tree without tags whose phrases all have the label "X".

        Args:
            words: at least one.
            spans: the spans of its phrases, nested, in any order.
        """
        ordered = tuple((start, stop, LABEL) for start, stop in sorted(spans, key=_order))
        return cls(tuple(words), (None,) * len(words), ordered)

    @classmethod
    def from_nltk(cls, tree: Tree) -> ConstituencyTree:
        """Convert an `nltk.Tree`, with brackets among its words escaped. Traces are removed, with the phrases that they
        leave empty.

        Raises:
            InputError: if the tree has no words except traces.
        """
        copy = tree.copy(deep=True)
        for place in copy.treepositions("leaves"):
            copy[place] = escape_word(copy[place])
        return replace(cls.from_brackets(str(copy), "the tree"), origin="")

    @classmethod
    def from_brackets(cls, text: str, origin: str = "the text", line: int | None = None) -> ConstituencyTree:
        """Read the single tree in a text of brackets.

        Args:
            text: the brackets.
            origin: where it is from, for messages.
            line: its line there.

        Raises:
            InputError: if the brackets do not match, or there is no tree or more than one; `NoTree` if it has no words.
        """
        where = origin if line is None else f"{origin}, line {line}"
        trees = list(read_brackets(text, origin, line or 1))
        if len(trees) != 1:
            raise InputError(f"{where}: one tree is needed, but there are {len(trees)}")
        if trees[0] is None:
            raise NoTree(f"{where}: the tree has no words")
        return trees[0]

    def __len__(self) -> int:
        """The number of words."""
        return len(self.words)

    @property
    def wide_spans(self) -> set[tuple[int, int]]:
        """The spans of the phrases of two words or more, without labels, each once."""
        return {(start, stop) for start, stop, _ in self.spans if stop - start > 1}

    @property
    def word_tags(self) -> tuple[str, ...] | None:
        """The words' tags, if all have one and the tree's labels are not all one dummy, as in `(X (X the) (X cat))`."""
        tags = tuple(tag for tag in self.tags if tag is not None)
        if len(tags) < len(self.words) or (len(set(tags)) == 1 and all(label == tags[0] for _, _, label in self.spans)):
            return None
        return tags

    def nltk_tree(self) -> Tree:
        """Convert to an `nltk.Tree`. A single word without a tag gets the label "X"."""
        from nltk.tree import Tree

        root = Tree("", [])
        open_nodes = [(root, len(self.words) + 1)]
        for place, leaf in enumerate(self.leaves()):
            for _, stop, label in leaf.opening:
                node = Tree(label, [])
                open_nodes[-1][0].append(node)
                open_nodes.append((node, stop))
            word = self.words[place]
            open_nodes[-1][0].append(word if leaf.tag is None else Tree(leaf.tag, [word]))
            while open_nodes[-1][1] == place + 1:
                open_nodes.pop()
        return root[0] if isinstance(root[0], Tree) else Tree(LABEL, [root[0]])

    def brackets(self) -> str:
        """The tree on one line in the style of the Penn Treebank: `(S (NP (DT the) (NN cat)) (VP (VBD sat)))`.

        Words without a tag get the tag "X", because EVALB can only read words in brackets; brackets among the words are
        escaped.
        """
        pieces = []
        for word, leaf in zip(self.words, self.leaves(), strict=True):
            opening = "".join(f"({label} " for _, _, label in leaf.opening)
            pieces.append(f"{opening}({leaf.tag or LABEL} {escape_word(word)}){')' * leaf.n_closing}")
        return " ".join(pieces)

    def __str__(self) -> str:
        """The tree on one line for people, without labels: `((the cat) sat)`."""
        shown = self.unlabelled(self.words, self.wide_spans)
        return " ".join(
            "(" * len(leaf.opening) + escape_word(word) + ")" * leaf.n_closing
            for word, leaf in zip(self.words, shown.leaves(), strict=True)
        )

    def leaves(self) -> Iterator[Leaf]:
        """The words, with the brackets around them."""
        closing = [0] * (len(self.words) + 1)
        for _, stop, _ in self.spans:
            closing[stop] += 1
        first = 0
        for place, tag in enumerate(self.tags):
            last = first
            while last < len(self.spans) and self.spans[last][0] == place:
                last += 1
            yield Leaf(tag, self.spans[first:last], closing[place + 1])
            first = last

    def children(self) -> list[list[Child]]:
        """The children of each phrase."""
        children: list[list[Child]] = [[] for _ in self.spans]
        open_phrases: list[int] = []
        number = 0
        for place, leaf in enumerate(self.leaves()):
            for start, stop, label in leaf.opening:
                if open_phrases:
                    children[open_phrases[-1]].append(Child(start, stop, label, number))
                open_phrases.append(number)
                number += 1
            if open_phrases:
                children[open_phrases[-1]].append(Child(place, place + 1, leaf.tag or "", None))
            del open_phrases[len(open_phrases) - leaf.n_closing :]
        return children

    def keep(self, kept: Sequence[bool]) -> ConstituencyTree:
        """The tree over some of its words, without phrases that lose all their words; those of lost heads have none.

        Args:
            kept: whether each word stays; at least one must.
        """
        if all(kept):
            return self
        places = list(accumulate(kept, initial=0))
        spans = tuple(
            (places[start], places[stop], label) for start, stop, label in self.spans if places[start] < places[stop]
        )
        words = tuple(word for word, keep in zip(self.words, kept, strict=True) if keep)
        tags = tuple(tag for tag, keep in zip(self.tags, kept, strict=True) if keep)
        new = [place if keep else -1 for place, keep in zip(places, kept, strict=False)] + [-1]  # the last is of -1
        arcs = tuple(Arc(new[word], new[head], relation) for word, head, relation in self.arcs if kept[word])
        return ConstituencyTree(words, tags, spans, self.origin, arcs)

    @property
    def has_labels(self) -> bool:
        """True if any phrase has a label; in trees from strengths none has."""
        return any(label != LABEL for _, _, label in self.spans)

    def collapse_unaries(self) -> ConstituencyTree:
        """The tree without phrases that span the same words as one below them, and without those of one word."""
        spans = tuple(
            span
            for span, below in pairwise((*self.spans, (0, 0, "")))
            if span[1] - span[0] > 1 and below[:2] != span[:2]
        )
        return replace(self, spans=spans)

    def binarize(self, head: Callable[[str, tuple[str, ...]], int]) -> ConstituencyTree:
        """A binary tree that keeps all phrases of two words or more. In each phrase the children left of the head are
        split off one by one, from the outside in, then those to its right: (NP (VP .)), ((V NP) PP). Unary phrases, and
        those of one word, are removed.

        Args:
            head: chooses the head child, from the phrase's label and the children's; see `stack_lm.parsing.heads`.
        """
        spans: list[Span] = []
        for (_, stop, label), children in zip(self.spans, self.children(), strict=True):
            place = head(base_label(label), tuple(base_label(child.label) for child in children))
            start = children[place].start
            spans += ((start, child.stop, label) for child in children[place + 1 :])
            spans += ((child.start, stop, label) for child in children[:place])
        return replace(self, spans=tuple(sorted(spans, key=_order)))


def _build(tokens: Iterable[re.Match[str]], origin: str) -> ConstituencyTree | None:
    """The tree of the tokens from `split_trees`; None without words.

    Traces are left out, and phrases with only traces, and outer unlabelled brackets, as in the Penn Treebank.
    """
    words: list[str] = []
    tags: list[str | None] = []
    placed: list[Span | None] = []  # None while a phrase is open, and where it is empty
    open_phrases: list[tuple[int, int, str]] = []  # place, first word, label
    for token in tokens:
        kind, word = token.lastindex, leaf_word(token)
        if word is not None:
            if token[1] != TRACE:
                words.append(word)
                tags.append(token[1])
        elif kind == OPEN:
            open_phrases.append((len(placed), len(words), token[3]))
            placed.append(None)
        elif kind == CLOSE:
            place, start, label = open_phrases.pop()
            if len(words) > start:
                placed[place] = (start, len(words), label)
    if not words:
        return None
    spans = [span for span in placed if span is not None]
    while spans and spans[0][2] == "" and (len(words) == 1 or (spans[1:2] and spans[1][:2] == spans[0][:2])):
        del spans[0]
    return ConstituencyTree(tuple(words), tuple(tags), tuple(spans), origin)


def read_brackets(
    text: str, source: str, first_line: int = 1, on_error: OnError = fail
) -> Iterator[ConstituencyTree | None]:
    """Read bracketed trees, each on one line or several. Traces are removed, with the phrases that they leave empty.

    Args:
        text: the text of a whole file.
        source: its name, for messages.
        first_line: the number of the text's first line in the file.
        on_error: called with the error of a tree; see `stack_lm.text.brackets.split_trees`.

    Returns:
        The trees; None for one without words, such as one of only traces, or with an error.

    Raises:
        InputError: for brackets that do not match, empty brackets in a tree with words, or words outside brackets; the
            message names the line.
    """
    for line, tokens in split_trees(text, source, first_line, on_error):
        yield _build(tokens or (), f"{source}, line {line}")


def read_binary_parse(text: str, origin: str) -> ConstituencyTree:
    """Read a parse without labels, "( ( the cat ) sat )", as in JSON lines with `sentence1_binary_parse`.

    Brackets around a single word have no meaning.

    Raises:
        InputError: as `ConstituencyTree.from_brackets`.
    """
    labelled = (text if "(" in text else f"({text})").replace("(", f"({LABEL} ")
    tree = ConstituencyTree.from_brackets(labelled, origin)
    spans = tuple(span for span in tree.spans if span[1] - span[0] > 1)
    return replace(tree, tags=(None,) * len(tree), spans=spans, origin=origin)


@lru_cache(maxsize=65536)
def base_label(label: str) -> str:
    """A label without function tags, indices and features: NP-SBJ-1, NP=2 and NP##case=nom## are NP."""
    return re.split("-|=|##", label)[0] if label[:1] != "-" else label
