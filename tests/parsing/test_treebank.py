"""Reading treebanks."""

import json
import sys
from io import BytesIO
from types import SimpleNamespace

import pytest
from conftest import needs_real_data

from stack_lm.errors import InputError
from stack_lm.parsing import read_treebank
from stack_lm.parsing.trees import to_plain

MRG = "( (S (NP (-NONE- *)) (VP (VB Go) (ADVP (RB away))) (. !)) )\n*x*remark\n\n( (NP (NN a)\n (NN b)) )\n"


def plain(source):
    return [to_plain(tree) for tree in read_treebank(str(source))]


def test_mrg_file_and_directory(tmp_path):
    for section in ("00", "01"):
        (tmp_path / section).mkdir()
        (tmp_path / section / f"wsj_{section}01.mrg").write_text(MRG)
    (tmp_path / "readme.txt").write_text("not trees")
    assert plain(tmp_path / "00" / "wsj_0001.mrg") == ["((Go away) !)", "(a b)"]
    assert plain(tmp_path) == ["((Go away) !)", "(a b)"] * 2


def test_json_lines(tmp_path):
    path = tmp_path / "ptb.jsonl"
    rows = [{"sentence1": "a b c", "sentence1_binary_parse": "( ( a b ) c )"}, {"tree": "(x y)"}]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert plain(path) == ["((a b) c)", "(x y)"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(b"(X (X a) (X b))\n")))
    assert plain("-") == ["(a b)"]


@needs_real_data
def test_nltk_sample():
    trees = read_treebank("nltk:treebank")
    assert len(trees) == 3914
    assert trees[0].leaves()[:3] == ["Pierre", "Vinken", ","]
    assert not any(leaf.startswith("*T*") for tree in trees for leaf in tree.leaves())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.mrg", None, "t.mrg does not exist"),
        ("t.mrg", "\n", "t.mrg is empty"),
        ("t.mrg", "(S (NN a)\n", "t.mrg: the tree that starts on line 1 lacks 1 closing bracket"),
        ("t.mrg", "( (NP (-NONE- *)) )", "t.mrg has no trees"),
        ("t.jsonl", "{", "t.jsonl, line 1: not JSON"),
        ("t.jsonl", '{"a": 1}', "t.jsonl, line 1: no binary parse; one of sentence1_binary_parse"),
        ("t.jsonl", '{"tree": "( a"}', "t.jsonl, line 1: 1 closing brackets are missing"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_treebank(str(tmp_path / name))


def test_bad_names(tmp_path):
    with pytest.raises(InputError, match="has no .mrg, .jsonl, .tree or .txt files"):
        read_treebank(str(tmp_path))
    with pytest.raises(InputError, match="the only treebank of NLTK .* is nltk:treebank; got 'nltk:brown'"):
        read_treebank("nltk:brown")
