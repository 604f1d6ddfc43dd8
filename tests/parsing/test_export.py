"""Trees as LaTeX, JSON lines, pictures and pages."""

import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.parsing import ConstituencyTree, balanced, read_treebank, right_branching, tree_from_distances
from stack_lm.parsing.drawing import PlacedPhrase, draw_trees, place_phrases
from stack_lm.parsing.export import forest_document, to_forest, write_trees
from stack_lm.parsing.page import trees_page

GOLD = ConstituencyTree.from_brackets("(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD sat) (ADVP (RB down))))", "gold")
FOUND = right_branching(GOLD.words)


def test_forest_by_hand():
    assert to_forest(GOLD).splitlines() == [
        r"\begin{forest}",
        "  [{S} [{NP} [{DT} [{the}]] [{JJ} [{old}]] [{NN} [{cat}]]] [{VP} [{VBD} [{sat}]] [{ADVP} [{RB} [{down}]]]]]",
        r"\end{forest}",
    ]


@given(st.lists(st.text("a,[]{}=\\$%_&#~^", min_size=1, max_size=4), min_size=1, max_size=6))
def test_latex_specials_are_escaped(words):
    text = to_forest(right_branching(words))
    plain = text.replace(r"\textbackslash{}", "").replace(r"\textasciitilde{}", "").replace(r"\textasciicircum{}", "")
    plain = re.sub(r"\\[#$%&_{}]", "", plain.replace(r"\begin{forest}", "").replace(r"\end{forest}", ""))
    assert not re.search(r"[\\#$%&_~^]", plain)
    assert plain.count("{") == plain.count("}")


@pytest.mark.slow
def test_latex_sets_it(tmp_path):
    if not shutil.which("pdflatex") or not subprocess.run(["kpsewhich", "forest.sty"], capture_output=True).stdout:
        pytest.skip("pdflatex, or its package forest, is not installed")
    words = ["50%_of\\x", "{sat}", ",", "[a]", "$#&~^", "=", "é", "\x01", "<b>"]
    trees = [GOLD, right_branching(words), balanced(words * 5)]
    (tmp_path / "trees.tex").write_text(forest_document(trees), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "trees.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-1000:]
    assert (tmp_path / "trees.pdf").stat().st_size > 1000


NAMESPACE = "{http://www.w3.org/2000/svg}"


def parts(svg, tag):
    return list(ElementTree.fromstring(svg).iter(NAMESPACE + tag))


def test_right_and_wrong_spans_are_told_apart():
    """Of (0, 5), (1, 5), (2, 5), (3, 5) the first and last are right; gold has (0, 5), (0, 3), (3, 5), and (4, 5)."""
    svg = draw_trees([FOUND], [GOLD])
    kinds = [path.get("class") for path in parts(svg, "path")[2:]]  # the first two are the legend
    assert kinds == ["right", "wrong", "wrong", "right", *("right", "wrong", "right", "plain")]
    texts = [text.text for text in parts(svg, "text")]
    assert "gold: 1 of 2 spans are found" in texts
    assert "gold, line 1: 1 of 3 predicted spans are right" in texts
    assert [texts.count(word) for word in GOLD.words] == [2] * 5
    assert {"S", "NP", "VP", "ADVP"} <= set(texts)


def test_a_picture_without_gold():
    svg = draw_trees([GOLD, FOUND, ConstituencyTree.unlabelled(["one"], [])])
    assert {path.get("class") for path in parts(svg, "path")} == {"plain"}
    assert not re.search("https?://(?!www.w3.org/2000/svg)", svg)


def test_files_by_their_endings(tmp_path):
    distances = [np.arange(5.0)]
    for ending, start in (
        ("html", "<!DOCTYPE html>"),
        ("jsonl", '{"words": ["the"'),
        ("tex", "\\documentclass"),
        ("svg", "<svg"),
        ("mrg", "(X (X the) (X (X old)"),
    ):
        path = tmp_path / f"trees.{ending}"
        write_trees(str(path), [FOUND], distances=distances, gold=[GOLD])
        assert path.read_text().startswith(start)
    for ending in ("jsonl", "mrg"):
        assert [tree.spans for tree in read_treebank(str(tmp_path / f"trees.{ending}"))] == [FOUND.spans]
    record = json.loads((tmp_path / "trees.jsonl").read_text())
    assert record["distances"] == [0, 1, 2, 3, 4]
    assert record["gold"] == GOLD.brackets()
    assert record["spans"][1] == [1, 5, "X"]
    with pytest.raises(InputError, match="is a directory"):
        write_trees(str(tmp_path), [FOUND])


HOSTILE = ["<b>", "&amp;", "</script>", "$x$", "a\x01b", "\ufffe", "漢字", "😀", "שלום", "e\u0301"]


@given(st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=8))
def test_any_text_is_well_formed_and_shown(words):
    svg = draw_trees([right_branching(words)])
    shown = [text.text for text in parts(svg, "text")]
    assert shown == [re.sub("[\x01\ufffe]", "\ufffd", word) for word in words]


def test_a_page_of_trees():
    page = trees_page([FOUND, None, right_branching(["<b>", "&"])], source="<models>/m")
    # A page is HTML; these are the parts of it that XML has too.
    body = re.sub("<(input[^>]*)>", r"<\1/>", re.search("<body>(.*)</body>", page, re.DOTALL)[1])
    tree = ElementTree.fromstring(f"<body>{body}</body>")
    assert [article.get("id") for article in tree.iter("article")] == ["t1", "t3"]
    links = [link.get("href") for link in tree.find("nav").iter("a")]
    assert links == ["#t1", "#t3"]
    titles = ["".join(title.itertext()) for title in tree.iter("h2")]
    assert titles == ["1 the old cat sat down", "3 <b> &"]
    assert tree.find("header/h1").text == "2 trees: <models>/m"
    assert len(list(tree.iter(NAMESPACE + "svg"))) == 2
    assert not re.search("https?://(?!www.w3.org/2000/svg)", page)


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("x")
    for name, message in (
        ("folder.html", "is a directory"),
        ("file/t.svg", "cannot make the directory"),
        ("t.png", "trees are written to"),
    ):
        with pytest.raises(InputError, match=message):
            write_trees(str(tmp_path / name), [FOUND])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.html"]


def test_places_of_phrases_by_hand():
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
