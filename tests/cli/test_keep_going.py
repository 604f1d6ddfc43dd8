"""`--keep-going`: one tree, item or line that cannot be read is left out, and the command fails at its end."""

import json

import pytest
from cli.cases import fails, save_model
from conftest import run

MRG = "( (S (DT the) (NN dog)) )\n"
LINZEN = "the dog sleeps .\tVBZ\t3\t0\n"
HEADER = "sentence\tverb_pos\tverb_index\tn_diff_intervening\n"
PAIR = json.dumps({"good": "the dog sleeps .", "bad": "the dog sees ."}) + "\n"
TREE = json.dumps({"brackets": "(S (DT the) (NN old) (NN dog))"}) + "\n"
# By command: its file with a part that cannot be read between two that can, the message, and what counts the rest.
BROKEN = {
    "strengths {m} --data {f}": ("t.mrg", MRG + "(S (DT the)\n" + MRG, "line 2 lacks 1 closing", "n_sentences"),
    "parse-f1 {m} --convention prpn --data {f}": (
        "t.jsonl",
        TREE + "{}\n" + TREE,
        "line 2: no tree",
        "n_sentences",
    ),
    "perplexity {m} --data {f}": ("t.csv", "text,id\nthe dog,1\nthe dog\na cat,3\n", "row 2 (line 3)", "n_sentences"),
    "minimal-pairs {m} --words given --format pairs --data {f}": (
        "p.jsonl",
        PAIR + "[]\n" + PAIR,
        "line 2: a JSON object",
        "n",
    ),
    "agreement {m} --oov wrong --format linzen --data {f}": (
        "l.tsv",
        HEADER + LINZEN + LINZEN.replace("3", "9") + LINZEN,
        "row 2: verb_index: index 9 is outside a sentence of 4 words",
        "n_items",
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("models") / "model")


@pytest.mark.parametrize("command", BROKEN)
def test_one_part_is_left_out(capsys, model, tmp_path, command):
    name, content, message, count = BROKEN[command]
    (tmp_path / name).write_text(content)
    arguments = command.format(m=model, f=tmp_path / name).split()
    assert message in fails(capsys, *arguments)
    status, out, err = run(capsys, *arguments, "--keep-going", "--json")
    assert status == 2
    assert sum(line.startswith("left out: ") for line in err.splitlines()) == 1
    assert message in err.splitlines()[-1]
    assert json.loads(out)[count] == 2
