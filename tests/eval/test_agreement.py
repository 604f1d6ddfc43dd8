"""Agreement: the rule, the counts, and the formats."""

import json
from collections import Counter

import numpy as np
import pytest
from conftest import REAL_DATA, needs_real_data

from stack_lm.core.errors import InputError
from stack_lm.eval import AgreementItem, evaluate_agreement, read_agreement
from stack_lm.eval.agreement_formats import number_of
from stack_lm.text.records import read_records


class Oracle:
    """A model that prefers what it is told to, and does not know some words."""

    def __init__(self, scores, unknown=()):
        self.scores, self.unknown = scores, unknown

    def knows(self, text, *, begins=False):
        return text not in self.unknown

    def continuation_logprobs(self, prefixes, candidates):
        return [
            np.full(len(words), np.nan) if not prefix else np.array([self.scores[word] for word in words])
            for prefix, words in zip(prefixes, candidates, strict=True)
        ]


ITEMS = [
    AgreementItem(("the", "dog"), "is", "are", 0, "singular"),  # right
    AgreementItem(("the", "dogs"), "are", "is", 0, "plural"),  # wrong
    AgreementItem(("dogs", "near", "it"), "run", "runs", 1, "plural"),  # a tie
    AgreementItem(("x",), "same", "same", 1, "plural"),  # identical
    AgreementItem(("y",), "flies", "fly", 2, "singular"),  # unknown
    AgreementItem((), "is", "are", 0, "singular"),  # nothing before the verb
]
MODEL = Oracle({"is": -1.0, "are": -2.0, "run": -3.0, "runs": -3.0}, unknown=("fly",))


def test_skipping_out_of_vocabulary_items():
    result = evaluate_agreement(MODEL, ITEMS)
    assert result.accuracy == pytest.approx(100 / 3)
    attractors = result.groups["attractors"]
    assert {k: (a.accuracy, a.n, a.majority) for k, a in attractors.items()} == {0: (50, 2, 50), 1: (0, 1, 100)}
    assert {k: a.accuracy for k, a in result.groups["number"].items()} == {"plural": 0, "singular": 100}
    assert set(result.groups) == {"attractors", "number"}  # the items have no constructions
    assert (result.n_items, result.n, result.n_skipped, result.n_ties) == (6, 3, 3, 1)
    assert (result.n_identical, result.n_oov, result.n_unpredicted) == (1, 1, 1)
    assert result.overall.majority == pytest.approx(200 / 3)
    assert result.outcomes == ("correct", "wrong", "tie", "identical", "oov", "unpredicted")
    assert result.correct.tolist() == [1, 0, 0, -1, -1, -1]
    # The table of items lets anybody recompute the score.
    scored = result.correct >= 0
    assert 100 * (result.logprobs[scored, 0] > result.logprobs[scored, 1]).mean() == pytest.approx(result.accuracy)


@pytest.mark.parametrize(
    ("form", "other", "number"),
    [
        ("is", "are", "singular"), ("were", "was", "plural"), ("have", "has", "plural"), ("runs", "run", "singular"),
        ("discuss", "discusses", "plural"), ("discusses", "discuss", "singular"),
    ],
)  # fmt: skip
def test_number_of(form, other, number):
    assert number_of(form, other) == number


def test_linzen_table(tmp_path):
    path = tmp_path / "agr.tsv"
    header = "sentence\tverb\tverb_pos\tsubj_index\tverb_index\tn_intervening\tn_diff_intervening"
    path.write_text(f"{header}\nthe keys to the cabinet are here\tare\tVBP\t2\t6\t1\t1\n")
    prefix = ("the", "keys", "to", "the", "cabinet")
    expected = [AgreementItem(prefix, "are", "is", 1, "plural", distance=4)]
    assert read_agreement(str(path), "linzen") == expected
    row = {"sentence": "the keys to the cabinet are here", "verb_pos": "VBP", "subj_index": 2, "verb_index": 6}
    lines = tmp_path / "items.jsonl"
    lines.write_text(json.dumps(row | {"n_diff_intervening": 1}))
    assert read_agreement(str(lines), "linzen") == expected
    lines.write_text(json.dumps(row | {"n_diff_intervening": None}))
    with pytest.raises(InputError, match="items.jsonl, line 1: n_diff_intervening: not a whole number: None"):
        read_agreement(str(lines), "linzen")


def write_pair(directory, text, gold):
    (directory / "set.text").write_text(text)
    (directory / "set.gold").write_text(gold)
    return directory


def test_linzen_by_gulordava(tmp_path):
    write_pair(tmp_path, "the town is old . <eos>\nthe dogs bark . <eos>\n", "2\tis\tare\t0\n2\tbark\tbarks\t0\n")
    expected = [
        AgreementItem(("the", "town"), "is", "are", 0, "singular"),
        AgreementItem(("the", "dogs"), "bark", "barks", 0, "plural"),
    ]
    for source in (tmp_path, tmp_path / "set", tmp_path / "set.text", tmp_path / "set.gold"):
        assert read_agreement(str(source), "linzen-gulordava") == expected


def test_number_prediction(tmp_path):
    path = tmp_path / "numpred.test.2"
    path.write_text("VBP\tbrands of NN , like NNP ,\nVBZ\ta girl raised by NNS\n")
    assert read_agreement(str(path), "linzen-numpred") == [
        AgreementItem(("brands", "of", "NN", ",", "like", "NNP", ","), "VBP", "VBZ", 2, "plural"),
        AgreementItem(("a", "girl", "raised", "by", "NNS"), "VBZ", "VBP", 2, "singular"),
    ]
    other = path.rename(tmp_path / "numpred.val")
    assert {item.n_attractors for item in read_agreement(str(other), "linzen-numpred")} == {None}
    other.write_text("VBP\tthe dogs\nVBD\tthe dog\n")
    with pytest.raises(InputError, match="numpred.val, line 2: a line is VBZ or VBP, a tab and the words .*'VBD"):
        read_agreement(str(other), "linzen-numpred")


GOLD = "L!P\t{}\t{}\t2\tVERB\tMood=Ind|Number={}|Tense=Pres\t{}\t{}\tbe\t9\tNOUN\tan original prefix\n"


def write_gulordava(directory, table=True):
    rows = [(1, 0, "Sing", "is", "are"), (1, 3, "Plur", "bark", "barks")]
    write_pair(directory, "the town is old . <eos>\nsome dogs bark . <eos>\n", "".join(GOLD.format(*r) for r in rows))
    if table:
        header = "form\tclass\tn_attr\tlen_context\n"
        forms = [(form, kind) for _, _, _, *pair in rows for form, kind in zip(pair, ("correct", "wrong"), strict=True)]
        (directory / "set.tab").write_text(header + "".join(f"{form}\t{kind}\t1\t4\n" for form, kind in forms))
    return directory


def test_gulordava(tmp_path):
    expected = [
        AgreementItem(("the", "town"), "is", "are", 1, "singular", "original", 4),
        AgreementItem(("some", "dogs"), "bark", "barks", 1, "plural", "nonce", 4),
    ]
    assert read_agreement(str(write_gulordava(tmp_path)), "gulordava") == expected
    (tmp_path / "set.tab").unlink()
    (first, _) = read_agreement(str(tmp_path), "gulordava")
    assert (first.n_attractors, first.distance) == (None, None)


@needs_real_data
def test_the_nonce_sentences_by_frequency():
    """Published with the data: choosing the more frequent form scores 65.85 on the original sentences, 42.55 on the
    nonce ones."""
    directory = REAL_DATA / "agreement" / "gulordava"
    items = read_agreement(str(directory), "gulordava")
    assert Counter(item.construction for item in items) == {"original": 41, "nonce": 369}
    assert Counter(item.n_attractors for item in items) == {0: 330, 1: 70, 2: 10}
    frequencies = [
        int(record.fields["freq"])
        for record in read_records(directory / "generated.tab", column="form", format_name="tsv")
    ]
    pairs = np.log(np.maximum(np.array(frequencies).reshape(-1, 2), 1e-9))

    class Frequency:
        def knows(self, text, *, begins=False):
            return True

        def continuation_logprobs(self, prefixes, candidates):
            return list(pairs)

    by = evaluate_agreement(Frequency(), items).groups["construction"]
    assert round(by["original"].accuracy, 2) == 65.85
    assert round(by["nonce"].accuracy, 2) == 42.55


@needs_real_data
def test_the_real_test_set():
    items = read_agreement(str(REAL_DATA / "agreement" / "linzen_sentences"), "linzen-gulordava")
    assert Counter(item.n_attractors for item in items) == {0: 1972, 1: 1957, 2: 1943, 3: 1287, 4: 330}
    assert sum(item.correct == item.wrong for item in items) == 4


@pytest.mark.parametrize(("source", "number"), [pytest.param("1", 300, marks=pytest.mark.slow), ("1:7", 7)])
def test_generated_items(source, number):
    items = read_agreement(source, "generated")
    assert Counter(item.n_attractors for item in items) == {0: number, 1: number, 2: number, 3: number}
    assert all(item.correct != item.wrong and item.prefix for item in items)


@pytest.mark.parametrize("source", ["one", "1:0", ":3"])
def test_seeds_of_generated_items(source):
    with pytest.raises(InputError, match="--data of the format 'generated' is SEED or SEED:N"):
        read_agreement(source, "generated")


@pytest.mark.parametrize(
    ("text", "gold", "message"),
    [
        ("a b\n", "1\tx\ty\t0\n1\tx\ty\t0\n", "set.text has 1 lines, but .*set.gold has 2"),
        ("a b\n", "one\tx\ty\t0\n", "set.gold, line 1: not a whole number: 'one'"),
        ("the dogs are here\n", "3\tare\tis\t0\n", "word 3 of the text, counted from 0, is 'here', not 'are'"),
    ],
)
def test_bad_pairs(tmp_path, text, gold, message):
    with pytest.raises(InputError, match=message):
        read_agreement(str(write_pair(tmp_path, text, gold)), "linzen-gulordava")


def test_bad_sources(tmp_path):
    with pytest.raises(InputError, match=r"must have one .gold file; it has 0"):
        read_agreement(str(tmp_path), "linzen-gulordava")
    with pytest.raises(InputError, match="missing.text does not exist"):
        read_agreement(str(tmp_path / "missing"), "linzen-gulordava")
    path = tmp_path / "t.tsv"
    path.write_text("sentence\tverb\na b\tb\n")
    with pytest.raises(InputError, match="the header lacks the columns n_diff_intervening, verb_index, verb_pos"):
        read_agreement(str(path), "linzen")
