"""Sums over regions, means by condition, contrasts by item."""

import re

import numpy as np
import pytest
from scipy import stats

from stack_lm.core.errors import InputError
from stack_lm.eval.contrasts import contrast_region, region_by_columns, region_by_pattern

LEVELS = {1: [("full",), ("reduced",), ("none",)], 2: [(a, b) for a in ("ambiguous", "clear") for b in ("old", "new")]}


def table(n_items=6, conditions=1, seed=0):
    """Sentences of eight words in random order of items; region of three words from a varying position on."""
    draw = np.random.default_rng(seed)
    sentences = []
    for item in range(n_items):
        for cell in LEVELS[conditions]:
            start = int(draw.integers(2, 5))
            head = {"item": item, "from": str(start), "to": str(start + 2), "a": cell[0], "b": cell[-1]}
            sentences.append(
                [
                    head | {"sentence": len(sentences) + 1, "position": place, "word": f"w{place}", "unknown": False,
                            "surprisal": float(draw.gamma(2, 4))}
                    for place in range(1, 9)
                ]
            )  # fmt: skip
    return sentences


def by_hand(sentences):
    """The sum of each sentence's region: items by cells, in order."""
    sums = [
        sum(row["surprisal"] for row in rows if int(row["from"]) <= row["position"] <= int(row["to"]))
        for rows in sentences
    ]
    return np.array(sums)


def same_as_t(test, values):
    t = stats.ttest_1samp(values, 0)
    assert test.difference == pytest.approx(np.mean(values))
    assert (test.low, test.high) == pytest.approx(tuple(t.confidence_interval(0.95)))
    assert test.p_value == pytest.approx(t.pvalue)


def test_conditions_against_the_first():
    sentences = table()
    sums = by_hand(sentences).reshape(6, 3)
    region = region_by_columns("from:to", list(sentences[0][0]))
    result = contrast_region(sentences, region, item="item", conditions=["a"])
    for i, cell in enumerate(LEVELS[1]):
        same_as_t(result.means[cell], sums[:, i])
    assert list(result.contrasts) == ["reduced - full", "none - full"]
    same_as_t(result.contrasts["none - full"], sums[:, 2] - sums[:, 0])
    assert result.by_item["3"]["reduced - full"] == pytest.approx(sums[3, 1] - sums[3, 0])


def test_two_by_two():
    sentences = table(conditions=2)
    sums = by_hand(sentences).reshape(6, 2, 2)
    result = contrast_region(
        sentences, region_by_columns("from:from+2", ["from", "sentence"]), item="item", conditions=["a", "b"]
    )
    main, other, interaction = result.contrasts.values()
    same_as_t(main, sums[:, 1].mean(1) - sums[:, 0].mean(1))
    same_as_t(other, sums[:, :, 1].mean(1) - sums[:, :, 0].mean(1))
    same_as_t(interaction, (sums[:, 1, 1] - sums[:, 1, 0]) - (sums[:, 0, 1] - sums[:, 0, 0]))
    assert list(result.contrasts)[2] == "interaction (clear - ambiguous) x (new - old)"


def test_unknown_words_and_incomplete_items():
    sentences = table()
    sums = by_hand(sentences).reshape(6, 3)
    sentences[0][int(sentences[0][0]["from"])]["unknown"] = "True"  # as in a table
    sentences[4][int(sentences[4][0]["to"]) - 1]["surprisal"] = ""
    result = contrast_region(
        sentences, region_by_columns("from:to", list(sentences[0][0])), item="item", conditions=["a"]
    )
    assert result.left_out == 2
    assert list(result.by_item) == ["2", "3", "4", "5"]
    same_as_t(result.means["full",], sums[1:, 0])
    same_as_t(result.contrasts["none - full"], (sums[:, 2] - sums[:, 0])[2:])


@pytest.mark.parametrize(
    ("pattern", "expected"), [("w2", (2, 2)), (r"w3 \w+", (3, 4)), (r"(?<=w7 )w8", (8, 8)), ("1 w", (1, 2))]
)
def test_patterns(pattern, expected):
    assert region_by_pattern(re.compile(pattern))(table()[0]) == expected


def test_numbers_are_positions():
    assert region_by_columns("2:from-1", ["from"])([{"from": "4.0", "sentence": 1}]) == (2, 3)


@pytest.mark.parametrize(
    ("region", "conditions", "message"),
    [
        ("from:end", ["a"], "--region: a bound must be one of .*; got 'end'"),
        ("1:2:3", ["a"], "--region must be FROM or FROM:TO; got '1:2:3'"),
        ("word", ["a"], "sentence 1: word must be a position; got 'w1'"),
        ("9:12", ["a"], "sentence 1 has no words from 9 to 12"),
        ("3:2", ["a"], "sentence 1 has no words from 3 to 2"),
        ("1", ["unknown"], "contrasts need one condition of two levels or more, .*; got unknown: 1 levels"),
        ("1", ["a", "unknown"], "got a: 3 levels, unknown: 1 levels"),
        ("1", ["sentence"], "0 items have all 18 conditions; contrasts need at least two"),
    ],
)
def test_bad_contrasts(region, conditions, message):
    sentences = table()
    with pytest.raises(InputError, match=message):
        contrast_region(sentences, region_by_columns(region, list(sentences[0][0])), item="item", conditions=conditions)


def test_no_match():
    with pytest.raises(InputError, match="sentence 1: nothing matches 'x'"):
        region_by_pattern(re.compile("x"))(table()[0])
