"""Fused scans of the cell: one backend for each kind of device."""
