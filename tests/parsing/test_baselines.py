"""Trees that need no model, and what they score on NLTK's sample of the Penn Treebank."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from conftest import REAL_DATA

from stack_lm.parsing import get_convention, prepare_gold, read_treebank, score_trees
from stack_lm.parsing.averages import summarize
from stack_lm.parsing.baselines import FIXED_BASELINES, RANDOM_BASELINES

# By the names of the reference file.
NAMES = {
    "left": "left",
    "right": "right",
    "balanced": "balanced_floor",
    "random distances": "random_alg1",
    "random merges": "random_merge",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("left", "((((a b) c) d) e)"),
        ("right", "(a (b (c (d e))))"),
        ("balanced", "((a b) (c (d e)))"),
    ],
)
def test_fixed_trees_by_hand(name, expected):
    assert str(FIXED_BASELINES[name]("abcde")) == expected


def test_all_are_binary_over_the_words():
    rng = random.Random(0)
    makers = [*FIXED_BASELINES.values(), *(lambda w, draw=draw: draw(w, rng) for draw in RANDOM_BASELINES.values())]
    for make in makers:
        for n in range(1, 20):
            tree = make([str(i) for i in range(n)])
            assert tree.words == tuple(str(i) for i in range(n))
            assert all(len(children) == 2 for children in tree.children())
            assert len(set(tree.spans)) == n - 1


# --- the reference numbers


@pytest.fixture(scope="module")
def wsj():
    if not REAL_DATA.is_dir():
        pytest.skip(f"no real data at {REAL_DATA}")
    reference = json.loads((REAL_DATA / "parsing" / "reference_wsj_sample.json").read_text())
    return read_treebank("nltk:treebank"), reference


REMOVED = {"kept": "nothing", "no_period": "period", "punct_only": "punctuation", "prpn": "punctuation+currency"}
GOLD = {"nonbin": "annotated", "rbin": "right"}


def make_all(name, words, seed=0):
    """Trees of a fixed baseline, or one draw of a random one."""
    if name in FIXED_BASELINES:
        return [FIXED_BASELINES[name](sentence) for sentence in words]
    rng = random.Random(seed)
    return [RANDOM_BASELINES[name](sentence, rng) for sentence in words]


def check_row(wsj, row, names):
    """All numbers of one row of the reference file: sentence F1 of several sets of sentences, and corpus F1."""
    trees, reference = wsj
    corpus, punctuation, form, subset = row.split("/")
    rules = replace(
        get_convention("prpn"),
        removed=REMOVED[punctuation],
        removed_by="tags" if corpus == "nltk_pos" else "tokens",
        gold=GOLD[form],
    )
    gold = [prepare_gold(tree, rules) for tree in trees]
    longest = {"full": 10**6, "len10": 10, "len40": 40}[subset]
    gold = [item for item in gold if item.length <= longest]
    for name in names:
        expected = reference["baselines"][row].get(NAMES[name])
        if expected is None:  # random trees are not scored against binarised ones
            continue
        words = [item.kept_words or item.annotated.words for item in gold]
        # The reference has means of five draws.
        draws = 1 if name in FIXED_BASELINES else 5 if subset != "len10" else 20
        made = [tree for seed in range(draws) for tree in make_all(name, words, seed)]
        found = {}
        for root, whole in (("noroot", "excluded"), ("root", "counted")):
            score = score_trees(gold * draws, made, replace(rules, whole_sentence=whole))
            lengths, counts = score.lengths, score.counts
            chosen = {"all": lengths > -1, "gt1": lengths > 1, "gt2": lengths > 2, "goldspan": counts[:, 2] > 0}
            for key, mask in chosen.items():
                found[f"sF1_{root}_{key}"] = summarize(counts[mask], score.convention).f1
                if root == "noroot":
                    assert mask.sum() == draws * expected[f"n_{key}"], (row, name, key)
            together = summarize(counts, replace(score.convention, average="corpus"))
            found |= {f"cF1_{root}": together.f1, f"cP_{root}": together.precision, f"cR_{root}": together.recall}
        keys = [key for key in expected if not key.startswith("n_") and not key.endswith("_std")]
        assert set(keys) <= set(found)
        # Of the short ones the reference, a mean of five draws, has a standard error of 0.5 itself.
        tolerance = (0.5 if subset != "len10" else 1.2) if name in RANDOM_BASELINES else 0.05
        for key in keys:
            assert found[key] == pytest.approx(expected[key], abs=tolerance), (row, name, key)


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["nltk_pos", "nltk_tok"])
def test_all_rows(wsj, corpus):
    rows = [row for row in wsj[1]["baselines"] if row.startswith(corpus)]
    assert len(rows) >= 12
    for row in rows:
        check_row(wsj, row, NAMES)


@pytest.mark.slow
def test_label_recall(wsj):
    trees, reference = wsj
    for punctuation in ("prpn", "kept"):
        rules = replace(get_convention("prpn"), removed=REMOVED[punctuation])
        gold = [prepare_gold(tree, rules) for tree in trees]
        words = [item.kept_words or item.annotated.words for item in gold]
        expected = reference["label_recall_nltk"][f"nltk/{punctuation}/root"]
        for name, make in FIXED_BASELINES.items():
            score = score_trees(gold, [make(w) for w in words], rules)
            for label, value in expected[NAMES[name]].items():
                assert score.label_recall[label] == pytest.approx(value, abs=0.01)
                assert score.label_counts[label] == expected["_n"][label]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("left", 13.09), ("right", 15.99), ("random merges", 21.31)],
)
def test_head_binarised_trees(wsj, name, expected):
    """The row `htut`, n > 1: whole sentence counted, sentences of one word left out."""
    trees, _ = wsj
    rules = replace(get_convention("htut"), min_words=2)
    score = score_trees(trees, make_all(name, [tree.words for tree in trees]), rules)
    assert score.n_sentences == 3913
    assert score.f1 == pytest.approx(expected, abs=0.5 if name.startswith("random") else 0.05)


def test_the_best_binary_trees(wsj):
    """Their recall is 100, and what keeps F1 below it are phrases of three and more."""
    trees, _ = wsj
    gold = [prepare_gold(tree, get_convention("prpn")) for tree in trees]
    best = [(item.tree or item.annotated).binarize(lambda label, children: 0) for item in gold]
    score = score_trees(gold, best, "prpn")
    assert score.recall == pytest.approx(100, abs=1e-4)
    assert 80 < score.f1 < 90
    assert np.all(score.counts[:, 0] == score.counts[:, 2])
