"""The scan on a CPU, compiled by Numba."""
