"""Differentiable memories behind one interface, found by name.

Importing this package registers the built-in ones; `register_memory` adds others, also from outside.
"""

from .baby_ntm import BabyNTM, TapeState
from .base import (
    Memory,
    MemoryScan,
    leaves,
    map_tensors,
    memory_class,
    memory_names,
    register_memory,
    serializable,
    under_transform,
)
from .delta import DeltaActions, DeltaNet, DeltaStack, DeltaStackActions, DeltaStackState, DeltaState
from .fields import ActionField, Choice, Setting, Strength, Value, Weights, control_settings
from .nondeterministic import NondeterministicStack, NondeterministicState
from .none import NoMemory
from .parallel import stack_weights
from .settings import make_memory
from .strength import DequeActions, NeuralDeque, NeuralQueue, NeuralStack, StackActions, StackState
from .superposition import ChoiceActions, MultipopSuperpositionStack, SuperpositionStack, SuperpositionState

__all__ = [
    "ActionField",
    "BabyNTM",
    "Choice",
    "ChoiceActions",
    "DeltaActions",
    "DeltaNet",
    "DeltaStack",
    "DeltaStackActions",
    "DeltaStackState",
    "DeltaState",
    "DequeActions",
    "Memory",
    "MemoryScan",
    "MultipopSuperpositionStack",
    "NeuralDeque",
    "NeuralQueue",
    "NeuralStack",
    "NoMemory",
    "NondeterministicStack",
    "NondeterministicState",
    "Setting",
    "StackActions",
    "StackState",
    "Strength",
    "SuperpositionStack",
    "SuperpositionState",
    "TapeState",
    "Value",
    "Weights",
    "control_settings",
    "leaves",
    "make_memory",
    "map_tensors",
    "memory_class",
    "memory_names",
    "register_memory",
    "serializable",
    "stack_weights",
    "under_transform",
]
