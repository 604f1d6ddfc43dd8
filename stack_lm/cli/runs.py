"""Several training runs on a command line: runs of one model, against those of another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.errors import InputError
from .files import check_different


def check_runs(models: Sequence[str], against: Sequence[str]) -> None:
    """Check that two sets of runs can be compared.

    Raises:
        InputError: if a run is given twice, or one run is set against several.
    """
    check_different([*models, *against])
    if against and len(models) != len(against) and 1 in (len(models), len(against)):
        raise InputError(
            "--against compares one model with one, or two or more runs of a model with two or more of another; got "
            f"{len(models)} and {len(against)}"
        )


def interval_and_p(low: float, high: float, p_value: float) -> tuple[str, str]:
    """A test's interval and p-value for a table."""
    if math.isnan(p_value):
        return "no variance", "-"
    return f"{low:+.2f} to {high:+.2f}", f"{p_value:.2g}"
