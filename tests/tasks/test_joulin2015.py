"""The counting tasks of Joulin and Mikolov (2015), against their strings for small n."""

import random
from itertools import product

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task, task_names

RANGE = range(1, 6)
PAIRS = list(product(RANGE, RANGE))
# All strings of small n, by plain definitions.
STRINGS = {
    "anbn": ["a" * n + "b" * n for n in RANGE],
    "anbncn": ["a" * n + "b" * n + "c" * n for n in RANGE],
    "anbncndn": ["a" * n + "b" * n + "c" * n + "d" * n for n in RANGE],
    "anb2n": ["a" * n + "b" * 2 * n for n in RANGE],
    "anbmcnm": ["a" * n + "b" * m + "c" * (n + m) for n, m in PAIRS],
    "anbmcndm": ["a" * n + "b" * m + "c" * n + "d" * m for n, m in PAIRS],
    "multiplication": ["a" * n + "b" * m + "c" * (n * m) for n, m in PAIRS],
    "memorization": [f"{''.join(w)}a{''.join(reversed(w))}" for n in RANGE for w in product("bc", repeat=n)],
}


def test_all_are_here():
    assert {name.removeprefix("joulin2015/") for name in task_names() if "joulin" in name} == set(STRINGS)


@pytest.mark.parametrize("name", STRINGS)
def test_scored_symbols_are_those_that_are_determined(name):
    """By what came before, in all strings; the first is left out, since nothing was counted yet."""
    task = make_task(f"joulin2015/{name}")
    following = {}
    for string in STRINGS[name]:
        for t in range(len(string) + 1):
            following.setdefault(string[:t], set()).add((string + "$")[t])
    for string in STRINGS[name]:
        source, target, mask = task.example(task.read(" ".join(string)))
        assert task.write(source).split() == ["<s>", *string]
        assert task.write_targets(target) == [*string, "</s>"]
        assert any(mask)
        for t, scored in enumerate(mask):
            if scored:
                assert len(following[string[:t]]) == 1
    start = "b" if name == "memorization" else "a"
    assert len(following[start]) > 1


def of_three(name, string):
    """Whether a string's n is 3."""
    if name == "memorization":
        return len(string) == 7
    return string.count("a") + (string.count("b") if "m" in name else 0) == 3


@pytest.mark.parametrize("name", STRINGS)
def test_draws(name):
    task = make_task(f"joulin2015/{name}")
    drawn = {task.write(task.sample(random.Random(seed), 3).source[1:]).replace(" ", "") for seed in range(60)}
    assert drawn == {string for string in STRINGS[name] if of_three(name, string)}
    assert list(task.length_weights(0, 3)) == (
        [2, 3] if name in ("anbmcnm", "anbmcndm", "multiplication") else [1, 2, 3]
    )


@pytest.mark.parametrize("name", STRINGS)
def test_strings_outside(name):
    task = make_task(f"joulin2015/{name}")
    inside = {tuple(task.read(" ".join(string))) for string in STRINGS[name]}
    symbols = range(len(task.symbols))
    for string in (string for n in range(6) for string in product(symbols, repeat=n)):
        if string in inside:
            assert task.example(string)
        else:
            with pytest.raises(InputError, match=f"not a string of joulin2015/{name}"):
                task.example(string)
