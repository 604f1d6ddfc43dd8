"""Dependency trees: their phrases against the yields of all words, and the frames of verbs."""

import dataclasses

import pytest
from conftest import REAL_DATA, needs_real_data
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.parsing import ConstituencyTree, read_treebank, score_trees
from stack_lm.parsing.baselines import left_branching, right_branching
from stack_lm.parsing.conventions import CONVENTIONS
from stack_lm.parsing.dependencies import edges_of, tree_of_dependencies, verb_frames_of
from stack_lm.text.conllu import Dependent


def parts_of(heads, relations=None, words=None):
    relations = relations or ["dep"] * len(heads)
    words = words or range(len(heads))
    return [Dependent(word, str(head), relation) for word, head, relation in zip(words, heads, relations, strict=True)]


@st.composite
def random_heads(draw):
    """The heads of a random tree over 1 to 8 words, from 1; 0 is the root."""
    n = draw(st.integers(1, 8))
    order = draw(st.permutations(range(n)))
    heads = [0] * n
    for i, word in enumerate(order[1:], start=1):
        heads[word] = order[draw(st.integers(0, i - 1))] + 1
    return heads


@given(random_heads())
def test_phrases_are_the_yields_without_gaps(heads):
    n = len(heads)

    def is_below(word, top):
        while word >= 0:
            if word == top:
                return True
            word = heads[word] - 1
        return False

    yields = [[word for word in range(n) if is_below(word, top)] for top in range(n)]
    expected = {(some[0], some[-1] + 1) for some in yields if len(some) == some[-1] + 1 - some[0] > 1} | {(0, n)}
    tree = tree_of_dependencies([f"w{i}" for i in range(n)], None, parts_of(heads))
    assert {span[:2] for span in tree.spans} == expected
    assert len(tree.spans) == len(expected)
    assert str(tree)  # its phrases are nested


@given(random_heads())
def test_the_phrases_of_a_tree_join_each_word_to_its_head(heads):
    """All but the heads of phrases that have gaps."""
    tree = tree_of_dependencies([f"w{i}" for i in range(len(heads))], None, parts_of(heads))
    joined = {frozenset((i, head - 1)) for i, head in enumerate(heads) if head}
    found = edges_of(tree, tree.arcs, "gold")
    assert len(found) == len(heads) - 1
    if len(tree.spans) == sum(head > 0 for head in map(heads.count, range(1, len(heads) + 1))):
        assert found == joined


def test_uuas_by_hand():
    """The dog sees a cat: the-dog, dog-sees, a-cat and cat-sees; the full stop is removed."""
    tags = "DET NOUN VERB DET NOUN PUNCT".split()
    relations = "det nsubj root det obj punct".split()
    gold = tree_of_dependencies("the dog sees a cat .".split(), tags, parts_of([2, 3, 0, 5, 3, 3], relations))
    tree = ConstituencyTree.unlabelled(gold.words, [(0, 6), (0, 5), (0, 3), (1, 3), (3, 5)])
    # ((the (dog sees)) (a cat)): dog-sees, the-sees, a-cat and sees-cat; the last and first words of phrases: others
    score = score_trees([gold], [tree], "uuas")
    assert (score.f1, score.counts.tolist()) == (75, [[3, 4, 4]])
    assert score.label_recall == {"det": 50, "nsubj": 100, "obj": 100}
    for heads, right, left in (("first", 3, 1), ("last", 2, 3), ("gold", 3, 3)):
        rules = dataclasses.replace(CONVENTIONS.find("uuas"), heads=heads)
        for n, make in ((right, right_branching), (left, left_branching)):
            assert score_trees([gold], [make(gold.words)], rules).counts.tolist() == [[n, 4, 4]]
    with pytest.raises(InputError, match=r"uuas is for dependency trees \(.conllu\)"):
        score_trees([tree], [tree], "uuas")


def test_words_of_several_parts_are_never_cut():
    """Je viens du parc: "du" is "de", of "parc", and "le"; in "donne-le-moi" both parts depend on the verb."""
    parts = parts_of([2, 0, 5, 5, 2], ["nsubj", "root", "case", "det", "obl"], [0, 1, 2, 2, 3])
    tree = tree_of_dependencies("Je viens du parc".split(), ["PRON", "VERB", "ADP+DET", "NOUN"], parts)
    assert tree.spans == ((0, 4, "root"), (2, 4, "obl"))
    parts = parts_of([2, 0, 2, 5, 2], words=[0, 1, 2, 2, 3])  # "le" is of "parc", "de" is not
    assert tree_of_dependencies("Je viens du parc".split(), None, parts).spans == ((0, 4, "dep"),)


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ("2 1", "s: a word depends on itself"),
        ("1 0", "s: a word depends on itself"),
        ("0 3", r"s: a head must be a number up to 2; got '3' \(column 7\)"),
        ("0 _", "s: a head must be a number up to 2; got '_'"),
    ],
)
def test_no_tree(heads, message):
    with pytest.raises(InputError, match=message):
        tree_of_dependencies(["a", "b"], None, parts_of(heads.split()), "s")


def test_frames():
    tags = "PRON VERB PRON VERB NOUN VERB".split()
    parts = parts_of([2, 0, 4, 2, 4, 5], ["nsubj", "root", "nsubj", "ccomp", "obj", "acl:relcl"])
    assert verb_frames_of(tags, parts) == [None, "clausal", None, "transitive", None, None]
    assert verb_frames_of(["NOUN", "VERB"], parts_of([2, 0], ["nsubj:pass", "root"])) == [None, None]
    assert verb_frames_of(["NOUN", "VERB"], parts_of([2, 0], ["nsubj", "root"])) == [None, "intransitive"]


def test_a_file_keeps_the_numbers_of_its_sentences(tmp_path):
    rows = ["1\tno\t_\tADV\t_\t_\t0\troot\t_\t_\n2\tdogs\t_\tNOUN\t_\t_\t1\tdep\t_\t_\n\n"]
    rows.append(rows[0].replace("\t0\t", "\t7\t"))
    (tmp_path / "a.conllu").write_text("".join([*rows, rows[0]]))
    errors = []
    trees = read_treebank(str(tmp_path / "a.conllu"), on_error=errors.append)
    assert [tree.origin.rpartition(", ")[2] for tree in trees] == ["sentence 1", "sentence 3"]
    assert "a.conllu, sentence 2: a head must be a number up to 2; got '7'" in str(errors[0])


@needs_real_data
@pytest.mark.parametrize("name", ["en_gum", "de_gsd"])
def test_real_treebanks(name):
    trees = read_treebank(str(REAL_DATA / "ud" / f"{name}-ud-dev.conllu"))
    assert len(trees) > 700
    assert {tree.spans[0][:2] for tree in trees} == {(0, len(tree)) for tree in trees}
