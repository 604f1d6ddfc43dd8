"""Checks of a task from outside the package, to find mistakes before a model trains on it."""

from __future__ import annotations

import random
from math import inf

from ..errors import InputError
from .base import Example, Task
from .bounded import BoundedLanguage
from .kinds import check_declared


def check_own(task: Task, seed: int = 0) -> None:
    """`check_examples` for a task from outside the package; those inside it have been tested."""
    if not type(task).__module__.startswith("stack_lm.tasks."):
        check_examples(task, seed)


def check_examples(task: Task, seed: int = 0) -> None:
    """Draw an example of the smallest and the largest size of each split, and report its first error.

    Args:
        task: any.
        seed: the seed of the draws.

    Raises:
        InputError: naming the task and the split: if there is no training split, drawing fails, an example is not of
            the task's kind and its vocabularies, no target is scored, or a language's probabilities are not.
    """
    check_declared(task)
    for name in ("train", "test"):
        if name not in task.plan:
            raise InputError(f"{task} has no split {name!r}; it has {', '.join(task.plan) or 'none'}")
    for name, plan in task.plan.items():
        scored = 0
        for size in {plan.shortest, plan.longest} & set(task.length_weights(plan.shortest, plan.longest)):
            try:
                example = task.sample(random.Random(f"{seed}/{name}"), size)
            except InputError:
                raise
            except Exception as error:  # of third-party code
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                raise InputError(f"{task} cannot draw a string of {task.unit} {size} for {name}: {reason}") from error
            problem = _problem(task, example) or _problem_of_bound(task, example, size)
            if problem is not None:
                raise InputError(f"{task}, a string of {task.unit} {size} of {name}: {problem}")
            scored += sum(example.mask)
        if not scored:
            raise InputError(f"{task}: the mask scores no target of the shortest and longest strings of {name}")


def _problem(task: Task, example: Example) -> str | None:
    """Describe the first error of an example; None if it has none."""
    if not isinstance(example, Example):
        return f"sample must return an Example; got a {type(example).__name__}"
    source, target, mask = example
    if len(mask) != len(target):
        return f"the mask must have an entry for each target; it has {len(mask)} of {len(target)}"
    wanted = {"transduction": len(target), "delayed": len(target), "classification": 1}.get(task.kind, len(source))
    if len(target) != wanted:
        return f"a {task.kind} task has {wanted} targets for {len(source)} symbols; got {len(target)}"
    sets = task.kind == "next_symbols"
    if any(isinstance(one, frozenset) != sets for one in target):
        return f"the targets of a {task.kind} task are {'frozensets of ids' if sets else 'ids'}; got {target[0]!r}"
    answers = [one for many in target for one in many] if sets else target  # type: ignore[union-attr]
    for said, ids, symbols in (("source", source, task.vocabulary), ("target", answers, task.target_vocabulary)):
        for number in ids:
            if not (isinstance(number, int) and 0 <= number < len(symbols)):
                return f"a {said} has ids below {len(symbols)}, the size of its vocabulary; got {number!r}"
    return None


def _problem_of_bound(task: Task, example: Example, size: int) -> str | None:
    """Describe the first error of the probability on which a language's lower bound rests; None if it has none."""
    if not isinstance(task, BoundedLanguage):
        return None
    string = [task.vocabulary[symbol] for symbol in example.source[1:]]
    if len(string) != size:
        return f"its length is {len(string)}"
    (value,) = task.log_given_length([string])
    if not -inf < value <= 1e-6:  # rounding may put a certain string above 0
        return f"log_given_length must give the logarithm of a probability; got {value:g}"
    return None
