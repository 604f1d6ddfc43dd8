"""The choice of the code that fills the tables of most probable runs: compiled, unless there is little to compute."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec

from ..memory import viterbi
from .dispatch import VARIABLE

# Squares of lengths, summed, up to which the definition is done before Numba would be loaded.
_LITTLE = 10_000


def tables_for(lengths: Iterable[int]) -> viterbi.Tables:
    """The function to fill the tables with (see `memory.viterbi.best_runs`) for sequences of these lengths."""
    little = sum(length**2 for length in lengths) <= _LITTLE
    if little or os.environ.get(VARIABLE) == "reference" or find_spec("numba") is None:
        return viterbi.tables
    from .cpu.viterbi import tables

    return tables
