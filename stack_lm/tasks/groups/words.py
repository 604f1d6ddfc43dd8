"""Word problems: the product of the elements of a finite group after each of them (Merrill et al. 2024, section 5)."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import ClassVar, Literal, NamedTuple

from ...core.errors import InputError
from ...text.files import check_file
from ...text.formats import cells_of
from ...text.plain import read_text
from ..base import Example, Split, SplitChanges, Task
from ..registry import register_task

_MOST = 400  # elements: the check of a table takes their number to the third power
_CYCLE = re.compile(r"\(([\d\s]*)\)")
_GROUPS = {
    "s3": ["(1 2)", "(1 2 3)"],
    "s5": ["(1 2)", "(1 2 3 4 5)"],
    "a5": ["(1 2 3)", "(1 2 3 4 5)"],
    "z60": [f"({' '.join(map(str, range(1, 61)))})"],
}


class Group(NamedTuple):
    """A finite group.

    Attributes:
        names: the names of its elements.
        products: by the numbers of two elements, that of their product.
        generators: the numbers of elements that generate it.
    """

    names: tuple[str, ...]
    products: list[list[int]]
    generators: list[int]

    @classmethod
    def generated(cls, generators: Sequence[str]) -> Group:
        """The group of all products of permutations, which are applied from left to right.

        Its elements are named by their cycles, such as `(12)(345)`; those of a group with one generator by its power.

        Args:
            generators: products of cycles of numbers from 1, such as "(1 2)(3 4)".

        Raises:
            InputError: for a text that is no permutation, or too many elements.
        """
        cycles = [_cycles(text) for text in generators]
        degree = max((n for each in cycles for cycle in each for n in cycle), default=0)
        given = [tuple(_image(each, n) for n in range(1, degree + 1)) for each in cycles]
        elements = [tuple(range(1, degree + 1))]
        numbers = {elements[0]: 0}
        for element in elements:  # it grows
            for generator in given:
                product = tuple(generator[n - 1] for n in element)
                if numbers.setdefault(product, len(elements)) == len(elements):
                    elements.append(product)
            if len(elements) > _MOST:
                raise InputError(f"{', '.join(generators)} generate more than {_MOST} elements")
        products = [[numbers[tuple(second[n - 1] for n in first)] for second in elements] for first in elements]
        names = map(str, range(len(elements))) if len(given) == 1 else map(_written, elements)
        return cls(tuple(names), products, [numbers[generator] for generator in given])

    @classmethod
    def read(cls, path: str) -> Group:
        """The group of a table: a row for each first factor, a column for each second one, both named, as CSV.

        Raises:
            InputError: for a table that is no group, with the reason.
        """
        (_, *names), *rows = cells_of(read_text(check_file(path)), ",")
        numbers = {name: number for number, name in enumerate(names)}
        if not names or len(numbers) < len(names) or [row[0] for row in rows] != names or len(names) > _MOST:
            raise InputError(f"{path}: a group's table has one row and one column for each of up to {_MOST} elements")
        for first, *row in rows:
            for second, product in zip(names, row, strict=False):
                if product not in numbers:
                    raise InputError(f"{path}: {first} times {second} is {product!r}, which is no element")
            if len(row) != len(names):
                raise InputError(f"{path}: the row of {first} has {len(row)} products of {len(names)}")
        products = [[numbers[product] for product in row] for _, *row in rows]
        problem = _problem(names, products)
        if problem:
            raise InputError(f"{path} is no group: {problem}")
        return cls(tuple(names), products, list(range(len(names))))


def _problem(names: Sequence[str], products: list[list[int]]) -> str | None:
    """The first property of a group that a table lacks."""
    import numpy as np

    table = np.array(products)
    everyone = np.arange(len(names))
    identities = np.flatnonzero((table == everyone).all(1) & (everyone == table.T).all(1))
    if not len(identities):
        return "it has no identity"
    for first, name in enumerate(names):
        if identities[0] not in table[first]:
            return f"{name} has no inverse"
        wrong = np.argwhere(table[table[first]] != table[first][table])  # of the others, one after the other
        if len(wrong):
            a, b, c = name, *(names[place] for place in wrong[0])
            return f"({a} {b}) {c} is not {a} ({b} {c})"
    return None


def _cycles(text: str) -> list[list[int]]:
    cycles = [[int(number) for number in inside.split()] for inside in _CYCLE.findall(text)]
    moved = [number for cycle in cycles for number in cycle]
    if _CYCLE.sub("", text).strip() or not cycles or 0 in moved or len(set(moved)) < len(moved):
        raise InputError(f"a permutation is written as cycles of different numbers from 1, as (1 2)(3 4); got {text!r}")
    return cycles


def _image(cycles: list[list[int]], number: int) -> int:
    return next((cycle[(cycle.index(number) + 1) % len(cycle)] for cycle in cycles if number in cycle), number)


def _written(element: tuple[int, ...]) -> str:
    """A permutation in cycles; `()` is the identity."""
    separator = "," if len(element) > 9 else ""
    written, seen = "", set()
    for start in range(1, len(element) + 1):
        cycle = [start]
        while (following := element[cycle[-1] - 1]) != start:
            cycle.append(following)
        if len(cycle) > 1 and start not in seen:
            written += f"({separator.join(map(str, cycle))})"
        seen |= set(cycle)
    return written or "()"


class WordProblem(Task):
    """Read elements of a group, equally likely ones; answer with the product of those read so far.

    NOTE: our choices: the lengths, new strings in each epoch, and test strings of one length, which give the accuracy
    at each position.

    Args:
        generators: permutations that generate the group, as cycles (see `Group.generated`).
        table: in their place, a file with the group's table (see `Group.read`).
        inputs: the elements that strings have: "all" or the "generators" alone.
        splits: changes of the plan (see `Task`).
    """

    step_reduction = "mean"
    online = True
    default_plan: ClassVar = {
        "train": Split(10_000, 1, 32),
        "validation": Split(1_000, 1, 32),
        "test": Split(500, 128, 128),
    }

    def __init__(
        self,
        generators: list[str] = _GROUPS["s3"],
        *,
        table: str | None = None,
        inputs: Literal["all", "generators"] = "all",
        splits: SplitChanges | None = None,
    ) -> None:
        super().__init__(splits=splits)
        self.group = Group.generated(generators) if table is None else Group.read(table)
        read = range(len(self.group.names)) if inputs == "all" else dict.fromkeys(self.group.generators)
        self.inputs = tuple(read)
        self.vocabulary = tuple(self.group.names[number] for number in self.inputs)

    @property
    def target_vocabulary(self) -> tuple[str, ...]:
        """All elements."""
        return self.group.names

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw elements."""
        return self.example(rng.choices(range(len(self.vocabulary)), k=length))

    def example(self, string: Sequence[int]) -> Example:
        """The elements with their products."""
        products = accumulate((self.inputs[symbol] for symbol in string), lambda a, b: self.group.products[a][b])
        return Example(tuple(string), tuple(products), (True,) * len(string))


register_task("groups/word_problem")(WordProblem)
for _name, _generators in _GROUPS.items():
    register_task(f"groups/{_name}")(partial(WordProblem, _generators))
