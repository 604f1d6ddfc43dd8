"""What Tab completes, asked as bash asks."""

import os
import subprocess
import sys

import pytest

WORD_BREAKS = " \t\n\"'><=;|&(:"


def complete(line, folder):
    """The completions that the program gives bash for a command line."""
    settings = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / "completions"),
        "_ARGCOMPLETE_COMP_WORDBREAKS": WORD_BREAKS,
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    program = "import sys; from stack_lm.cli.main import main; sys.argv[0] = 'stack-lm'; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | settings, cwd=folder, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return [word.strip() for word in (folder / "completions").read_text().split("\n")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("stack-lm pa", ["parse", "parse-f1"]),
        ("stack-lm parse --outp", ["--output"]),
        ("stack-lm parse m --decoder g", ["gap"]),
    ],
)
def test_completions(line, expected, tmp_path):
    assert complete(line, tmp_path) == expected


def test_the_shells_code():
    command = [sys.executable, "-m", "stack_lm", "--print-completion", "bash"]
    code = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "stack-lm" in code
    assert subprocess.run(["bash", "-n"], input=code, text=True, timeout=60).returncode == 0
