"""Reading treebanks, and what parsers wrote."""

import gzip
import json
import sys
from io import BytesIO
from types import SimpleNamespace

import pytest
from conftest import needs_real_data
from nltk.tree import Tree

from stack_lm.core.errors import InputError, NoTree
from stack_lm.parsing import read_every_tree, read_predictions, read_treebank
from stack_lm.parsing.export import tree_record
from stack_lm.parsing.trees import ConstituencyTree

MRG = "( (S (NP (-NONE- *)) (VP (VB Go) (ADVP (RB away))) (. !)) )\n*x*remark\n\n( (NP (NN a)\n (NN b)) )\n"


def plain(source, **options):
    return [str(tree) for tree in read_treebank(str(source), **options)]


def test_mrg_file_and_directory(tmp_path):
    for section in ("00", "01"):
        (tmp_path / section).mkdir()
        (tmp_path / section / f"wsj_{section}01.mrg").write_text(MRG)
    (tmp_path / "readme.txt").write_text("not trees")
    assert plain(tmp_path / "00" / "wsj_0001.mrg") == ["((Go away) !)", "(a b)"]
    assert plain(tmp_path) == ["((Go away) !)", "(a b)"] * 2
    assert read_treebank(str(tmp_path))[1].origin == f"{tmp_path}/00/wsj_0001.mrg, line 4"


def test_json_lines(tmp_path):
    path = tmp_path / "ptb.jsonl"
    rows = [
        {"sentence1": "a b c", "sentence1_binary_parse": "( ( a b ) c )"},
        {"tree": "(x y)"},
        {"words": ["a", "b", "c", "d"], "distances": [1, 2, 3, 1]},
        {"sentence": "a b c d", "distances": [2, 3, 1]},
        {"brackets": "(S (NP (NN a)) (VBZ b))", "distances": [1, 2]},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert plain(path) == ["((a b) c)", "(x y)", "((a b) (c d))", "((a b) (c d))", "(a b)"]
    assert plain(path, decoder="gap")[2] == "((a b) (c d))"
    assert read_treebank(str(path))[4].spans == ((0, 2, "S"), (0, 1, "NP"))


def test_json_lists(tmp_path):
    path = tmp_path / "ptb.json"
    rows = [{"tree": "(a b)"}, {"tree": "(a"}, None, {"brackets": ""}, {"words": "x y", "distances": [1, 2]}, 3]
    path.write_text(json.dumps(rows, indent=1))
    problems = []
    assert plain(path, on_error=problems.append) == ["(a b)", "(x y)"]
    assert [str(problem).removeprefix(f"{path}, ") for problem in problems] == [
        "item 2: the tree that starts on line 1 lacks 1 closing bracket",
        "item 3: a JSON object is needed; got 'None'",
        "item 6: a JSON object is needed; got '3'",
    ]
    trees = read_predictions(str(path), on_error=lambda _: None)
    assert [tree and str(tree) for tree in trees] == ["(a b)", None, None, None, "(x y)", None]
    with pytest.raises(InputError, match="item 2: the tree that starts on line 1 lacks"):
        read_predictions(str(path))


def test_a_tree_as_json_is_read_again(tmp_path):
    path = tmp_path / "trees.jsonl"
    tree = ConstituencyTree.from_brackets("(S (NP-SBJ (DT the) (NN cat)) (VP (VBD sat)))")
    path.write_text(json.dumps(tree_record(tree, [3.0, 1.0, 2.0])))
    packed = tmp_path / "trees.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_treebank(str(path)) == read_predictions(str(path)) == read_predictions(str(packed)) == [tree]
    assert json.loads(path.read_text())["distances"] == [3.0, 1.0, 2.0]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(b"(X (X a) (X b))\n")))
    assert plain("-") == ["(a b)"]


@needs_real_data
@pytest.mark.slow
def test_the_nltk_sample_is_nltks_own():
    """Against NLTK's reader."""
    from nltk.corpus import treebank

    def strip(node):
        if isinstance(node[0], str):
            return None if node.label() == "-NONE-" else node
        children = [child for child in map(strip, node) if child is not None]
        return Tree(node.label(), children) if children else None

    for tree, flat in zip(treebank.parsed_sents(), read_treebank("nltk:treebank"), strict=True):
        assert flat.nltk_tree() == strip(tree)


def test_predictions_keep_their_places(tmp_path):
    path = tmp_path / "predicted.txt"
    path.write_text("(X (X a) (X b))\n\n(X (X c)\n(X (X d) (X e))\n")
    problems = []
    trees = read_predictions(str(path), on_error=problems.append)
    assert [tree and str(tree) for tree in trees] == ["(a b)", None, None, "(d e)"]
    assert [str(problem) for problem in problems] == [
        f"{path}, line 2: the line is empty; each line must have a tree",
        f"{path}: the tree that starts on line 3 lacks 1 closing bracket",
    ]
    with pytest.raises(InputError, match="line 2: the line is empty"):
        read_predictions(str(path))


def test_files_that_cannot_be_read_are_left_out(tmp_path):
    (tmp_path / "a.mrg").write_text("(S (NN a)")
    (tmp_path / "b.mrg").write_text(MRG)
    (tmp_path / "c.mrg").write_bytes(b"(S (NN \xff))")
    problems = []
    assert plain(tmp_path, on_error=problems.append) == ["((Go away) !)", "(a b)"]
    assert [str(problem).split(": ", 1)[1] for problem in problems] == [
        "the tree that starts on line 1 lacks 1 closing bracket",
        "not UTF-8 text (invalid start byte); if it is Latin-1, convert it: iconv -f latin1 -t utf8",
    ]
    (tmp_path / "b.mrg").unlink()
    with pytest.raises(InputError, match="has no trees that can be read"):
        read_treebank(str(tmp_path), on_error=problems.append)


UNREADABLE = ["(S (NN c)", "(S (NN c)))", "(S (NP) (NN c))", "c"]


@pytest.mark.parametrize("tree", ["(S (-NONE- *))", "(())", "( (S (NP)) )", *UNREADABLE])
def test_gold_trees_that_are_left_out_keep_their_places(tmp_path, tree):
    """Predictions there, if there are any, are left out too."""
    gold, predicted = tmp_path / "gold.mrg", tmp_path / "predicted.mrg"
    gold.write_text(f"(S (NN a))\n{tree}\n(S (NN b))\n")
    problems = []
    trees = read_every_tree(str(gold), on_error=problems.append)
    assert [tree and str(tree) for tree in trees] == ["a", None, "b"]
    assert len(problems) == (tree in UNREADABLE)
    for line in (f"{tree}\n", "\n", "(X c)\n", ""):
        predicted.write_text(f"(X a)\n{line}(X b)\n")
        assert [tree and str(tree) for tree in read_predictions(str(predicted), gold=trees)] == ["a", None, "b"]


def test_sentences_of_conllu_that_are_left_out_keep_their_places(tmp_path):
    row = "{}\ta\t_\tX\t_\t_\t{}\t_\t_\t_\n"
    good, bad = row.format(1, 2) + row.format(2, 0) + "\n", row.format(2, 0) + "\n"
    (tmp_path / "a.conllu").write_text(bad + good + bad)
    problems = []
    trees = read_every_tree(str(tmp_path / "a.conllu"), on_error=problems.append)
    assert [tree is None for tree in trees] == [True, False, True]
    assert len(problems) == 2


def test_predictions_without_words(tmp_path):
    """As parsers write them that found no tree."""
    path = tmp_path / "predicted.mrg"
    path.write_text("(X a)\n(())\n")
    with pytest.raises(NoTree, match="predicted.mrg, line 2: the tree has no words"):
        read_predictions(str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "t.mrg",
            None,
            "t.mrg does not exist; trees come from a file, a directory or nltk:treebank",
        ),
        (
            "t.jsonl",
            '{"a": 1}',
            "t.jsonl, line 1: no tree; one of brackets, sentence1_binary_parse, .* must be a string",
        ),
        ("t.jsonl", '{"words": ["a"], "distances": "1"}', "line 1: distances must be a list; got '1'"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_treebank(str(tmp_path / name))
