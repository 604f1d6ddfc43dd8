"""Modules for any network: memories driven by given vectors or by a controller, and the memory layers of a model."""

from .cell import StackRNNCell
from .controlled import explain_backend, set_scan_backend
from .discovery import (
    actions_by_layer,
    draw_noise,
    memories,
    memory_states,
    noise_of,
    operation_labels,
    recurrent_layers,
    strengths_of,
    with_noise,
)
from .interventions import Intervention, intervene
from .memory_layer import MemoryLayer
from .stack_attention import StackAttention
from .stack_rnn import StackRNN

__all__ = [
    "Intervention",
    "MemoryLayer",
    "StackAttention",
    "StackRNN",
    "StackRNNCell",
    "actions_by_layer",
    "draw_noise",
    "explain_backend",
    "intervene",
    "memories",
    "memory_states",
    "noise_of",
    "operation_labels",
    "recurrent_layers",
    "set_scan_backend",
    "strengths_of",
    "with_noise",
]
