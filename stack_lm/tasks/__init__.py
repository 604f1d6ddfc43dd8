"""Formal tasks: strings with targets, their batches, and their scores. Nothing here knows a model.

Importing this package registers the built-in tasks; `register_task` adds others, also from outside.
"""

from .base import Example, Task, make_task, register_task, task_names
from .dyck import Dyck

__all__ = ["Dyck", "Example", "Task", "make_task", "register_task", "task_names"]
