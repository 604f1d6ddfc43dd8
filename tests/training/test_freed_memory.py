"""Freed memory that a process keeps, in a process of its own."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource
from stack_lm.training.freed_memory import keep_freed_memory
import numpy

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numpy.ones(2**24)  # 128 MiB, which are freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

returned = [faults() for _ in range(2)]
keep_freed_memory()
kept = [faults() for _ in range(2)]
print(returned[1], kept[1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to")
def test_blocks_are_used_again():
    output = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    returned, kept = map(int, output.split())
    assert kept < 10 < returned
