"""Tasks by name: those of the papers, of plug-ins, and of files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_origin

from ..core.checks import check_of
from ..core.errors import InputError
from ..core.messages import did_you_mean
from ..core.plugins import Registry
from ..text.formats import is_table
from .base import Task
from .files import FileTask
from .kinds import check_declared
from .own_languages import LANGUAGES
from .rows import TABLES

_Factory = TypeVar("_Factory", bound="Callable[..., Task]")
TASKS: Registry[Callable[..., Task]] = Registry("task", "stack_lm.tasks", listed_by="`stack-lm tasks`")


def register_task(name: str) -> Callable[[_Factory], _Factory]:
    """Decorator: make a task available as `make_task(name)`.

    It takes a `Task` class whose arguments all have defaults, or any function that returns a task and requires no
    arguments.

    Raises:
        ValueError: if the name is taken.
    """

    def register(factory: _Factory) -> _Factory:
        TASKS.register(name, factory)
        return factory

    return register


def task_names() -> tuple[str, ...]:
    """The names of all registered tasks."""
    return tuple(TASKS)


def make_task(name: str, **options: Any) -> Task:
    """The task of a name or a file.

    Args:
        name: one of `task_names()`; a file or folder, for a `FileTask`; or a language of your own: `regex:EXPRESSION`,
            `grammar:FILE` or `automaton:FILE` (`own_languages`).
        options: arguments of the task, such as `splits` (see `Task`), as in a YAML file.

    Raises:
        InputError: if there is no such task, it has no such option, or the option cannot have that value.
    """
    prefix, colon, rest = str(name).partition(":")
    if colon and prefix in LANGUAGES:
        factory: Callable[..., Task] = partial(LANGUAGES[prefix], rest)
    elif name and name not in TASKS and (Path(name).exists() or is_table(name)):
        factory = partial(FileTask, name)
    else:
        factory = _find(name)
    parameters = _parameters(factory)
    for option, value in options.items():
        if option not in parameters:
            allowed = ", ".join(parameters) or "none"
            raise InputError(f"{name} has the options {allowed}; got {option!r}{did_you_mean(option, parameters)}")
        annotation = parameters[option].annotation
        if option != "splits" and annotation is not inspect.Parameter.empty and not isinstance(annotation, str):
            options[option] = check_of(annotation)(option, value)
    fields = {option: options.pop(option) for option in _fields(factory) if option in options}
    if fields:
        made: Any = factory
        task: Task = made.__new__(made)
        vars(task).update(fields)  # which its constructor may need
        made.__init__(task, **options)
    else:
        task = factory(**options)
    task.name = name
    check_declared(task)
    return task


def _parameters(factory: Callable[..., Task]) -> Mapping[str, inspect.Parameter]:
    try:
        return _fields(factory) | dict(inspect.signature(factory, eval_str=True).parameters)
    except NameError:  # an annotation of a plug-in that only type checkers can evaluate
        return inspect.signature(factory).parameters


def _fields(factory: Callable[..., Task]) -> dict[str, inspect.Parameter]:
    """The annotated class attributes with a value of a task from outside the package: options too."""
    classes = [cls for cls in getattr(factory, "__mro__", ()) if not cls.__module__.startswith("stack_lm.")]
    try:
        own = {name: kind for cls in classes for name, kind in inspect.get_annotations(cls, eval_str=True).items()}
    except NameError:
        return {}
    return {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(factory, name), annotation=kind)
        for name, kind in own.items()
        if get_origin(kind) is not ClassVar and hasattr(factory, name) and name not in Task.__annotations__
    }


def _find(name: Any) -> Callable[..., Task]:
    try:
        return TASKS.find(name)
    except InputError as error:
        raise InputError(
            f"{error}. A file ({', '.join(TABLES)}) or a folder of these is a task, "
            f"too, and so are {', '.join(f'{prefix}:...' for prefix in LANGUAGES)}"
        ) from None
