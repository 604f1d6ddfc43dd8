"""The examples of the documents run as they stand, and print what their comments say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def examples(name):
    return re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.DOTALL | re.MULTILINE)


def run(*codes):
    """What the examples print, each in a namespace of its own and in one process, which loads torch once."""
    program = "\n".join(f"exec(compile({code!r}, 'example', 'exec'), {{'__name__': 'example'}})" for code in codes)
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_run():
    alone, encoder, behind = examples("memories.md")
    printed = run(alone, encoder, behind, examples("transduction.md")[1])
    assert "[[1.0000, 0.0000, 0.0000],\n        [0.0000, 0.5000, 0.0000]]" in printed
    assert "[[0.5000, 0.0000, 0.0000],\n        [0.0000, 0.0000, 0.0000]]" in printed
    assert "{'total_strength': tensor([0.0000, 0.5000, 0.5000])}" in printed
    for size in ("[2, 4, 24]", "[2, 5, 16]", "[2, 5]", "[3, 9, 12]", "[3, 11]"):
        assert f"torch.Size({size})" in printed


@pytest.mark.slow
def test_the_transduction_example_learns():
    first, longer = run(examples("transduction.md")[0]).splitlines()
    for line, least in ((first, 0.95), (longer, 0.5)):
        assert float(re.search(r"exact_match=([\d.]+)", line)[1]) >= least
