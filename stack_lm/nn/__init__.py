"""Layers: a memory with its controls, driven by given vectors or by a controller; and the layers of a model."""

from .discovery import (
    actions_by_layer,
    draw_noise,
    memories,
    noise_of,
    operation_labels,
    recurrent_layers,
    strengths_of,
    with_noise,
)

__all__ = [
    "actions_by_layer",
    "draw_noise",
    "memories",
    "noise_of",
    "operation_labels",
    "recurrent_layers",
    "strengths_of",
    "with_noise",
]
