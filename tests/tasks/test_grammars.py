"""Grammars, against derivations and strings that are listed."""

import math
import random
from collections import Counter
from itertools import product
from math import log

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.tasks.grammars import ByDepth, ByLength, Grammar
from stack_lm.tasks.inside import log_string_weights

# Nested, left-recursive, ambiguous, with empty parts and unit rules.
GRAMMARS = {
    "nested": Grammar({"S": {"a S b": 0.5, "": 0.5}}),
    "ambiguous": Grammar({"S": {"S S": 0.25, "a": 0.5, "b": 0.25}}),
    "both sides": Grammar({"S": ["S T", "T S", "T"], "T": ["a T b", "a b"]}),
    "nullable": Grammar({"S": {"A b A": 0.5, "A": 0.5}, "A": {"a A": 0.3, "B": 0.4, "": 0.3}, "B": {"b": 1.0}}),
    "left and right": Grammar({"S": ["L a R"], "L": ["L b", ""], "R": ["b R", ""]}),
}


def listed(grammar, longest):
    """The weight of every string of a and b up to a length: the grammar's equations, iterated until nothing changes."""
    strings = [s for n in range(longest + 1) for s in product("ab", repeat=n)]
    weights = {symbol: dict.fromkeys(strings, 0.0) for symbol in grammar.rules}

    def rest(right, string):
        if not right:
            return float(not string)
        splits = ((string[:i], string[i:]) for i in range(len(string) + 1))
        first = weights.get(right[0])
        return sum(
            (first[head] if first is not None else float(head == (right[0],))) * rest(right[1:], tail)
            for head, tail in splits
        )

    while True:
        new = {
            symbol: {s: sum(rule.weight * rest(rule.right, s) for rule in rules) for s in strings}
            for symbol, rules in grammar.rules.items()
        }
        if new == weights:
            return weights[grammar.start]
        weights = new


def derivations(grammar, symbol, depth):
    """Every derivation of at most a depth: its string and its own depth."""
    if symbol not in grammar.rules:
        return [((symbol,), 1)]
    if depth < 2:
        return []
    made = []
    for rule in grammar.rules[symbol]:
        for parts in product(*(derivations(grammar, child, depth - 1) for child in rule.right)):
            string = tuple(symbol for part, _ in parts for symbol in part)
            made.append((string, 1 + max((height for _, height in parts), default=1)))
    return made


def draws_agree(draw, size, weights, error):
    """Strings are drawn as often as their weights say; where none has one, there is an error."""
    total = sum(weights.values())
    if not total:
        with pytest.raises(InputError, match=f"{error} {size}"):
            draw(random.Random(0), size)
        return
    rng = random.Random(size)
    drawn = Counter(draw(rng, size) for _ in range(1500))
    assert drawn.keys() <= {string for string, weight in weights.items() if weight}
    for string, weight in weights.items():
        share = weight / total
        assert drawn[string] / drawn.total() == pytest.approx(share, abs=5 * (share / drawn.total()) ** 0.5 + 1e-12)


@pytest.mark.parametrize("name", GRAMMARS)
def test_strings_of_a_length(name):
    grammar = GRAMMARS[name]
    weights = listed(grammar, 5)
    lengths = ByLength(grammar)
    strings = list(weights)
    assert np.exp(log_string_weights(lengths, strings)) == pytest.approx(list(weights.values()))
    for string, weight in weights.items():
        assert grammar.derives(string) == (weight > 0)
    for length in range(6):
        same = {s: w for s, w in weights.items() if len(s) == length}
        assert lengths.weight(length) == pytest.approx(sum(same.values()))
        draws_agree(lengths.draw, length, same, "no string of length")


@pytest.mark.parametrize("name", GRAMMARS)
def test_derivations_of_a_depth(name):
    grammar = GRAMMARS[name]
    depths = ByDepth(grammar)
    made = derivations(grammar, grammar.start, 4)
    assert grammar.strings(4) == {string for string, _ in made}
    for depth in range(1, 5):
        same = Counter(string for string, height in made if height == depth)
        assert depths.count(depth) == same.total()
        draws_agree(depths.draw, depth, same, "no derivation of depth")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_grammars(data):
    sides = st.lists(st.sampled_from(["S", "A", "B", "a", "b"]), max_size=3).map(" ".join)
    rules = st.dictionaries(sides, st.sampled_from([0.1, 0.2, 0.3]), min_size=1, max_size=3)
    grammar = Grammar({symbol: data.draw(rules) for symbol in "SAB"})
    lengths = ByLength(grammar)
    try:
        totals = [lengths.weight(length) for length in range(5)]
    except ValueError as error:
        assert "derives itself" in str(error)  # noqa: PT017
        assume(False)
    weights = listed(grammar, 4)
    assert np.exp(log_string_weights(lengths, list(weights))) == pytest.approx(list(weights.values()))
    assert totals == pytest.approx([sum(w for s, w in weights.items() if len(s) == n) for n in range(5)])
    for string, weight in weights.items():
        assert grammar.derives(string) == (weight > 0)


def test_counts_of_any_size():
    """Far beyond floats: the derivations of S -> S S | a of exactly a depth, by their recurrence."""
    at_most = [0, 0]
    for _ in range(12):
        at_most.append(1 + at_most[-1] ** 2)
    depths = ByDepth(Grammar({"S": ["S S", "a"]}))
    assert depths.count(13) == at_most[13] - at_most[12] > 10**300
    assert len(depths.draw(random.Random(0), 13)) > 500


def test_a_derivation_without_end():
    for rules in ({"S": ["S", "a"]}, {"S": ["S S", "a", ""]}, {"S": ["A"], "A": ["a", "S"]}):
        with pytest.raises(ValueError, match="S derives itself by rules that add no symbol"):
            ByLength(Grammar(rules)).weight(1)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({}, "a grammar must have at least one rule"),
        ({"S": ["A"], "A": []}, r"the rules of A must be a list, or a mapping to weights; got \[\]"),
        ({"S": "a S b"}, "the rules of S must be a list, or a mapping to weights; got 'a S b'"),
        ({"S": {"a": 1.0, "": 0}}, "the weight of S -> nothing must be a finite number above 0; got 0"),
    ],
)
def test_bad_rules(rules, message):
    with pytest.raises(InputError, match=message):
        Grammar(rules)


@pytest.mark.parametrize(
    ("rules", "log_weight", "log_string"),
    [
        # Probabilities that float64 lacks from 115 symbols on; a string is one of 2^n equally likely ones.
        (
            {"S": {"a S": 0.001, "b S": 0.001, "": 0.998}},
            lambda n: n * log(0.002) + log(0.998),
            lambda n: n * log(0.001) + log(0.998),
        ),
        # Weights, not probabilities, beyond 1,024 symbols too large.
        ({"S": {"a S": 2.0, "a": 3.0}}, lambda n: (n - 1) * log(2) + log(3), lambda n: (n - 1) * log(2) + log(3)),
    ],
    ids=["small", "large"],
)
@pytest.mark.parametrize("n", [20, 107, 300, 1100])
def test_weights_that_float64_lacks(rules, log_weight, log_string, n):
    lengths = ByLength(Grammar(rules))
    assert lengths.possible(n)
    assert lengths.log_weight(n) == pytest.approx(log_weight(n), abs=1e-9)
    strings = [lengths.draw(random.Random(seed), n) for seed in range(2)]
    assert log_string_weights(lengths, [*strings, ("?",) * n]) == [
        *[pytest.approx(log_string(n), abs=1e-9)] * 2,
        -math.inf,
    ]


def test_draws_do_not_depend_on_the_scale():
    grammar = Grammar({"S": {"S T": 0.01, "T": 0.01}, "T": {"( S )": 0.02, "( )": 0.01}})
    one, other = ByLength(grammar), ByLength(grammar)
    other.log_weight(300)
    for length in (2, 40, 80):
        assert other.exponent > one.exponent == 0
        assert one.weight(length) == other.weight(length)
        assert one.draw(random.Random(length), length) == other.draw(random.Random(length), length)
