"""The tasks of Suzgun et al. (2019): the Dyck grammar's probabilities, and targets against listed strings."""

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task
from stack_lm.tasks.suzgun2019.dyck import Dyck, next_symbols


def by_the_grammar(rng, n_pairs, longest):
    """A string of S -> open S close (1/2) | S S (1/4) | nothing (1/4), rule by rule; None if it gets too long."""
    string, agenda, length = [], ["S"], 0
    while agenda:
        symbol = agenda.pop()
        if symbol != "S":
            string.append(symbol)
            continue
        draw = rng.random()
        if draw < 0.5:
            length += 2
            if length > longest:
                return None
            opening = 2 * rng.randrange(n_pairs)
            string.append(opening)
            agenda += [opening + 1, "S"]
        elif draw < 0.75:
            agenda += ["S", "S"]
    return tuple(string)


def test_probabilities_of_lengths_are_those_of_the_grammar():
    weights = list(Dyck(2).length_weights(0, 40).values())
    for n, weight in enumerate(weights):
        splits = sum(weights[i] * weights[n - i] for i in range(n + 1)) / 4
        assert weight == pytest.approx(splits + (weights[n - 1] / 2 if n else 1 / 4), rel=1e-12)
    rng = random.Random(0)
    lengths = Counter(None if s is None else len(s) for s in (by_the_grammar(rng, 2, 12) for _ in range(20_000)))
    assert lengths.keys() == {None, *range(0, 13, 2)}
    for n in range(7):
        assert lengths[2 * n] / 20_000 == pytest.approx(weights[n], abs=4 * (weights[n] / 20_000) ** 0.5)


def test_strings_of_a_length_are_as_frequent_as_in_the_grammar():
    """For 3 pairs of 2 kinds, all strings, against the grammar run rule by rule."""
    rng = random.Random(0)
    drawn = Counter(Dyck(2).sample(rng, 6).source for _ in range(4000))
    wanted = Counter(s for s in (by_the_grammar(rng, 2, 6) for _ in range(60_000)) if s is not None and len(s) == 6)
    assert len(drawn) == len(wanted) == 5 * 2**3  # Catalan's number, each pair of two kinds
    total = wanted.total()
    for string, number in wanted.items():
        share = number / total
        sigma = (share / total + share / 4000) ** 0.5
        assert drawn[string] / 4000 == pytest.approx(share, abs=5 * sigma)


def test_next_symbols_of_the_paper():
    """Suzgun et al. (2019), table 1: after ( [ ] ) come (/[/), (/[/], (/[/) and (/[."""
    vocabulary = Dyck(2).vocabulary
    targets = next_symbols([0, 2, 3, 1], 4)
    assert ["".join(vocabulary[i] for i in sorted(target)) for target in targets] == ["()[", "([]", "()[", "(["]
    for string in ([1], [0, 3], [0, 1, 1]):
        with pytest.raises(InputError, match="closes no pair"):
            next_symbols(string, 4)


def is_prefix(string, longest, n_symbols):
    """Whether some string of the language of at most `longest` symbols begins so; by enumeration."""
    for rest in range(longest - len(string) + 1):
        for tail in product(range(n_symbols), repeat=rest):
            whole = [*string, *tail]
            open_pairs = []
            for symbol in whole:
                if symbol % 2 == 0:
                    open_pairs.append(symbol)
                elif not open_pairs or open_pairs.pop() != symbol - 1:
                    break
            else:
                if not open_pairs:
                    return True
    return False


@pytest.mark.parametrize("seed", range(3))
def test_next_symbols_are_those_that_can_be_completed(seed):
    example = Dyck(2).sample(random.Random(seed), 4)
    for place, target in enumerate(example.target):
        before = list(example.source[: place + 1])
        assert target == {s for s in range(4) if is_prefix([*before, s], 2 * place + 4, 4)}


@given(st.integers(1, 7), st.integers(0, 30), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_every_string_is_of_the_language(pairs, n, seed):
    task = Dyck(pairs)
    example = task.sample(random.Random(seed), 2 * n)
    assert len(example.source) == len(example.target) == len(example.mask) == 2 * n
    assert all(example.mask)
    openings = frozenset(range(0, 2 * pairs, 2))
    assert all(openings <= target and len(target - openings) <= 1 for target in example.target)
    if n:
        assert example.target[-1] == openings  # nothing is left open
    assert task.sample(random.Random(seed), 2 * n) == example


def test_dyck_strings_that_are_refused():
    for string in ([0], [0, 3], [1]):
        with pytest.raises(InputError, match="not all pairs are closed|closes no pair"):
            Dyck(2).example(string)
    with pytest.raises(InputError, match="a Dyck language has 1 to 7 pairs; got 8"):
        Dyck(8)


def palindromes(image, longest):
    """All `w # image(w reversed)`, and targets by section 6: a/b/c/# after each letter, then one symbol, the end."""
    for n in range(1, longest + 1):
        for half in map("".join, product("abc", repeat=n)):
            mirrored = "".join(image[letter] for letter in reversed(half))
            yield f"{half}#{mirrored}", ["a/b/c/#"] * n + [*mirrored, "</s>"]


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("homomorphic_palindrome", {"a": "x", "b": "y", "c": "z"}),
        ("simple_palindrome", {"a": "a", "b": "b", "c": "c"}),
    ],
)
def test_palindromes(name, image):
    task = make_task(f"suzgun2019/{name}")
    strings = dict(palindromes(image, 3))
    for string, targets in strings.items():
        source, target, mask = task.example(task.read(" ".join(string)))
        assert task.write(source).split() == list(string)
        assert task.write_targets(target) == targets
        assert all(mask)
    assert task.write_targets(task.example(task.read("a # " + image["a"])).target) == ["a/b/c/#", image["a"], "</s>"]
    drawn = {task.write(task.sample(random.Random(seed), 5).source).replace(" ", "") for seed in range(80)}
    assert drawn == {string for string in strings if len(string) == 5}
    assert list(task.length_weights(0, 8)) == [3, 5, 7]
    for wrong in ("a", "#", "a # b", "a b # a b", "a a"):
        with pytest.raises(InputError, match=f"not a string of suzgun2019/{name}"):
            task.example(task.read(wrong))


def test_the_papers_example():
    """Table 1, right."""
    task = make_task("suzgun2019/homomorphic_palindrome")
    example = task.example(task.read("a b c # z y x"))
    assert task.write_targets(example.target) == [*["a/b/c/#"] * 3, "z", "y", "x", "</s>"]


def test_reversals():
    task = make_task("suzgun2019/reversal")
    example = task.sample(random.Random(0), 8)
    half = example.source[:4]
    assert example.source == half + (3,) * 4
    assert example.target == tuple(frozenset({symbol}) for symbol in (3,) * 4 + half[::-1])
    assert task.example(example.source) == example
    assert list(task.length_weights(0, 7)) == [2, 4, 6]
    with pytest.raises(InputError, match="has no string of length 7"):
        task.sample(random.Random(0), 7)
    for wrong in ([], [0], [0, 1], [3, 3], [0, 3, 3]):
        with pytest.raises(InputError, match="not a string of suzgun2019/reversal"):
            task.example(wrong)


def test_sizes():
    for name in ("dyck2", "dyck3", "dyck6", "homomorphic_palindrome", "simple_palindrome", "reversal"):
        task = make_task(f"suzgun2019/{name}")
        assert task.distinct
        assert {split: tuple(vars(plan).values()) for split, plan in task.plan.items()} == {
            "train": (15_000 if name == "dyck6" else 5_000, 2, 50, False),
            "test": (5_000, 52, 100, False),
        }
