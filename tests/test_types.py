"""What the type checker sees."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WRONG = '''\
"""Right calls and wrong ones."""

from .eval import evaluate_perplexity
from .parsing import tree_from_distances

tree_from_distances(["a", "b"], [0.0, 1.0])
evaluate_perplexity([])
tree_from_distances(["a", "b"], 3)
evaluate_perplexity(3)
'''


@pytest.mark.slow
def test_a_wrong_argument_from_the_package_into_parsing_and_eval_fails_the_check(tmp_path):
    pytest.importorskip("mypy")
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    subprocess.run(["make", "-s", "type-tree", f"TYPES={tmp_path}"], cwd=ROOT, check=True)
    (tmp_path / "stack_lm" / "wrong.py").write_text(WRONG)
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", *settings, "stack_lm/wrong.py"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    errors = [line.split(": ", 2) for line in found.stdout.splitlines() if ": error: " in line]
    assert found.returncode == 1, found.stdout + found.stderr
    assert [place for place, _, _ in errors] == ["stack_lm/wrong.py:8", "stack_lm/wrong.py:9"]
    assert '"tree_from_distances"' in errors[0][2]
    assert '"evaluate_perplexity"' in errors[1][2]


def test_the_tools_check_for_the_oldest_python_promised():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    oldest = settings["project"]["requires-python"].removeprefix(">=")
    assert settings["tool"]["mypy"]["python_version"] == oldest
    assert settings["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    assert f"Python {oldest} or later" in (ROOT / "README.md").read_text()
    assert f"Python {oldest}," in (ROOT / "constraints.txt").read_text()
