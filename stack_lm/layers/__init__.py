"""Layers: a memory with its controls, driven by given vectors or by a controller."""
