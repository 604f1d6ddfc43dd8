"""Formal tasks: sequences with targets, and their scores. Nothing here knows a model."""
