"""The tasks of Delétang et al. (2023): each target is computed in a second way, and inputs have their laws."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task, task_names
from stack_lm.tasks.kinds import KINDS

NAMES = [name.split("/")[1] for name in task_names() if name.startswith("deletang2023/")]
TASKS = {name: make_task(f"deletang2023/{name}") for name in NAMES}

# The examples of the definitions: input and answer.
GIVEN = {
    "even_pairs": ("1 1 0 1 0", "1"),
    "modular_arithmetic_simple": ("4 6 3 7 3 5 2", "2"),
    "parity_check": ("1 0 1 1", "1"),
    "cycle_navigation": ("0 0 1 2 0", "3"),
    "stack_manipulation": ("1 0 2 4 3", "0 1 1 2 0 0"),
    "reverse_string": ("1 1 0 1", "1 0 1 1"),
    "modular_arithmetic": ("( ( 4 * - 3 ) - 2 )", "1"),
    "solve_equation": ("( x - ( - 3 ) ) = 1", "3"),
    "duplicate_string": ("0 1 1", "0 1 1 0 1 1"),
    "missing_duplicate": ("1 0 0 2 0 0 3", "1"),
    "odds_first": ("0 0 1 1 0", "0 1 0 1 0"),
    "binary_addition": ("1 1 2 0 1 1", "1 0 0 1 2 0 0"),
    "binary_multiplication": ("1 1 2 1 0 1", "1 1 1 1 2 0"),
    "compute_sqrt": ("1 1 0 1 0", "1 0 1"),
    "bucket_sort": ("3 0 4 0 1", "0 0 1 3 4"),
}


def number(bits):
    return sum(int(bit) << place for place, bit in enumerate(bits))


def shortest(value, longest):
    bits = []
    while value or not bits:
        bits.append(str(value & 1))
        value >>= 1
    return " ".join([*bits, "2", *["0"] * longest][:longest])


def operation(symbols, longer, compute):
    text = "".join(symbols)
    if len(text) < 3:
        return shortest(number(text), 2 if text == "0" else 3) if longer else "0 2"[-2 * len(text) + 1 :]
    left, right = text.replace("*", "+").split("+")
    return shortest(compute(number(left), number(right)), len(text) + longer)


def stacked(symbols):
    stack = ""
    for symbol in symbols:
        stack = stack[:-1] if symbol == "pop" else stack + symbol[-1]
    return " ".join([*reversed(stack), "2", *"0" * len(symbols)][: len(symbols) + 1])


def rooted(symbols):
    value, root = int("".join(symbols), 2), 0
    for bit in reversed(range(len(symbols))):
        if (root + (1 << bit)) ** 2 <= value:
            root += 1 << bit
    return " ".join(format(root, f"0{-(-len(symbols) // 2)}b"))


def hidden(symbols):
    if symbols == ["1"]:
        return "1"
    text = "".join(symbols).rstrip(".")
    (found,) = [bit for bit in "01" for whole in [text.replace("_", bit)] if whole == whole[: len(whole) // 2] * 2]
    return found


def solved(symbols):
    left, right = "".join(symbols).split("=")
    (found,) = [digit for digit in "01234" if eval(left.replace("x", digit)) % 5 == int(right)]
    return found


AGAIN = {
    "even_pairs": lambda s: str(sum(a != b for a, b in itertools.pairwise(s)) % 2),
    "modular_arithmetic_simple": lambda s: str(eval("".join(s)) % 5),
    "parity_check": lambda s: str(s.count("1") % 2),
    "cycle_navigation": lambda s: str((s.count("2") - s.count("0")) % 5),
    "stack_manipulation": stacked,
    "reverse_string": lambda s: " ".join(reversed(s)),
    "modular_arithmetic": lambda s: str(eval("".join(s)) % 5),
    "solve_equation": lambda s: "0" if len(s) < 3 else solved(s),
    "duplicate_string": lambda s: " ".join(s * 2),
    "missing_duplicate": hidden,
    "odds_first": lambda s: " ".join([x for i, x in enumerate(s) if i % 2] + [x for i, x in enumerate(s) if not i % 2]),
    "binary_addition": lambda s: operation(s, 1, lambda x, y: x + y),
    "binary_multiplication": lambda s: operation(s, 0, lambda x, y: x * y),
    "compute_sqrt": rooted,
    "bucket_sort": lambda s: " ".join(d for d in "01234" for _ in range(s.count(d))),
}


def test_there_are_fifteen_tasks_with_an_example_of_each():
    assert sorted(NAMES) == sorted(GIVEN)
    assert len(NAMES) == 15
    for name, (string, answer) in GIVEN.items():
        task = TASKS[name]
        assert " ".join(task.write_targets(task.example(task.read(string)).target)) == answer


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 60))
def test_answers_are_those_of_a_second_computation(name, seed, length):
    task = TASKS[name]
    example = task.sample(random.Random(seed), length)
    symbols = task.write(example.source).split()
    assert len(symbols) == length - (name == "modular_arithmetic_simple" and length % 2 == 0)
    answer = " ".join(task.write_targets(example.target))
    assert answer == AGAIN[name](symbols)
    scored = answer.split().index("2") + 1 if task.terminated else len(example.target)
    assert sum(example.mask) == scored
    assert all(example.mask[:scored])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("even_pairs", ""),
        ("modular_arithmetic_simple", "1 +"),
        ("stack_manipulation", "pop 1"),
        ("modular_arithmetic", "( 1 + 2"),
        ("modular_arithmetic", "( - ( 1 + 2 ) )"),
        ("solve_equation", "1 = 1"),
        ("missing_duplicate", "0 1 1 _"),
        ("binary_addition", "1 0 1"),
        ("binary_multiplication", "1 * 1 * 1"),
    ],
)
def test_inputs_of_no_task_are_refused(name, wrong):
    task = TASKS[name]
    with pytest.raises(InputError, match=f"not an input of deletang2023/{name}: "):
        task.example(task.read(wrong))


def test_draws_are_uniform_where_the_definition_says_so():
    rng = random.Random(0)
    task = TASKS["stack_manipulation"]
    heights = Counter(sum(symbol < 2 for symbol in task.sample(rng, 6).source) for _ in range(2000))
    assert heights.keys() == {1, 2, 3, 4, 5}
    assert min(heights.values()) > 330
    task = TASKS["binary_addition"]
    sums = Counter(task.write(task.sample(rng, 4).source) for _ in range(3000))
    assert sums.keys() == {"1 + 1 0", "1 + 0 1", "1 + 1 1", "1 0 + 1", "0 1 + 1", "1 1 + 1"}
    assert min(sums.values()) > 400
    task = TASKS["compute_sqrt"]
    assert len({task.sample(rng, 4).source for _ in range(300)}) == 15
    assert {task.write(TASKS["binary_addition"].sample(rng, 2).source) for _ in range(99)} == {"0 0", "1 0", "0 1"}
    shapes = Counter(len(TASKS["modular_arithmetic"].sample(rng, 5).source) for _ in range(9))
    assert shapes == {5: 9}


def test_a_network_reads_blanks_and_is_trained_on_the_whole_answer():
    task = TASKS["binary_addition"]
    kind = KINDS["delayed"](task)
    example = task.example(task.read("1 + 1"))
    row = kind.row(example)
    assert [kind.symbols[k] for k in row.source] == ["1", "+", "1", "#", "#", "#", "#"]
    assert row.target[3:] == example.target
    assert row.mask == (False, False, False, True, True, True, False)
    assert kind.trained(example, row) == (False,) * 3 + (True,) * 4


def test_the_paper_averages_over_lengths():
    scores = {"accuracy": 0.6, "by_length": {"accuracy": {"41": [0.5, 8], "42": [1.0, 8]}}}
    added = TASKS["reverse_string"].add_scores(scores, [], "test")
    assert added["length_accuracy"] == 0.75
    assert added["by_length"]["length_accuracy"] == scores["by_length"]["accuracy"]
