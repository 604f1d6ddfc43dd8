"""Formal tasks: strings with targets, their batches, and their scores, independent of models.

Each paper has a folder, whose modules are all imported and register their tasks with `register_task`, so a new task is
a new file. Files elsewhere register their tasks when they are imported.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from .base import Example, Language, Split, Task
from .bounded import BoundedLanguage
from .exact import GrammarLanguage
from .files import FileTask
from .formats import BufferedFormat, DelimitedFormat, PerStepFormat, Transduction, TransductionFormat
from .registry import make_task, register_task, task_names
from .scores import TransductionScores, evaluate_transduction, score_outputs

__all__ = [
    "BoundedLanguage",
    "BufferedFormat",
    "DelimitedFormat",
    "Example",
    "FileTask",
    "GrammarLanguage",
    "Language",
    "PerStepFormat",
    "Split",
    "Task",
    "Transduction",
    "TransductionFormat",
    "TransductionScores",
    "evaluate_transduction",
    "make_task",
    "register_task",
    "score_outputs",
    "task_names",
]


for _folder in pkgutil.iter_modules(__path__):
    if _folder.ispkg:
        for _module in pkgutil.iter_modules([f"{__path__[0]}/{_folder.name}"]):
            import_module(f"{__name__}.{_folder.name}.{_module.name}")
