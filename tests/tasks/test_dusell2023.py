"""The languages of DuSell and Chiang (2023): strings and the lower bound, against all strings of small lengths."""

import random
import re
from collections import Counter
from itertools import product
from math import exp, log

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task, task_names

# Strings made of a word.
COPIES = {
    "count_3": lambda w: w + "b" * len(w) + "c" * len(w),
    "marked_reverse_and_copy": lambda w: f"{w}#{w[::-1]}#{w}",
    "count_and_copy": lambda w: w + "#" * len(w) + w,
    "marked_copy": lambda w: f"{w}#{w}",
    "unmarked_copy_different_alphabets": lambda w: w + w.translate({ord("0"): "2", ord("1"): "3"}),
    "unmarked_reverse_and_copy": lambda w: w + w[::-1] + w,
    "unmarked_copy": lambda w: w + w,
}
REVERSALS = {"marked_reversal": lambda w: f"{w}#{w[::-1]}", "unmarked_reversal": lambda w: w + w[::-1]}
CAPACITY = [*REVERSALS, "dyck"]
WINDOW = {"small": {"number": 400, "shortest": 2, "longest": 6}}


def small(name, **options):
    return make_task(f"dusell2023/{name}", splits=WINDOW, **options)


def members(name, longest, types=2):
    """All strings of the language, by plain definitions."""
    if name == "dyck":
        symbols = [f"{bracket}{number}" for number in range(types) for bracket in "()"]
        strings = (string for n in range(1, longest + 1) for string in product(symbols, repeat=n))
        return {string for string in strings if is_nested(" ".join(string))}
    letters = "a" if name == "count_3" else "0123"[:types]
    words = ("".join(word) for n in range(longest + 1) for word in product(letters, repeat=n))
    strings = map((COPIES | REVERSALS)[name], words)
    return {tuple(string) for string in strings if len(string) <= longest}


def is_nested(text):
    while (shorter := re.sub(r"\((\d+) \)\1 ?", "", text).strip()) != text:
        text = shorter
    return not text


TASKS = [(name, {}) for name in COPIES]
TASKS += [(name, {"symbol_types": types}) for name in CAPACITY for types in (1, 2, 3)]


def test_all_are_here():
    names = {name.removeprefix("dusell2023/") for name in task_names() if name.startswith("dusell2023/")}
    assert names == {*COPIES, *CAPACITY}


@pytest.mark.parametrize(("name", "options"), TASKS)
def test_the_bound_is_the_entropy(name, options):
    """Members of up to 6 symbols; their p(w) sums to 1; draws are as frequent; the bound is the mean of -log p(w)."""
    task = small(name, **options)
    symbols = task.vocabulary[:-2]
    longest = 6 if len(symbols) < 5 else 4
    known = members(name, longest, *options.values())
    for string in (string for n in range(longest + 1) for string in product(symbols, repeat=n)):
        assert task.contains(string) == (string in known), string
    task.change({"small": {"longest": longest}})
    examples = [task.example(task.read(" ".join(string))) for string in known if len(string) >= 2]
    logs = dict(zip(examples, task.log_probabilities(examples, "small"), strict=True))
    assert sum(map(exp, logs.values())) == pytest.approx(1)
    drawn = task.draw(random.Random(0), 2000, 2, longest)
    for example, number in Counter(drawn).items():
        share = exp(logs[example])
        assert number / 2000 == pytest.approx(share, abs=5 * (share / 2000) ** 0.5)
    length = sum(len(example.target) for example in drawn)
    assert task.lower_bound(drawn, "small") == pytest.approx(-sum(logs[example] for example in drawn) / length)


@pytest.mark.parametrize("name", CAPACITY)
def test_two_types_are_the_languages_of_2020(name):
    """Their probabilities are those of the grammars, summed over derivations."""
    mine, grammar = make_task(f"dusell2023/{name}"), make_task(f"dusell2020/{name}")
    lengths = [length for length in (40, 41, 78) if mine.possible(length)] * 3
    strings = [mine.write(mine.sample(random.Random(i), length).source[1:]) for i, length in enumerate(lengths)]
    renamed = [text.replace("(1", "[").replace(")1", "]").replace("(0", "(").replace(")0", ")") for text in strings]
    for ours, theirs in zip(strings, renamed, strict=True):
        pair = mine.example(mine.read(ours)), grammar.example(grammar.read(theirs))
        expected = grammar.log_probabilities([pair[1]], "test")
        assert mine.log_probabilities([pair[0]], "test") == pytest.approx(expected)


def test_bounds_by_hand():
    for name, number in {"marked_reversal": 30, "unmarked_reversal": 31}.items():
        task = make_task(f"dusell2023/{name}", symbol_types=200)
        example = task.sample(random.Random(0), 60 + (name == "marked_reversal"))
        assert task.log_probabilities([example], "test") == [pytest.approx(-30 * log(200) - log(number))]
    assert len(set(example.source)) > 20
    counts = make_task("dusell2023/count_3")
    assert counts.lower_bound(counts.split("test", 0)[:1], "test") == pytest.approx(log(20) / 43)  # 42, 45, ..., 99


def test_bad_input():
    with pytest.raises(InputError, match="symbol_types must be an integer of at least 1; got 0"):
        make_task("dusell2023/dyck", symbol_types=0)
    task = small("unmarked_copy")
    with pytest.raises(InputError, match="not a string of dusell2023/unmarked_copy: 0 1"):
        task.example([0, 1])
    with pytest.raises(InputError, match="dusell2023/unmarked_copy has no string of length 3"):
        task.sample(random.Random(0), 3)
    dyck = small("dyck", symbol_types=12)
    assert not dyck.contains(["(1", ")11"])
    assert not dyck.contains([")1", "(1"])
