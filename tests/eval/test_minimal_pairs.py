"""Minimal pairs: the rule, the formats, and pickles that must not run."""

import json
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import REAL_DATA, needs_real_data

from stack_lm.core.errors import InputError
from stack_lm.eval import MinimalPair, evaluate_minimal_pairs, pair_files, read_minimal_pairs, split_words


class Lengths:
    """A model that finds long words improbable, and predicts no first word."""

    predicts_first_word = False

    def __init__(self, unknown=()):
        self.unknown = unknown

    def knows(self, text, *, begins=False):
        return text not in self.unknown

    def sentence_logprobs(self, groups):
        return [np.array([-float(len("".join(words[1:]))) for words in group]) for group in groups]

    def continuation_logprobs(self, prefixes, candidates):
        return [
            np.array([-float(len(text)) - len(prefix) / 10 for text in some])
            for prefix, some in zip(prefixes, candidates, strict=True)
        ]


def pair(good, bad, before="", before_bad=None, **properties):
    before_bad = before if before_bad is None else before_bad
    return MinimalPair(*(tuple(text.split()) for text in (good, bad, before, before_bad)), properties)


PAIRS = [
    pair("a cat runs", "a cat running", construction="x", distance=1),  # right
    pair("a cat running", "a cat runs", construction="x", distance=2),  # wrong
    pair("a cat runs", "a dog runs", construction="y"),  # a tie
    pair("a b", "a b", construction="y"),  # identical
    pair("is", "are here", before="the keys", construction="z"),  # right
    pair("run", "run", before="they", before_bad="a man", construction="z"),  # two prefixes, one word: right
    pair("the end", "an zzz", construction="z"),  # unknown
]


def test_pairs():
    result = evaluate_minimal_pairs(Lengths(unknown=("zzz",)), PAIRS)
    assert result.outcomes == ("correct", "wrong", "tie", "identical", "correct", "correct", "oov")
    assert (result.n, result.accuracy, result.overall.majority) == (5, 60, None)
    assert {name: accuracy.n for name, accuracy in result.groups["construction"].items()} == {"x": 2, "y": 1, "z": 2}
    assert set(result.groups["distance"]) == {1, 2}
    mean = result.mean_over("construction")
    assert (mean.accuracy, mean.n) == (50, 5)  # of 50, 0 and 100, whatever their sizes
    assert mean.low < 50 < mean.high
    assert result.mean_over("phenomenon") is None
    record = result.record()["mean_over"]
    assert record["construction"] == {"accuracy": 50, "interval": [mean.low, mean.high], "n": 5}
    wrong = evaluate_minimal_pairs(Lengths(unknown=("zzz",)), PAIRS, oov="wrong")
    assert (wrong.n, wrong.accuracy, wrong.n_oov) == (6, 50, 1)
    # A word that both sides have may be unknown: it does not tell them apart.
    assert evaluate_minimal_pairs(Lengths(unknown=("cat",)), PAIRS[:2]).n_oov == 0


def test_differing_words():
    assert PAIRS[0].differing_words == [("runs", False), ("running", False)]
    assert pair("b a", "a b").differing_words == []
    assert PAIRS[5].differing_words == [("they", True), ("a", True), ("man", False)]
    assert [p.begins_differently for p in PAIRS[4:]] == [False, True, True]


BLIMP = {
    "sentence_good": "The dogs haven't barked.",
    "sentence_bad": "The dogs hasn't barked.",
    "field": "morphology",
    "linguistics_term": "agreement",
    "UID": "regular",
    "one_prefix_method": True,
    "two_prefix_method": False,
    "one_prefix_prefix": "The dogs",
    "one_prefix_word_good": "haven't",
    "one_prefix_word_bad": "hasn't",
    "dependency_length": 2,
}
TWO = {
    **BLIMP,
    "one_prefix_method": False,
    "two_prefix_method": True,
    "two_prefix_prefix_good": "The dogs",
    "two_prefix_prefix_bad": "The dog",
    "two_prefix_word": "bark",
}


def write_lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_blimp(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", BLIMP)
    (given,) = read_minimal_pairs(source, "blimp")
    assert given.good == ("The", "dogs", "haven't", "barked.")
    assert given.properties == {
        "construction": "regular", "phenomenon": "agreement", "field": "morphology", "distance": 2,
    }  # fmt: skip
    (split,) = read_minimal_pairs(source, "blimp", words="split")
    assert split.good == split_words("The dogs haven't barked.") == ("The", "dogs", "have", "n't", "barked", ".")
    (prefix,) = read_minimal_pairs(source, "blimp", method="prefix")
    assert (prefix.prefix_good, prefix.prefix_bad) == (("The", "dogs"),) * 2
    assert (prefix.good, prefix.bad) == (("haven't",), ("hasn't",))
    (two,) = read_minimal_pairs(write_lines(tmp_path / "b.jsonl", TWO), "blimp", method="prefix")
    assert (two.prefix_good, two.prefix_bad, two.good, two.bad) == (
        ("The", "dogs"),
        ("The", "dog"),
        ("bark",),
        ("bark",),
    )
    assert pair_files(str(tmp_path), "blimp") == [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert len(read_minimal_pairs(str(tmp_path), "blimp")) == 2
    neither = write_lines(tmp_path / "c.jsonl", {**BLIMP, "one_prefix_method": False})
    with pytest.raises(InputError, match="c.jsonl, line 1: this pair can be compared by whole sentences only"):
        read_minimal_pairs(neither, "blimp", method="prefix")


def test_tables_of_pairs(tmp_path):
    """The same pairs as from JSON lines; an empty cell is no prefix."""
    (tmp_path / "a.csv").write_text('good,bad,prefix,attractors\n"the dog, then",the dogs then,,0\nare,is,the keys,1\n')
    (tmp_path / "b.tsv").write_text("prefix_good\tprefix_bad\tgood\tbad\nthe dogs\tthe dog\tbark\tbark\n")
    (tmp_path / "bad.csv").write_text("good,bad\nthe dog,\n")
    first, second, third = read_minimal_pairs(str(tmp_path / "a.csv"), "pairs", method="sentence") + read_minimal_pairs(
        str(tmp_path / "b.tsv"), "pairs", method="prefix"
    )
    assert (first.good, first.prefix_good) == (("the", "dog,", "then"), ())
    assert (second.good, second.properties) == (("the", "keys", "are"), {"attractors": 1})
    assert (third.prefix_good, third.prefix_bad, third.good) == (("the", "dogs"), ("the", "dog"), ("bark",))
    assert [Path(file).name for file in pair_files(str(tmp_path), "pairs")] == ["a.csv", "b.tsv", "bad.csv"]
    with pytest.raises(InputError, match="bad.csv, row 1: 'bad' must be a sentence or a list of words; got ''"):
        read_minimal_pairs(str(tmp_path / "bad.csv"), "pairs")


def test_json_lines_of_pairs(tmp_path):
    rows = [
        {"good": "a dog barks", "bad": ["a", "dog", "bark"], "number": "singular", "attractors": 0},
        {"prefix": "the keys", "good": "are", "bad": "is", "weight": 0.5},
    ]
    first, second = read_minimal_pairs(write_lines(tmp_path / "p.jsonl", *rows), "pairs")
    assert first.properties == {"number": "singular", "attractors": 0}
    assert (second.good, second.bad, second.prefix_good) == (("the", "keys", "are"), ("the", "keys", "is"), ())
    source = write_lines(tmp_path / "q.jsonl", rows[1])
    (only,) = read_minimal_pairs(source, "pairs", method="prefix")
    assert (only.prefix_good, only.good) == (("the", "keys"), ("are",))
    with pytest.raises(InputError, match='p.jsonl, line 1: the method prefix needs "prefix"'):
        read_minimal_pairs(str(tmp_path / "p.jsonl"), "pairs", method="prefix")


@pytest.mark.parametrize("method", ["sentence", "prefix"])
@pytest.mark.parametrize(
    "row",
    [
        {"prefix": "the keys", "good": "the keys are", "bad": "the keys is"},
        {"prefix": "the keys", "good": "are", "bad": "is"},
        {"prefix_good": "the keys", "prefix_bad": "the keys", "good": "the keys are", "bad": "the keys is"},
    ],
)
def test_sentences_with_their_prefix_count_it_once(tmp_path, method, row):
    (pair,) = read_minimal_pairs(write_lines(tmp_path / "p.jsonl", row), "pairs", method=method)
    assert pair.prefix_good + pair.good == ("the", "keys", "are")
    assert pair.prefix_bad + pair.bad == ("the", "keys", "is")
    assert pair.prefix_good == (("the", "keys") if method == "prefix" else ())


def write_pickle(path, content, protocol=2):
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return str(path)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_templates(tmp_path, protocol):
    cases = {
        "sing": [("the author laughs", "the author laugh")],
        "npi": [("no a ever", "most a no ever", "the a ever")],
    }
    pairs = read_minimal_pairs(write_pickle(tmp_path / "simple.pickle", cases, protocol), "marvin-linzen")
    assert [p.properties.get("comparison") for p in pairs] == [
        None, "grammatical, intrusive", "grammatical, ungrammatical", "intrusive, ungrammatical",
    ]  # fmt: skip
    assert pairs[0].properties == {"construction": "simple", "case": "sing"}
    assert pairs[0].bad == ("the", "author", "laugh")
    assert pairs[3].good == ("most", "a", "no", "ever")


def test_a_pickle_that_imports_is_refused_and_does_not_run(tmp_path):
    class Attack:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    for protocol in (0, 2, 4):
        path = write_pickle(tmp_path / "evil.pickle", {"case": [("a b", "a c")], "x": Attack()}, protocol)
        with pytest.raises(InputError, match=r"evil.pickle: it wants to import \w+.open, which is refused"):
            read_minimal_pairs(path, "marvin-linzen")
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "bad.pickle is not a pickle of templates"),
        (pickle.dumps([1]), "must be a dictionary from cases to lists of sentences"),
        (pickle.dumps({"a": [("one",)]}), "case 'a', item 1: two or three sentences are needed"),
        (pickle.dumps({}), "bad.pickle has no pairs"),
    ],
)
def test_bad_templates(tmp_path, content, message):
    path = tmp_path / "bad.pickle"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_minimal_pairs(str(path), "marvin-linzen")


def test_bad_names(tmp_path):
    with pytest.raises(InputError, match="has no .pickle files"):
        pair_files(str(tmp_path), "marvin-linzen")
    with pytest.raises(InputError, match="none does not exist"):
        pair_files(str(tmp_path / "none"), "pairs")
    with pytest.raises(InputError, match="templates of Marvin and Linzen have no prefixes"):
        read_minimal_pairs(write_pickle(tmp_path / "a.pickle", {}), "marvin-linzen", method="prefix")


@needs_real_data
def test_the_real_files():
    directory = REAL_DATA / "agreement"
    pairs = read_minimal_pairs(str(directory / "marvin_linzen"), "marvin-linzen")
    counts = Counter(pair.properties["construction"] for pair in pairs)
    assert counts == {"obj_rel_across_anim": 11200, "simple_agrmt": 140}
    assert all(len(pair.differing_words) == 2 for pair in pairs)
    blimp = Counter(pair.properties["construction"] for pair in read_minimal_pairs(str(directory / "blimp"), "blimp"))
    assert set(blimp.values()) == {1000}
    one = "distractor_agreement_relational_noun"
    prefixes = read_minimal_pairs(str(directory / "blimp" / f"{one}.jsonl"), "blimp", method="prefix")
    assert Counter(pair.properties["construction"] for pair in prefixes) == {one: blimp[one]}
