"""Differentiable memories behind one interface, found by name.

Importing this package registers the built-in ones; `register_memory` adds others, also from outside.
"""

from .base import ActionField, Memory, make_memory, map_tensors, memory_class, memory_names, register_memory
from .none import NoMemory
from .strength import DequeActions, NeuralDeque, NeuralQueue, NeuralStack, StackActions, StackState

__all__ = [
    "ActionField",
    "DequeActions",
    "Memory",
    "NeuralDeque",
    "NeuralQueue",
    "NeuralStack",
    "NoMemory",
    "StackActions",
    "StackState",
    "make_memory",
    "map_tensors",
    "memory_class",
    "memory_names",
    "register_memory",
]
