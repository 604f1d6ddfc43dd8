"""Agreement: the rule, the counts, and the formats."""

from collections import Counter

import numpy as np
import pytest
from conftest import REAL_DATA, needs_real_data

from stack_lm.errors import InputError
from stack_lm.eval import AgreementItem, evaluate_agreement, read_agreement
from stack_lm.eval.agreement import number_of, other_form


class Oracle:
    """A model that prefers what it is told to, and does not know some words."""

    def __init__(self, scores, unknown=()):
        self.scores, self.unknown = scores, unknown

    def knows(self, text):
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
    assert result.by_attractors == {0: 50, 1: 0}
    assert result.n_by_attractors == {0: 2, 1: 1}
    assert result.by_number == {"plural": 0, "singular": 100}
    assert (result.n, result.n_skipped, result.n_ties) == (3, 3, 1)
    assert (result.n_identical, result.n_oov, result.n_no_prefix) == (1, 1, 1)
    assert result.majority == pytest.approx(200 / 3)
    assert result.correct.tolist() == [1, 0, 0, -1, -1, -1]
    # The table of items lets anybody recompute the score.
    scored = result.correct >= 0
    assert 100 * (result.logprobs[scored, 0] > result.logprobs[scored, 1]).mean() == pytest.approx(result.accuracy)


def test_counting_out_of_vocabulary_items_as_wrong():
    result = evaluate_agreement(MODEL, ITEMS, oov="wrong")
    assert (result.accuracy, result.n, result.n_skipped, result.n_oov) == (25, 4, 2, 1)
    assert result.by_attractors == {0: 50, 1: 0, 2: 0}


def test_progress_and_blocks():
    done = []
    items = ITEMS[:2] * 1300
    result = evaluate_agreement(MODEL, items, progress=done.append)
    assert (result.accuracy, done) == (50, [1000, 1000, 600])


def test_nothing_to_score():
    with pytest.raises(InputError, match="none of the 2 agreement items can be scored: 1 have a form outside"):
        evaluate_agreement(MODEL, ITEMS[3:5])
    with pytest.raises(InputError, match="oov must be one of skip, wrong; got 'ignore'"):
        evaluate_agreement(MODEL, ITEMS, oov="ignore")


@pytest.mark.parametrize(
    ("form", "other", "number"),
    [
        ("is", "are", "singular"), ("were", "was", "plural"), ("have", "has", "plural"), ("runs", "run", "singular"),
        ("discuss", "discusses", "plural"), ("discusses", "discuss", "singular"),
    ],
)  # fmt: skip
def test_number_of(form, other, number):
    assert number_of(form, other) == number


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("is", "are"), ("was", "were"), ("has", "have"), ("does", "do"), ("goes", "go"), ("carries", "carry"),
        ("plays", "play"), ("watches", "watch"), ("passes", "pass"), ("mixes", "mix"), ("uses", "use"), ("lies", "lie"),
        ("makes", "make"),
    ],
)  # fmt: skip
def test_other_form(singular, plural):
    assert other_form(singular, "VBZ") == plural
    if plural != "lie":  # spelling alone does not tell lie from fly
        assert other_form(plural, "VBP") == singular


def test_linzen_table(tmp_path):
    path = tmp_path / "agr.tsv"
    header = "sentence\tverb\tverb_pos\tsubj_index\tverb_index\tn_intervening\tn_diff_intervening"
    path.write_text(f"{header}\nthe keys to the cabinet are here\tare\tVBP\t2\t6\t1\t1\n")
    prefix = ("the", "keys", "to", "the", "cabinet")
    assert read_agreement(str(path), "linzen") == [AgreementItem(prefix, "are", "is", 1, "plural")]


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


@needs_real_data
def test_the_real_test_set():
    items = read_agreement(str(REAL_DATA / "agreement" / "linzen_sentences"), "linzen-gulordava")
    assert Counter(item.n_attractors for item in items) == {0: 1972, 1: 1957, 2: 1943, 3: 1287, 4: 330}
    assert sum(item.correct == item.wrong for item in items) == 4


@pytest.mark.slow
def test_generated_items():
    items = read_agreement("1", "generated")
    assert Counter(item.n_attractors for item in items) == {0: 300, 1: 300, 2: 300, 3: 300}
    assert all(item.correct != item.wrong and item.prefix for item in items)


@pytest.mark.parametrize(
    ("text", "gold", "message"),
    [
        ("a b\n", "1\tx\ty\t0\n1\tx\ty\t0\n", "set.text has 1 lines, but .*set.gold has 2"),
        ("a b\n", "1\tx\ty\n", "set.gold, line 1: 3 columns"),
        ("a b\n", "one\tx\ty\t0\n", "set.gold, line 1: not a whole number: 'one'"),
        ("a b\n", "7\tx\ty\t0\n", "set.gold, line 1: index 7 is outside a sentence of 2 words"),
        ("\n", "1\tx\ty\t0\n", "set.text is empty"),
    ],
)
def test_bad_pairs(tmp_path, text, gold, message):
    with pytest.raises(InputError, match=message):
        read_agreement(str(write_pair(tmp_path, text, gold)), "linzen-gulordava")


def test_bad_sources(tmp_path):
    with pytest.raises(InputError, match="format must be one of linzen, linzen-gulordava, generated; got 'csv'"):
        read_agreement("x", "csv")
    with pytest.raises(InputError, match=r"must have one .gold file; it has 0"):
        read_agreement(str(tmp_path), "linzen-gulordava")
    with pytest.raises(InputError, match="missing.text does not exist"):
        read_agreement(str(tmp_path / "missing"), "linzen-gulordava")
    path = tmp_path / "t.tsv"
    path.write_text("sentence\tverb\na b\tb\n")
    with pytest.raises(InputError, match="the header lacks the columns n_diff_intervening, verb_index, verb_pos"):
        read_agreement(str(path), "linzen")
