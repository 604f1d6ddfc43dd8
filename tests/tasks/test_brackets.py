"""Dyck-(k, m) and k-shuffle Dyck against all strings of a length."""

import random
import re
from collections import Counter
from itertools import product
from math import exp

import pytest

from stack_lm.tasks import make_task
from stack_lm.tasks.brackets.languages import DyckKM, ShuffledDyck
from stack_lm.tasks.checks import check_examples
from stack_lm.tasks.recognition import END


def nested(depth):
    def accepts(string):
        if any(sum(1 if s[0] == "(" else -1 for s in string[:end]) > depth for end in range(len(string))):
            return False
        text, before = "".join(string), None
        while text != before:
            text, before = re.sub(r"\((\d)\)\1", "", text), text
        return not text

    return accepts


def shuffled(string):
    return all(nested(99)([s for s in string if s[1] == kind]) for kind in "012")


CASES = {
    "dyck-1-3": (DyckKM(1, 3), nested(3), 8),
    "dyck-2-2": (DyckKM(2, 2), nested(2), 6),
    "dyck-3-1": (DyckKM(3, 1), nested(1), 4),
    "shuffle-1": (ShuffledDyck(1), shuffled, 8),
    "shuffle-2": (ShuffledDyck(2), shuffled, 6),
    "shuffle-3": (ShuffledDyck(3), shuffled, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_a_language_against_all_strings(name):
    language, accepts, longest = CASES[name]
    strings = [s for n in range(longest + 1) for s in product(language.symbols, repeat=n)]
    members = {s for s in strings if accepts(s)}
    assert {s for s in strings if language.accepts(s)} == members
    prefixes = {m[:end] for m in members for end in range(len(m) + 1)}
    for string in members:
        if 2 * len(string) <= longest:
            for end, after in enumerate(language.next_symbols(string)):
                wanted = {s for s in language.symbols if (*string[:end], s) in prefixes}
                assert after == wanted | ({END} if string[:end] in members else set())
    for length in range(longest + 1):
        same = [m for m in members if len(m) == length]
        assert bool(same) == language.possible(length)
        assert not same or sum(exp(language.log_of_member(m)) for m in same) == pytest.approx(1)
    same = [m for m in members if len(m) == min(longest, 4)]
    rng = random.Random(0)
    drawn = Counter(language.draw(rng, len(same[0])) for _ in range(1500))
    assert drawn.keys() == set(same)
    for member in same:
        share = exp(language.log_of_member(member))
        assert drawn[member] / 1500 == pytest.approx(share, abs=5 * (share / 1500) ** 0.5)


def test_probabilities_are_those_of_the_walk():
    """Of the two strings of length 4 with one type, (()) has a step that is certain, at the depth; ()() has none."""
    ratio = DyckKM(1, 2).log_of_member(["(0", "(0", ")0", ")0"]) - DyckKM(1, 2).log_of_member(["(0", ")0", "(0", ")0"])
    assert exp(ratio) == pytest.approx(2)


@pytest.mark.parametrize("name", ["dyck_km", "shuffle"])
def test_tasks(name):
    for kind in ("classification", "language", "next_symbols"):
        check_examples(make_task(f"brackets/{name}", pairs=4, kind=kind))
