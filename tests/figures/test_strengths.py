"""Strengths by kinds of words."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.core.trace import Trace
from stack_lm.figures import contrast, word_class
from stack_lm.figures.strengths import by_tag, classes, frames_by_tag, known_words, summarize


def occurrences(words, tags, values, frames=None, unknown=()):
    """Of one sentence after the other."""
    traces = [
        Trace(
            tuple(sentence),
            np.zeros(len(sentence)),
            np.ones(len(sentence)),
            np.array([word in unknown for word in sentence]),
            actions=({"push_strength": np.array(of_sentence, dtype=float)},),
        )
        for sentence, of_sentence in zip(words, values, strict=True)
    ]
    return known_words(traces, "push_strength", tags, frames)


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("nouns", "NN NNS NNP NNPS NN-TL NNS$ NP NP$ NPS NR NN-TL-HL FW-NN NOUN PROPN NE"),
        (
            "verbs",
            "VB VBD VBG VBN VBP VBZ BE BED BEDZ BEG BEM BEN BER BEZ BEZ* HV HVD HVG HVN HVZ DO DOD DOZ DOD* VERB "
            "VVFIN VAINF VVIZU VVPP VVIMP",
        ),
        ("modals", "MD MD* VMFIN"),
        ("adpositions", "IN IN-TL ADP APPR APPRART APPO APZR"),
        ("infinitival to", "TO PTKZU"),
        ("determiners", "DT PDT WDT AT DTI DTS DTX ABN ABL ABX DET ART PDAT PIAT PPOSAT PWAT PRELAT"),
        ("adjectives", "JJ JJR JJS JJT JJ-TL ADJ ADJA ADJD"),
        ("adverbs", "RB RBR RBS RBT RP WRB QL QLP RN ADV PAV PROAV PWAV"),
        (
            "pronouns",
            "PRP PRP$ WP WP$ EX PPS PPSS PPO PPL PPLS PP$ PP$$ PN PN$ WPS WPO PRON PPER PRF PDS PIS PPOSS PRELS PWS",
        ),
        ("conjunctions", "CC CS CCONJ SCONJ KON KOKOM KOUS KOUI"),
        ("numbers", "CD OD NUM CARD"),
        ("punctuation", ". , : `` '' -- ( ) -LRB- -RRB- * PUNCT $, $. $("),
    ],
)
def test_word_classes(name, tags):
    assert {tag: word_class(tag) for tag in tags.split()} == dict.fromkeys(tags.split(), name)


@pytest.mark.parametrize("tag", ["PPSS+BEM", "FW", "UH", "SYM", "AUX", "NIL", "X", "$", "#", ""])
def test_rare_tags_have_no_class(tag):
    assert word_class(tag) is None


def test_groups():
    words = occurrences(
        [["Dogs", "see", "cats", "xyz"], ["Cats", "see"]],
        [["NNS", "VBP", "NNS", "FW"], ["NNS", "VBP"]],
        [[1, 2, 3, 4], [5, 6]],
        [[None, "transitive", None, None], [None, "intransitive"]],
        unknown=("xyz",),
    )
    assert words["word"].tolist() == ["Dogs", "see", "cats", "Cats", "see"]
    assert words["sentence"].tolist() == [0, 0, 0, 1, 1]
    groups = {name: words["value"][found].tolist() for name, found in classes(words).items()}
    assert groups == {"all words": [1, 2, 3, 5, 6], "nouns": [1, 3, 5], "verbs": [2, 6]}
    assert [(tag, s["n"], s["mean"]) for tag, s in by_tag(words).items()] == [("NNS", 3, 3.0), ("VBP", 2, 4.0)]
    of_frames = frames_by_tag(words)
    assert {tag: {frame: s["mean"] for frame, s in of.items()} for tag, of in of_frames.items()} == {
        "VBP": {"transitive": 2.0, "intransitive": 6.0}
    }


def test_no_known_words():
    assert occurrences([["a"]], [["DT"]], [[1]], unknown=("a",)).empty


def test_summary():
    values = np.arange(101.0)
    found = summarize(pd.Series(values))
    assert (found["n"], found["mean"]) == (101, 50.0)
    assert found["std"] == pytest.approx(values.std())
    assert [found[name] for name in ("5%", "25%", "50%", "75%", "95%")] == [5, 25, 50, 75, 95]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("ab-"), st.integers(0, 5)), min_size=1, max_size=25))
def test_contrast_by_brute_force(rows):
    sentences, groups, values = (np.array(column) for column in zip(*rows, strict=True))
    values = values.astype(float)
    in_a, in_b = groups == "a", groups == "b"
    found = contrast("a", "b", values, sentences, in_a, in_b, samples=20)
    if not in_a.any() or not in_b.any():
        assert found is None
        return
    pairs = [(x > y) + 0.5 * (x == y) for x in values[in_a] for y in values[in_b]]
    assert found.superiority == pytest.approx(np.mean(pairs))
    assert found.difference == pytest.approx(values[in_a].mean() - values[in_b].mean())
    assert found.low <= found.high
    back = contrast("b", "a", values, sentences, in_b, in_a, samples=20)
    assert back.superiority == pytest.approx(1 - found.superiority)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low))
