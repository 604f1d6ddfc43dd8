"""Checks of a task from outside the package, to find mistakes before a model trains on it."""

from __future__ import annotations

import random

from ..core.errors import InputError
from .base import Example, Task
from .kinds import check_declared


def check_own(task: Task, seed: int = 0) -> None:
    """`check_examples` for a task from outside the package; those inside it have been tested."""
    if not type(task).__module__.startswith("stack_lm.tasks."):
        check_examples(task, seed)


def check_examples(task: Task, seed: int = 0) -> None:
    """Draw an example of the smallest and the largest possible size of each split, and report its first error.

    Args:
        task: any.
        seed: the seed of the draws.

    Raises:
        InputError: naming the task and the split: if there is no training split, a window has no string, an example is
            not of the task's kind and its vocabularies, or no target is scored.
    """
    check_declared(task)
    for name in ("train", "test"):
        task.planned(name)
    for name, plan in task.plan.items():
        scored, sizes = 0, task.sizes(plan.shortest, plan.longest)[0]
        for size in {min(sizes), max(sizes)}:
            example = task.sample(random.Random(f"{seed}/{name}"), size)
            problem = _problem(task, example)
            if problem is not None:
                raise InputError(f"{task}, a string of {task.unit} {size} of {name}: {problem}")
            scored += sum(example.mask)
        if not scored:
            raise InputError(f"{task}: the mask scores no target of the shortest and longest strings of {name}")


def _problem(task: Task, example: Example) -> str | None:
    """Describe the first error of an example; None if it has none."""
    source, target, mask = example
    number = {"transduction": len(target), "delayed": len(target), "classification": 1}.get(task.kind, len(source))
    if not len(mask) == len(target) == number:
        due = f"{number} targets for {len(source)} symbols"
        return f"a {task.kind} task has {due}, and a mask of that length; got {len(target)} and {len(mask)}"
    sets = task.kind == "next_symbols"
    if any(isinstance(answer, frozenset) != sets for answer in target):
        return f"the targets of a {task.kind} task are {'frozensets of ids' if sets else 'ids'}; got {target[0]!r}"
    answers = [symbol for following in target for symbol in following] if sets else target  # type: ignore[union-attr]
    for kind, ids, symbols in (("source", source, task.vocabulary), ("target", answers, task.target_vocabulary)):
        for symbol in ids:
            if symbol not in range(len(symbols)):
                return f"a {kind} has ids below {len(symbols)}, the size of its vocabulary; got {symbol!r}"
    return None
