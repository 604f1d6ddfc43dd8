"""The six tasks of Hao et al. (2018), against plain definitions, listed strings and the released test strings."""

import csv
import random
from collections import Counter
from itertools import product
from statistics import NormalDist, mean, stdev

import pytest
from conftest import REAL_DATA, needs_real_data
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task
from stack_lm.tasks.hao2018.grammars import Agreement, Formula, Parentheses

BITS = st.lists(st.integers(0, 1), max_size=12)


@given(BITS)
def test_strings(string):
    n = len(string)
    source, target, mask = make_task("hao2018/reversal").example(string)
    assert list(source) == string + [2] * n
    assert list(target) == [2] * n + string[::-1]
    assert list(mask) == [False] * n + [True] * n
    for name, delay in (("xor", 0), ("delayed_xor", 1)):
        source, target, mask = make_task(f"hao2018/{name}").example(string)
        assert list(source) == string
        assert list(target) == [sum(string[: t + 1 - delay]) % 2 for t in range(n)]
        assert mask == (True,) * n


def test_buffered_reversals_are_padded():
    plain = make_task("hao2018/reversal").split("test", 1)
    padded = make_task("hao2018/reversal_buffered").split("test", 1)
    for before, after in zip(plain, padded, strict=True):
        rest = 48 - len(before.source)
        assert after.source == before.source + (2,) * rest
        assert after.target == before.target + (2,) * rest
        assert after.mask == before.mask + (False,) * rest


def test_lengths_of_reversals():
    for longest, drawn in ((12, NormalDist(10, 2)), (24, NormalDist(20, 4))):
        weights = make_task("hao2018/reversal").length_weights(1, longest)
        assert list(weights) == list(range(1, longest + 1))
        assert weights[1] == pytest.approx(drawn.cdf(2))
        assert weights[longest - 2] == pytest.approx(drawn.cdf(longest - 1) - drawn.cdf(longest - 2))
        assert weights[longest] == pytest.approx(1 - drawn.cdf(longest))
        assert sum(weights.values()) == pytest.approx(1)


def test_sizes():
    for name in ("reversal", "xor", "delayed_xor", "parentheses", "formula", "agreement"):
        task = make_task(f"hao2018/{name}")
        assert [split.number for split in task.plan.values()] == [800, 100, 1000]
        assert task.step_reduction == ("sum" if task.unit == "depth" else "mean")


def determined(strings, example):
    """Whether the beginnings of strings determine all scored targets, given that one is due."""
    found = {}
    for string in strings:
        source, target, mask = example(string)
        for t, (symbol, scored) in enumerate(zip(target, mask, strict=True)):
            if scored and found.setdefault(source[: t + 1], symbol) != symbol:
                return False
    return True


def test_parentheses():
    """All 31,466 strings of depth 6 or less, of up to 20 symbols (section 5)."""
    task = Parentheses()
    strings = Parentheses.grammar.strings(6)
    assert sum(task.count(depth) for depth in range(7)) == len(strings) == 31_466
    assert max(map(len, strings)) == 20
    assert determined([task.read(" ".join(string)) for string in strings], task.predict)
    _, target, mask = task.example(task.read("[ ( ) ] [ ]"))
    assert task.write(target) == "( ) ] [ ] #"
    assert mask == (False, True, True, False, True, False)
    everything = {string for n in range(7) for string in product(range(4), repeat=n)}
    accepted = {string for string in everything if task.accepts(string)}
    assert accepted == {task.read(" ".join(string)) for string in strings if len(string) <= 6}
    with pytest.raises(InputError, match="not a string of Parentheses: "):
        task.example(task.read("( ( ) ( ) )"))  # a nest holds one nest at most


def test_all_strings_of_parentheses_are_equally_likely():
    task = Parentheses()
    weights = task.length_weights(1, 4)
    strings = Parentheses.grammar.strings(4)
    assert weights == {depth: task.count(depth) / len(strings) for depth in (3, 4)}
    drawn = Counter(task.draw(random.Random(0), 4000, 1, 4))
    assert len(drawn) == len(strings) == 6 + 20  # of one nest and of two
    for number in drawn.values():
        assert number / 4000 == pytest.approx(1 / len(strings), abs=5 * (1 / len(strings) / 4000) ** 0.5)


def test_agreement():
    """Depth 16 has sentences of up to 23 symbols (section 5)."""
    task = Agreement()
    strings = Agreement.grammar.strings(16)
    assert max(map(len, strings)) == 23
    assert sum(task.count(depth) for depth in range(17)) == len(strings) == 2556  # unambiguous
    assert determined([task.read(" ".join(string)) for string in strings], task.example)
    sentence = "Det Nsing Rel Det Nplur Prep Det Nsing Auxplur Vtrans Auxsing"
    _, target, mask = task.example(task.read(sentence))
    scored = [task.vocabulary[symbol] for symbol, on in zip(target, mask, strict=True) if on]
    assert scored == ["Auxplur", "Auxsing"]
    with pytest.raises(InputError, match="not a string of Agreement: Det Nsing Auxplur"):
        task.example(task.read("Det Nsing Auxplur"))


def value(string):
    """The value of the formula that ends a string, and what is before it."""
    *before, last = string
    if last in "TF":
        return last == "T", before
    right, before = value(before)
    left, before = value(before)
    return (left and right if last == "and" else left or right), before


def test_formulas():
    """Depth 6 has formulas of up to 15 symbols, depth 7 of up to 31 (section 5)."""
    task = Formula()
    strings = Formula.grammar.strings(6)
    assert max(map(len, strings)) == 15
    assert sum(task.count(depth) for depth in range(7)) == len(strings) == 81_610
    for string in random.Random(0).sample(sorted(strings), 200):
        source, target, mask = task.example(task.read(" ".join(string)))
        values = [str(int(value(string[: t + 1])[0])) for t in range(len(string))]
        assert task.write(target).split() == values
        assert mask == (True,) * len(source)
    assert max(len(example.source) for example in task.split("test", 0)) == 31
    for wrong in ("", "T F", "T and", "T F and and", "T 0 and", "T F #"):
        with pytest.raises(InputError, match="not a formula in reverse Polish notation"):
            task.example(task.read(wrong))


FILES = {"reverse": "reversal", "parity": "xor", "dyck": "parentheses", "agreement": "agreement"}


@needs_real_data
@pytest.mark.parametrize("file", FILES)
def test_released_strings(file):
    """Every target agrees; lengths are as in our test sets, up to five standard errors."""
    task = make_task(f"hao2018/{FILES[file]}")
    lengths = []
    with (REAL_DATA / "hao2018_test" / f"{file}.csv").open(newline="") as lines:
        for string, output in csv.reader(lines):
            source, target, mask = task.example(task.read(string))
            expected = task.read(output)
            assert target[: len(expected)] == expected
            assert not any(mask[len(expected) :])
            lengths.append(len(source))
    assert len(lengths) == 1000
    ours = [len(example.source) for example in task.split("test", 0)]
    if file == "parity":  # one symbol shorter than the paper says
        assert set(lengths) == {23}
        assert set(ours) == {24}
    else:
        assert mean(ours) == pytest.approx(mean(lengths), abs=5 * stdev(lengths) * (2 / 1000) ** 0.5)
