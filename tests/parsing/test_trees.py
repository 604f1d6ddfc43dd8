"""Constituency trees: reading brackets, binarising, and writing them again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from stack_lm.core.errors import InputError
from stack_lm.parsing import ConstituencyTree
from stack_lm.parsing.heads import HEAD_RULES, collins_head
from stack_lm.parsing.trees import base_label, read_binary_parse, read_brackets


def read(text):
    return list(read_brackets(text, "trees.mrg"))


def tree(text):
    return ConstituencyTree.from_brackets(text)


LABELS = st.sampled_from(["S", "NP", "VP", "NP-SBJ", "PP"])
WORDS = st.text("abcxyz.,$%'-", min_size=1, max_size=5)
TREES = st.recursive(
    st.builds(lambda tag, word: Tree(tag, [word]), st.sampled_from(["NN", "DT", "VBZ", ","]), WORDS),
    lambda children: st.builds(Tree, LABELS, st.lists(children, min_size=1, max_size=4)),
    max_leaves=12,
)


def nltk_spans(node, start=0):
    """By definition: every node but preterminals, outermost first."""
    if len(node) == 1 and isinstance(node[0], str):
        return []
    spans, place = [(start, start + len(node.leaves()), node.label())], start
    for child in node:
        spans += nltk_spans(child, place)
        place += len(child.leaves())
    return spans


@given(TREES)
def test_a_tree_its_string_and_nltks_tree_round_trip(one):
    flat = ConstituencyTree.from_nltk(one)
    assert flat.words == tuple(one.leaves())
    assert flat.tags == tuple(tag for _, tag in one.pos())
    assert list(flat.spans) == nltk_spans(one)
    assert flat.nltk_tree() == one
    assert ConstituencyTree.from_brackets(flat.brackets()) == flat
    assert flat.brackets() == " ".join(str(one).split())
    assert ConstituencyTree.from_brackets(one.pformat(margin=20)) == flat
    assert str(flat).replace("(", "").replace(")", "").split() == list(flat.words)


@given(TREES, st.data())
def test_keeping_some_words(one, data):
    flat = ConstituencyTree.from_nltk(one)
    kept = data.draw(st.lists(st.booleans(), min_size=len(flat), max_size=len(flat)).filter(any))
    left = flat.keep(kept)
    assert left.words == tuple(word for word, keep in zip(flat.words, kept, strict=True) if keep)
    for start, stop, label in left.spans:
        assert start < stop
        assert any(label == name and sum(kept[:a]) == start and sum(kept[:b]) == stop for a, b, name in flat.spans)
    assert len(left.spans) == sum(any(kept[a:b]) for a, b, _ in flat.spans)


def wide(spans):
    return {(start, stop) for start, stop, _ in spans if stop - start > 1}


@given(TREES, st.sampled_from(list(HEAD_RULES)))
def test_binarised_trees_are_binary_and_keep_all_phrases(one, rule):
    flat = ConstituencyTree.from_nltk(one)
    binary = flat.binarize(HEAD_RULES[rule])
    assert binary.words == flat.words
    assert len(binary.spans) == len(wide(binary.spans)) == len(flat.words) - 1
    assert wide(flat.spans) <= wide(binary.spans)
    assert all(len(children) == 2 for children in binary.children())


@pytest.mark.parametrize(
    ("rule", "expected"), [("left", "(((a b) c) d)"), ("right", "(a (b (c d)))"), ("head", "(a ((b c) d))")]
)
def test_binarising(rule, expected):
    assert str(tree("(VP (ADVP a) (VBZ b) (NP c) (PP d))").binarize(HEAD_RULES[rule])) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(S (NP a) (VP b) (. c))", "(a (b c))"),
        ("(S (NP-SBJ (DT a) (JJ b) (NN c)) (VP (VBD d)) (. e))", "((a (b c)) (d e))"),
        ("(S (S-TPC (NP a) (VP b)) (, c) (NP (NN d)) (VP (VBD e)) (. f))", "((a b) (c (d (e f))))"),
    ],
)
def test_head_binarisation_peels_left_children_first(text, expected):
    assert str(tree(text).binarize(collins_head)) == expected


# Phrases with their children, the head in brackets.
HEADS = """
S NP [VP] .; NP DT JJ [NN]; NP [NP] PP; NP NNP [POS]; NP DT [CD]; VP [MD] RB VP; VP [VBZ] NP PP; PP [IN] NP;
SBAR [WHNP] S; ADVP RB [RB]; QP IN [$] CD; WHPP [IN] WHNP
"""


@pytest.mark.parametrize("phrase", HEADS.split(";"))
def test_heads(phrase):
    """By the tables of Collins (1999), appendix A."""
    label, *children = phrase.split()
    head = collins_head(label, tuple(child.strip("[]") for child in children))
    assert children[head].startswith("[")


def test_penn_treebank_brackets_over_several_lines():
    text = "( (S \n    (NP-SBJ (DT the) (NN cat) )\n    (VP (VBD sat) )\n    (. .) ))\n(X (X a) (X b))"
    first, second = read(text)
    assert first.nltk_tree() == Tree.fromstring("(S (NP-SBJ (DT the) (NN cat)) (VP (VBD sat)) (. .))")
    assert second.nltk_tree() == Tree.fromstring("(X (X a) (X b))")
    assert (first.origin, second.origin) == ("trees.mrg, line 1", "trees.mrg, line 5")
    assert first.word_tags == ("DT", "NN", "VBD", ".")
    assert second.word_tags is None  # dummies are no tags


def test_labels_with_features():
    """As in the treebanks of SPMRL; a word's tag has them too."""
    one = tree("((VROOT (S##head=VV## (NP-SB##case=nom## (ART-NK##lem=der## Der) (NN-NK Hund)) (VVFIN bellt)) ($. .)))")
    assert [base_label(label) for _, _, label in one.spans] == ["VROOT", "S", "NP"]
    assert [base_label(tag) for tag in one.tags] == ["ART", "NN", "VVFIN", "$."]


def test_escaped_brackets():
    """As NLTK reads them; a backslash may also be a word."""
    assert tree(r"(X (SYM \() (NN dog) (SYM \)))").words == ("(", "dog", ")")
    assert tree(r"(X (NN f\(x\)) (SYM \) y)").words == ("f(x)", "\\", "y")


def test_traces_and_what_they_leave_empty_go():
    one = tree("(S (NP-SBJ (-NONE- *)) (VP (TO to) (VP (VB go) (NP (-NONE- *T*) ))))")
    assert one.brackets() == "(S (VP (TO to) (VP (VB go))))"
    assert read("(S (NP (-NONE- *)))\n(NN a)") == [None, tree("(NN a)")]
    assert ConstituencyTree.from_nltk(Tree.fromstring("(S (NP (-NONE- *)) (VP (VB go)))")) == tree("(S (VP (VB go)))")
    with pytest.raises(InputError, match="the tree has no words"):
        ConstituencyTree.from_nltk(Tree.fromstring("(S (NP (-NONE- *)))"))


def test_outer_brackets_without_a_label():
    assert tree("((S (NN a) (NN b)))").brackets() == "(S (NN a) (NN b))"
    assert tree("( (NN a))").brackets() == "(NN a)"
    assert len(tree("( (NN a) (NN b))").spans) == 1  # it has two children: the words are one sentence


def test_words_without_tags():
    one = ConstituencyTree.from_nltk(Tree("X", ["the", "cat"]))
    assert (one.tags, one.word_tags) == ((None, None), None)
    assert one.brackets() == "(X (X the) (X cat))"
    assert one.nltk_tree() == Tree("X", ["the", "cat"])
    assert tree("(NP the (NN cat))").tags == (None, "NN")
    assert ConstituencyTree.unlabelled(["a"], []).nltk_tree() == Tree("X", ["a"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NP a)", "trees.mrg: the tree that starts on line 1 lacks 1 closing bracket$"),
        ("(S (NP a)\n)\n\n(S (a b)))", "trees.mrg, line 4: a closing bracket without an opening one"),
        ("(S (NP a))\nword", "trees.mrg, line 2: 'word' is outside all brackets"),
        ("(S\n\n(NP) (VP a))", r"trees.mrg, line 3: empty brackets \(NP\)"),
    ],
)
def test_malformed_brackets(text, message):
    with pytest.raises(InputError, match=message):
        read(text)


def test_brackets_among_the_words_are_escaped():
    one = ConstituencyTree.unlabelled(["a", "(", "b)", ")"], [(0, 4), (1, 4), (1, 3)])
    assert one.brackets() == "(X (X a) (X (X (X -LRB-) (X b-RRB-)) (X -RRB-)))"
    assert tree(one.brackets()).spans == one.spans
    assert str(one) == "(a ((-LRB- b-RRB-) -RRB-))"


def test_one_tree_only():
    with pytest.raises(InputError, match="the text: one tree is needed, but there are 2"):
        tree("(X a) (X b)")


def test_binary_parses():
    assert str(read_binary_parse("( ( the cat ) ( sat down ) )", "x")) == "((the cat) (sat down))"
    assert str(read_binary_parse("(a (b c))", "x")) == "(a (b c))"
    assert read_binary_parse("( ( a ) ( b c ) )", "x") == read_binary_parse("(a (b c))", "x")
    assert read_binary_parse("word", "x").words == ("word",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("( a b", "lacks 1 closing bracket"),
        ("( a b ) )", "a closing bracket without an opening one"),
    ],
)
def test_malformed_binary_parses(text, message):
    with pytest.raises(InputError, match=f"file, line 3.*{message}"):
        read_binary_parse(text, "file, line 3")


def test_a_deep_tree_does_not_exhaust_the_stack():
    deep = ConstituencyTree.unlabelled([str(i) for i in range(3000)], [(0, i) for i in range(2, 3001)])
    assert ConstituencyTree.from_brackets(deep.brackets()).spans == deep.spans
    assert deep.nltk_tree().label() == "X"


@pytest.mark.parametrize(
    ("label", "base"),
    [("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("-LRB-", "-LRB-"), ("S", "S"), ("NP##case=nom##", "NP"), ("$,--", "$,")],
)
def test_base_labels(label, base):
    assert base_label(label) == base
