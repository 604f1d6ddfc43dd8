"""Where parses attach stops and prepositional phrases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.parsing import Attachments, ConstituencyTree, compare_attachments, left_branching, right_branching
from stack_lm.parsing.attachment import FINAL_STOP, KINDS

TREE = """(S (NP-SBJ (DT the) (NN man)) (VP (VBD saw) (NP (NP (DT the) (NN dog)) (PP-LOC (IN in) (NP (NN town))))
           (PP (IN on) (NP (NNP Monday)))) (. .))"""


def tree(text):
    return ConstituencyTree.from_brackets(text)


def test_counts():
    gold = tree(TREE)
    # The first phrase attaches to the verb, the second to "the dog in town", the stop to it.
    verb_phrase = "(X (X saw) (X (X the) (X dog)) (X (X in) (X town)))"
    higher = f"(X (X (X the) (X man)) (X {verb_phrase} (X (X on) (X Monday)) (X .)))"
    found = compare_attachments([gold], [tree(higher)])
    assert found == {
        FINAL_STOP: Attachments(gold=1, found=1, lower=1),
        "PP in NP": Attachments(gold=1, found=1, higher=1),
        "PP in VP": Attachments(gold=1, found=1, same=1),
    }
    lower = "(X (X (X the) (X man)) (X (X saw) (X (X the) (X dog) (X (X in) (X town)) (X (X on) (X Monday)))) (X .))"
    found = compare_attachments([gold, gold], [tree(lower), gold])
    assert found == {
        FINAL_STOP: Attachments(gold=2, found=2, same=2),
        "PP in NP": Attachments(gold=2, found=2, same=2),
        "PP in VP": Attachments(gold=2, found=2, same=1, lower=1),
    }


def test_phrases_that_a_parse_lacks_are_not_found():
    gold = tree(TREE)
    found = compare_attachments([gold], [left_branching(gold.words)])
    assert [found[kind].found for kind in KINDS] == [1, 0, 0]
    assert found[FINAL_STOP].same == 1
    assert compare_attachments([gold], [right_branching(gold.words)])[FINAL_STOP].lower == 1


def test_unary_phrases_and_other_words():
    gold = tree("(ROOT (S (VP (VB go) (PP (IN to) (NP (PRP it)))) (. !)))")
    found = compare_attachments([gold], [tree("(X (X go) (X (X (X to) (X it)) (X !)))")])
    assert found["PP in VP"] == Attachments(gold=1, found=1, lower=1)
    bare = tree("(. .)")
    assert compare_attachments([bare], [bare])[FINAL_STOP] == Attachments()
    with pytest.raises(InputError, match="the parse has other words"):
        compare_attachments([gold], [bare])
    with pytest.raises(InputError, match="there are 1 parses for 2 gold trees"):
        compare_attachments([gold, gold], [gold])


@given(st.lists(st.sampled_from(["a", "b"]), min_size=2, max_size=9), st.data())
def test_every_tree_attaches_as_itself(words, data):
    def phrase(start, stop):
        if stop - start == 1:
            return f"({data.draw(st.sampled_from(['IN', '.', 'NN']))} {words[start]})"
        middle = data.draw(st.integers(start + 1, stop - 1))
        label = data.draw(st.sampled_from(["NP", "PP", "VP", "S"]))
        return f"({label} {phrase(start, middle)} {phrase(middle, stop)})"

    gold = tree(phrase(0, len(words)))
    for count in compare_attachments([gold], [gold]).values():
        assert count.gold == count.found == count.same
        assert count.higher == count.lower == 0
