"""Reading, cleaning, binarising and writing trees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from stack_lm.errors import InputError
from stack_lm.parsing.trees import (
    base_label,
    binarize_by_head,
    clean,
    head_child,
    phrase_spans,
    read_binary_parse,
    read_brackets,
    to_brackets,
    to_plain,
    words_and_tags,
)


def read(text):
    return [located.tree for located in read_brackets(enumerate(text.split("\n"), start=1), "trees.mrg")]


def test_penn_treebank_brackets_over_several_lines():
    text = "( (S \n    (NP-SBJ (DT the) (NN cat) )\n    (VP (VBD sat) )\n    (. .) ))\n(X (X a) (X b))"
    first, second = read(text)
    assert first == Tree.fromstring("(S (NP-SBJ (DT the) (NN cat)) (VP (VBD sat)) (. .))")
    assert second == Tree.fromstring("(X (X a) (X b))")
    lines = [located.line for located in read_brackets(enumerate(text.split("\n"), start=1), "x")]
    assert lines == [1, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NP a)", "the tree that starts on line 1 lacks 1 closing bracket$"),
        ("(S (NP a))\n\n(S (NP\n (b c)", "the tree that starts on line 3 lacks 2 closing brackets"),
        ("(S (NP a)))", "trees.mrg, line 1: a closing bracket without an opening one"),
        ("(S (NP a))\nword", "trees.mrg, line 2: 'word' stands outside all brackets"),
        ("(S (NP) (VP a))", r"trees.mrg, line 1: empty brackets \(NP\)"),
    ],
)
def test_malformed_brackets(text, message):
    with pytest.raises(InputError, match=message):
        read(text)


def test_binary_parses():
    assert to_plain(read_binary_parse("( ( the cat ) ( sat down ) )", "x")) == "((the cat) (sat down))"
    assert to_plain(read_binary_parse("(a (b c))", "x")) == "(a (b c))"
    assert read_binary_parse("word", "x") == Tree("X", ["word"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("( a b", "1 closing brackets are missing"),
        ("( a b ) )", r"'\)' stands behind the end"),
        (") a", "a closing bracket without an opening one"),
        ("( )", "empty brackets"),
        ("", "no tree"),
        ("( a b ) c", "'c' stands behind the end"),
    ],
)
def test_malformed_binary_parses(text, message):
    with pytest.raises(InputError, match=f"file, line 3: .*{message}"):
        read_binary_parse(text, "file, line 3")


LABELS = st.sampled_from(["S", "NP", "VP", "NP-SBJ", "PP"])
WORDS = st.text("abcxyz.,$%'-", min_size=1, max_size=5)
TREES = st.recursive(
    st.builds(lambda tag, word: Tree(tag, [word]), st.sampled_from(["NN", "DT", "VBZ", ","]), WORDS),
    lambda children: st.builds(Tree, LABELS, st.lists(children, min_size=1, max_size=4)),
    max_leaves=12,
)


@given(TREES)
def test_a_tree_and_its_string_round_trip(tree):
    assert read(to_brackets(tree)) == [tree]
    assert clean(tree) == tree


@given(TREES)
def test_spans(tree):
    spans = phrase_spans(tree)
    n = len(tree.leaves())
    phrases = [node for node in tree.subtrees() if not (len(node) == 1 and isinstance(node[0], str))]
    assert [span.label for span in spans] == [node.label() for node in phrases]
    assert [span.stop - span.start for span in spans] == [len(node.leaves()) for node in phrases]
    assert all(0 <= span.start < span.stop <= n for span in spans)


@given(TREES)
def test_head_binarised_trees_are_binary(tree):
    binary = binarize_by_head(tree)
    assert binary.leaves() == tree.leaves()
    n = len(tree.leaves())
    spans = {(s.start, s.stop) for s in phrase_spans(binary) if s.stop - s.start > 1}
    assert len(spans) == n - 1
    # Every phrase of the tree is a phrase of the binary one.
    assert {(s.start, s.stop) for s in phrase_spans(tree) if s.stop - s.start > 1} <= spans


def test_traces_and_what_they_leave_empty_go():
    tree = Tree.fromstring("(S (NP-SBJ (-NONE- *)) (VP (TO to) (VP (VB go) (NP (-NONE- *T*) ))))")
    assert clean(tree) == Tree.fromstring("(S (VP (TO to) (VP (VB go))))")
    assert clean(Tree.fromstring("(S (NP (-NONE- *)))")) is None


def test_words_and_tags():
    assert words_and_tags(Tree.fromstring("(S (NP (DT the) (NN cat)) (. .))")) == (
        ["the", "cat", "."],
        ["DT", "NN", "."],
    )
    assert words_and_tags(Tree.fromstring("(X (X the) (X cat))")) == (["the", "cat"], None)  # dummies are no tags
    assert words_and_tags(Tree("X", ["the", "cat"])) == (["the", "cat"], None)


@pytest.mark.parametrize(
    ("label", "children", "head"),
    [
        ("S", "NP VP .", 1),
        ("NP", "DT JJ NN", 2),
        ("NP", "NP PP", 0),
        ("NP", "NNP POS", 1),
        ("NP", "DT CD", 1),
        ("VP", "MD RB VP", 0),
        ("VP", "VBZ NP PP", 0),
        ("PP", "IN NP", 0),
        ("SBAR", "WHNP S", 0),
        ("ADVP", "RB RB", 1),
        ("QP", "IN $ CD", 1),
        ("WHPP", "IN WHNP", 0),
    ],
)
def test_heads(label, children, head):
    """By the tables of Collins (1999), appendix A."""
    assert head_child(label, children.split()) == head


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(S (NP a) (VP b) (. c))", "(a (b c))"),
        ("(VP (ADVP a) (VBZ b) (NP c) (PP d))", "(a ((b c) d))"),
        ("(S (NP-SBJ (DT a) (JJ b) (NN c)) (VP (VBD d)) (. e))", "((a (b c)) (d e))"),
    ],
)
def test_binarisation_peels_left_children_first(text, expected):
    assert to_plain(binarize_by_head(Tree.fromstring(text))) == expected


@pytest.mark.parametrize(("label", "base"), [("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("-LRB-", "-LRB-"), ("S", "S")])
def test_base_labels(label, base):
    assert base_label(label) == base
