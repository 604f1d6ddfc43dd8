"""Word problems: products against permutations, and tables that are no groups."""

import random
from itertools import permutations

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task
from stack_lm.tasks.checks import check_examples
from stack_lm.tasks.groups.words import Group

SIZES = {"s3": 6, "s5": 120, "a5": 60, "z60": 60}


def image(name, number):
    """Where a permutation, written in cycles, takes a number."""
    for cycle in name.strip("()").split(")("):
        if str(number) in cycle:
            return int(cycle[(cycle.index(str(number)) + 1) % len(cycle)])
    return number


def is_even(name):
    places = [image(name, n) for n in range(1, 6)]
    return sum(a > b for i, a in enumerate(places) for b in places[i + 1 :]) % 2 == 0


@pytest.mark.parametrize("name", SIZES)
def test_products_are_those_of_permutations(name):
    task = make_task(f"groups/{name}")
    check_examples(task)
    assert len(task.vocabulary) == len(task.target_vocabulary) == SIZES[name]
    example = task.sample(random.Random(0), 50)
    read, answers = task.write(example.source).split(), task.write_targets(example.target)
    if name == "z60":
        assert [int(answer) for answer in answers] == [sum(map(int, read[: i + 1])) % 60 for i in range(50)]
        return
    degree = int(name[1])
    found = {tuple(image(element, n) for n in range(1, degree + 1)) for element in task.vocabulary}
    assert found <= set(permutations(range(1, degree + 1)))
    assert len(found) == SIZES[name]
    assert name != "a5" or all(map(is_even, task.vocabulary))
    places = list(range(1, degree + 1))
    for element, answer in zip(read, answers, strict=True):
        places = [image(element, place) for place in places]
        assert [image(answer, n) for n in range(1, degree + 1)] == places


def test_own_groups(tmp_path):
    four = make_task("groups/word_problem", generators=["(1 2 3 4)", "(1 3)"], inputs="generators")
    assert (four.vocabulary, len(four.target_vocabulary)) == (("(1234)", "(13)"), 8)
    table = tmp_path / "klein.csv"
    rows = [[a ^ b for b in range(4)] for a in range(4)]
    names = "eabc"
    table.write_text("\n".join(",".join([m, *(names[p] for p in row)]) for m, row in zip(names, rows, strict=True)))
    table.write_text(",".join(["", *names]) + "\n" + table.read_text())
    klein = make_task("groups/word_problem", table=str(table))
    assert klein.write_targets(klein.example(klein.read("a b c c")).target) == ["a", "c", "e", "c"]
    assert len(Group.generated(["(1 2 3 4 5 6 7 8 9 10 11)", "(1 2)(3 11)(4 10)(5 9)(6 8)"][:1]).names) == 11


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",e,a\ne,e,a\n", "has one row and one column for each"),
        (",e,a\ne,e,a\na,a,b\n", "a times a is 'b', which is no element"),
        (",e,a\ne,e,a\na,a\n", "the row of a has 1 products of 2"),
        (",e,a\ne,a,a\na,a,e\n", "is no group: it has no identity"),
        (",e,a\ne,e,a\na,a,a\n", "is no group: a has no inverse"),
        (",e,a,b\ne,e,a,b\na,a,e,a\nb,b,b,e\n", r"is no group: \(a a\) b is not a \(a b\)"),
    ],
)
def test_a_table_that_is_no_group(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        make_task("groups/word_problem", table=str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("generators", "message"),
    [
        (["1 2"], "written as cycles"),
        (["(1 1)"], "of different numbers from 1"),
        (["(1 2)", "(1 2 3 4 5 6)"], "generate more than 400"),
    ],
)
def test_generators_that_are_none(generators, message):
    with pytest.raises(InputError, match=message):
        make_task("groups/word_problem", generators=generators)
