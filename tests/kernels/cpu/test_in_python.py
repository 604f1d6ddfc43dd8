"""Kernels that run as plain Python, to be stopped in by a debugger, and whose arrays refuse indices out of bounds."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stack_lm.kernels.cpu import python
from stack_lm.kernels.cpu.controller import Running


@pytest.mark.slow
def test_every_kernel_runs_in_python():
    """In a process of its own, since Numba reads the switch when functions are decorated."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", Path(__file__).with_name("in_python.py")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["NUMBA_DISABLE_JIT"] = "1"
    found = subprocess.run(command, env=environment, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


at = python.entry(lambda array, key: array[key])
put = python.entry(lambda array, key: array.__setitem__(key, 1))
flat = python.entry(lambda array: array.reshape(-1))


@pytest.mark.parametrize("key", [-1, 3, (0, -2), (1, 2), slice(-1, 2), slice(0, 4), (slice(None), slice(3, None))])
@pytest.mark.parametrize("function", [at, put])
def test_an_index_out_of_bounds_is_refused(function, key):
    with pytest.raises(IndexError, match="is out of bounds for shape"):
        function(np.zeros((3, 2)), key)


def test_also_of_a_part_and_in_a_named_tuple():
    part = python.entry(lambda running: running.hidden[1][-1])
    with pytest.raises(IndexError, match=r"index -1 is out of bounds for shape \(2,\)"):
        part(Running(np.zeros((3, 2)), np.zeros(0), np.zeros(0)))


def test_what_is_in_bounds_is_shared():
    array = np.zeros((3, 2))
    put(array, (2, slice(1, 2)))
    flat(array)[0] = 2
    assert array.tolist() == [[2, 0], [0, 0], [0, 1]]
    assert at(array, (slice(3, 3), 0)).size == 0
    with pytest.raises(ValueError, match="only contiguous arrays"):
        flat(array.T)
