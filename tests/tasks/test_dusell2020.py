"""The languages of DuSell and Chiang (2020): strings and the lower bound, against all strings of small lengths."""

import random
from collections import Counter
from itertools import product
from math import exp, log

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import BoundedLanguage, make_task, task_names

NAMES = ["marked_reversal", "unmarked_reversal", "padded_reversal", "dyck", "hardest_cfl"]
WINDOW = {"small": {"number": 400, "shortest": 3, "longest": 7}}


def small(name):
    return make_task(f"dusell2020/{name}", splits=WINDOW)


def is_member(name, string):
    """By plain definitions."""
    n = len(string)
    if name == "marked_reversal":
        return n % 2 == 1 and string == string[::-1] and string.count("#") == 1 and string[n // 2] == "#"
    if name == "unmarked_reversal":
        return n % 2 == 0 and string == string[::-1]
    if name == "padded_reversal":
        return string == string[::-1]  # the padding may be empty or one symbol
    return is_dyck(string) if name == "dyck" else is_hardest(string)


def is_dyck(string):
    reduced = ""
    while string != reduced:
        reduced, string = string, string.replace("()", "").replace("[]", "")
    return not string


def is_hardest(string):
    """Greibach's language: choose a string between commas from each section; together they are `$` and a Dyck word."""
    if not string.endswith(";"):
        return False
    choices = [section.split(",")[1:-1] for section in string[:-1].split(";")]
    if not all(choices) or not all(word for choice in choices for word in choice):
        return False
    return any(word.startswith("$") and word[1:] and is_dyck(word[1:]) for word in map("".join, product(*choices)))


def test_all_are_here():
    assert {name.removeprefix("dusell2020/") for name in task_names() if name.startswith("dusell2020/")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES[:4])
def test_members(name):
    """All strings of up to 6 symbols."""
    task = small(name)
    for string in (string for n in range(1, 7) for string in product(task.symbols.split(), repeat=n)):
        assert task.grammar.derives(string) == is_member(name, "".join(string)), string


def test_members_of_the_hardest_language():
    """Its strings, and strings with a symbol changed."""
    task = small("hardest_cfl")
    rng = random.Random(0)
    outside = 0
    for example in task.draw(rng, 300, 6, 20):
        string = task.write(example.source[1:]).split()
        assert is_member("hardest_cfl", "".join(string))
        string[rng.randrange(len(string))] = rng.choice(task.symbols.split())
        derived = task.grammar.derives(string)
        assert derived == is_member("hardest_cfl", "".join(string)), string
        outside += not derived
    assert 50 < outside < 290


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_the_entropy(name):
    """p(w) of all strings in a window sums to 1; draws are as frequent; the bound is the mean of -log p(w) a symbol."""
    task = small(name)
    strings = [
        task.read(" ".join(string))
        for n in range(3, 8)
        for string in product(task.symbols.split(), repeat=n)
        if is_member(name, "".join(string))
    ]
    examples = [task.example(string) for string in strings]
    logs = dict(zip(examples, task.log_probabilities(examples, "small"), strict=True))
    assert sum(map(exp, logs.values())) == pytest.approx(1)
    drawn = task.draw(random.Random(0), 4000, 3, 7)
    for example, number in Counter(drawn).items():
        share = exp(logs[example])
        assert number / 4000 == pytest.approx(share, abs=5 * (share / 4000) ** 0.5)
    symbols = sum(len(example.source) for example in drawn)
    assert task.lower_bound(drawn, "small") == pytest.approx(-sum(logs[example] for example in drawn) / symbols)


def test_bounds_by_hand():
    """Of reversals, only the first half is uncertain: log 2 a symbol, and the length."""
    marked, unmarked = make_task("dusell2020/marked_reversal"), make_task("dusell2020/unmarked_reversal")
    examples = marked.split("validation", 0)
    lengths = [len(example.source) - 1 for example in examples]
    nats = sum(log(2) * (length - 1) / 2 + log(20) for length in lengths)  # 41, 43, ..., 79
    assert marked.lower_bound(examples, "validation") == pytest.approx(nats / sum(length + 1 for length in lengths))
    examples = [unmarked.example(unmarked.read(" ".join("0110" * 10)))]
    assert unmarked.lower_bound(examples, "test") == pytest.approx((20 * log(2) + log(31)) / 41)
    padded = make_task("dusell2020/padded_reversal")
    string = padded.example(padded.read(" ".join("0" * 40)))
    # Any number of pairs at the ends, and the rest as padding, which is of either kind if empty.
    again, pad = 60 / 61, 30 / 31
    weight = sum((again / 2) ** k * (1 - again) / 2 * pad ** (40 - 2 * k) * (1 - pad) for k in range(21))
    weight += (again / 2) ** 20 * (1 - again) / 2 * (1 - pad)
    expected = log(weight) - log(padded.lengths.weight(40)) - log(61)
    assert padded.log_probabilities([string], "test") == [pytest.approx(expected)]


def test_plan():
    for name in NAMES:
        task = make_task(f"dusell2020/{name}")
        assert isinstance(task, BoundedLanguage)
        assert [vars(split) for split in task.plan.values()] == [
            {"number": 10_000, "shortest": 40, "longest": 80, "balanced": False},
            {"number": 1_000, "shortest": 40, "longest": 80, "balanced": False},
            {"number": 100, "shortest": 40, "longest": 100, "balanced": True},
        ]
    lengths = {"marked_reversal": 30, "unmarked_reversal": 31, "padded_reversal": 61, "dyck": 31, "hardest_cfl": 61}
    assert {name: len(make_task(f"dusell2020/{name}").length_weights(40, 100)) for name in NAMES} == lengths


def test_bad_input():
    task = small("dyck")
    outside = task.example(task.read("( )"))
    with pytest.raises(InputError, match="small of dusell2020/dyck has no strings of length 2: \\( \\)"):
        task.lower_bound([outside], "small")
    wrong = outside._replace(source=(outside.source[0], 0, 1, 1, 1))
    with pytest.raises(InputError, match="not a string of dusell2020/dyck, or one with too small a probability"):
        task.lower_bound([wrong], "small")


def test_bounds_of_long_strings():
    """Their probabilities are smaller than float64 can represent."""
    for name, length in (("dyck", 1000), ("marked_reversal", 1401)):
        task = make_task(f"dusell2020/{name}", splits={"test": {"number": 1, "shortest": length, "longest": length}})
        (example,) = task.split("test", 0)
        (value,) = task.log_given_length([[task.vocabulary[symbol] for symbol in example.source[1:]]])
        assert -length * log(len(task.vocabulary)) < value < 0
