"""The interface of a formal task: a vocabulary, and examples drawn at random. A task knows no model."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ..errors import InputError

Target = int | frozenset[int]
_Factory = TypeVar("_Factory", bound="Callable[[], Task]")
_REGISTRY: dict[str, Callable[[], Task]] = {}
# Draws in a row that may repeat earlier examples before a request for distinct ones is given up.
_MAX_REPEATS = 10_000


class Example(NamedTuple):
    """A string with its targets, in symbol ids.

    Attributes:
        source: the T symbols that a network reads.
        target: the targets: a symbol each, or the set of symbols that may come next. A task with a target at every step
            has T of them, a transduction any number.
        mask: one entry for each target: whether it is trained on and scored.
    """

    source: tuple[int, ...]
    target: tuple[Target, ...]
    mask: tuple[bool, ...]


class Task(ABC):
    """A distribution over examples.

    Attributes:
        vocabulary: the symbols of sources and targets; the place of a symbol is its id.
    """

    vocabulary: tuple[str, ...]

    @abstractmethod
    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw an example from those with a source of the given length.

        Args:
            rng: the only source of randomness, so that a seed gives the same examples everywhere.
            length: of the source, in symbols; one of those in `length_weights`.
        """

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The possible lengths of sources in a window, each with its weight in `draw`; equal weights by default.

        Args:
            shortest: the shortest length in the window, in symbols.
            longest: the longest length in it.
        """
        return dict.fromkeys(range(shortest, longest + 1), 1.0)

    def draw(
        self, rng: random.Random, number: int, shortest: int, longest: int, *, distinct: bool = False
    ) -> list[Example]:
        """Draw examples whose lengths lie in a window.

        Args:
            rng: source of randomness.
            number: of examples.
            shortest: the shortest source, in symbols.
            longest: the longest source.
            distinct: whether all sources must differ.

        Raises:
            InputError: if no length in the window is possible, or too few distinct examples are found.
        """
        weights = self.length_weights(shortest, longest) if 0 <= shortest <= longest else {}
        if not weights:
            raise InputError(f"the task has no string of a length from {shortest} to {longest}")
        lengths, shares = list(weights), list(weights.values())
        examples: list[Example] = []
        seen: set[tuple[int, ...]] = set()
        repeats = 0
        while len(examples) < number:
            example = self.sample(rng, rng.choices(lengths, shares)[0])
            if distinct and example.source in seen:
                repeats += 1
                if repeats == _MAX_REPEATS:
                    raise InputError(
                        f"{number} distinct strings of lengths from {shortest} to {longest} were asked for; "
                        f"{len(examples)} were found before {_MAX_REPEATS} draws in a row gave no new one"
                    )
                continue
            repeats = 0
            seen.add(example.source)
            examples.append(example)
        return examples


def register_task(name: str) -> Callable[[_Factory], _Factory]:
    """Decorator: make a task available as `make_task(name)`.

    It takes a `Task` class whose arguments all have defaults, or any function without arguments that returns a task.

    Raises:
        ValueError: if the name is taken.
    """

    def register(factory: _Factory) -> _Factory:
        if _REGISTRY.get(name, factory) is not factory:
            raise ValueError(f"the task name {name!r} is taken")
        _REGISTRY[name] = factory
        return factory

    return register


def task_names() -> tuple[str, ...]:
    """The names of all registered tasks."""
    return tuple(_REGISTRY)


def make_task(name: str) -> Task:
    """The task of that name.

    Raises:
        InputError: if there is none.
    """
    if name not in _REGISTRY:
        raise InputError(f"task must be one of {', '.join(map(repr, _REGISTRY))}; got {name!r}")
    return _REGISTRY[name]()
