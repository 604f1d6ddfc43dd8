"""Formal tasks: strings with targets, their batches, and their scores. Nothing here knows a model.

Every module in this folder is imported and registers its tasks with `register_task`, so a new task is a new file. Files
elsewhere register theirs when they are imported.
"""

import pkgutil
from importlib import import_module

from .base import Example, Task, make_task, register_task, task_names
from .dyck import Dyck
from .formats import BufferedFormat, DelimitedFormat, PerStepFormat, Transduction, TransductionFormat
from .scores import TransductionScores, evaluate_transduction, score_outputs

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "BufferedFormat",
    "DelimitedFormat",
    "Dyck",
    "Example",
    "PerStepFormat",
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
