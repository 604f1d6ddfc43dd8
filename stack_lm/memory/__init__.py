"""Differentiable memories behind one interface, found by name.

Importing this package registers the built-in ones; `register_memory` adds others, also from outside.
"""

from .baby_ntm import BabyNTM, TapeState
from .base import ActionField, Memory, map_tensors, memory_class, memory_names, register_memory, under_transform
from .none import NoMemory
from .settings import Setting, control_settings, make_memory
from .strength import DequeActions, NeuralDeque, NeuralQueue, NeuralStack, StackActions, StackState
from .superposition import (
    ChoiceActions,
    MultipopSuperpositionStack,
    SuperpositionStack,
    SuperpositionState,
)

__all__ = [
    "ActionField",
    "BabyNTM",
    "ChoiceActions",
    "DequeActions",
    "Memory",
    "MultipopSuperpositionStack",
    "NeuralDeque",
    "NeuralQueue",
    "NeuralStack",
    "NoMemory",
    "Setting",
    "StackActions",
    "StackState",
    "SuperpositionStack",
    "SuperpositionState",
    "TapeState",
    "control_settings",
    "make_memory",
    "map_tensors",
    "memory_class",
    "memory_names",
    "register_memory",
    "under_transform",
]
