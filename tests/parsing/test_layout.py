"""Where the phrases of trees are drawn."""

from hypothesis import given
from hypothesis import strategies as st

from stack_lm.parsing import ConstituencyTree, tree_from_distances
from stack_lm.parsing.layout import PlacedPhrase, place_phrases


def test_by_hand():
    tree = ConstituencyTree.from_brackets("(S (NP (DT the) (NN cat)) (VP (VBD sat)) (. .))")
    assert place_phrases(tree, [0, 10, 30, 40]) == [
        PlacedPhrase(22.5, 2, [(5.0, 1), (30.0, 1), (40.0, 0)]),
        PlacedPhrase(5.0, 1, [(0.0, 0), (10.0, 0)]),
        PlacedPhrase(30.0, 1, [(30.0, 0)]),
    ]
    assert place_phrases(ConstituencyTree.unlabelled(["one"], []), [0]) == []


@given(st.lists(st.floats(0, 9), min_size=1, max_size=12))
def test_a_phrase_is_above_its_children_and_over_its_words(distances):
    tree = tree_from_distances([f"w{i}" for i in range(len(distances))], distances)
    phrases = place_phrases(tree, range(len(tree)))
    assert len(phrases) == len(tree.spans)
    for (start, stop, _), phrase in zip(tree.spans, phrases, strict=True):
        assert phrase.level == 1 + max(level for _, level in phrase.children)
        assert start <= phrase.middle <= stop - 1
        assert [x for x, _ in phrase.children] == sorted(x for x, _ in phrase.children)
