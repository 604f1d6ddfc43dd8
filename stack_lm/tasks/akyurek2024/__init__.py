"""Akyürek et al. (2024)."""
