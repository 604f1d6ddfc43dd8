"""Trees as LaTeX, JSON lines and pictures."""

import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.errors import InputError
from stack_lm.parsing import ConstituencyTree, read_treebank, right_branching
from stack_lm.parsing.export import draw_trees, forest_document, to_forest, write_trees

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


def test_forest_is_a_document():
    text = forest_document([GOLD, FOUND])
    assert text.count(r"\begin{forest}") == 2
    assert text.startswith(r"\documentclass")
    assert text.endswith("\\end{document}\n")


@pytest.mark.slow
def test_latex_sets_it(tmp_path):
    if not shutil.which("pdflatex") or not subprocess.run(["kpsewhich", "forest.sty"], capture_output=True).stdout:
        pytest.skip("pdflatex, or its package forest, is not installed")
    words = ["50%_of\\x", "{sat}", ",", "[a]", "$#&~^", "=", "é"]
    (tmp_path / "trees.tex").write_text(forest_document([GOLD, right_branching(words)]), encoding="utf-8")
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
    assert "gold: 2 of 3 spans are found" in texts
    assert "gold, line 1: 2 of 4 predicted spans are right" in texts
    assert [texts.count(word) for word in GOLD.words] == [2] * 5
    assert {"S", "NP", "VP", "ADVP"} <= set(texts)


def test_a_picture_without_gold():
    svg = draw_trees([GOLD, FOUND, ConstituencyTree.unlabelled(["one"], [])])
    assert {path.get("class") for path in parts(svg, "path")} == {"plain"}
    assert not re.search("https?://(?!www.w3.org/2000/svg)", svg)


def test_everything_is_inside_the_picture():
    words = [f"incomprehensibly{i}" for i in range(60)]
    svg = ElementTree.fromstring(draw_trees([right_branching(words)], [right_branching(words)]))
    width, height = float(svg.get("width")), float(svg.get("height"))
    for text in svg.iter(NAMESPACE + "text"):
        assert 0 <= float(text.get("x")) <= width
        assert 0 <= float(text.get("y")) <= height


def test_words_are_escaped():
    svg = draw_trees([right_branching(["<b>", "&", "c"])])
    assert {"<b>", "&", "c"} <= {text.text for text in parts(svg, "text")}


def test_files_by_their_endings(tmp_path):
    distances = [np.arange(5.0)]
    for ending, start in (
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
