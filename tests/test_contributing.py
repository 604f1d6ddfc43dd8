"""CONTRIBUTING.md, followed: each file is written outside the package and tried as the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = ("memory", "task", "parsing convention", "corpus")


def blocks(text):
    """The code blocks of a text, as pairs of language and code."""
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def recipe(title):
    """The blocks of one recipe: a file with its name, a program, and what that prints."""
    section = re.search(rf"^## Add a {title}\n(.*?)^## ", TEXT, re.DOTALL | re.MULTILINE)[1]
    (file_kind, file), (try_kind, program), (printed_kind, printed) = blocks(section)
    assert (file_kind, try_kind, printed_kind) == ("python", "python", "text")
    name, source = re.fullmatch(r"# (\w+\.py)\n(.*)", file, re.DOTALL).groups()
    return name, source, program, printed


def execute(folder, *command):
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the programs of all recipes print, run in one process, which loads torch once."""
    folder = tmp_path_factory.mktemp("contributions")
    program = ""
    for title in RECIPES:
        name, source, example, _ = recipe(title)
        (folder / name).write_text(source)
        program += f"exec(compile({example!r}, {title!r}, 'exec'), {{'__name__': 'example'}})\nprint('---')\n"
    done = execute(folder, "-W", "error", "-c", program)
    assert done.returncode == 0, done.stderr
    return folder, dict(zip(RECIPES, done.stdout.split("---\n"), strict=False))


@pytest.mark.parametrize("title", RECIPES)
def test_recipe(title, results):
    *_, printed = recipe(title)
    assert results[1][title] == printed


def test_there_are_no_other_recipes():
    assert tuple(re.findall(r"^## Add a (.+)$", TEXT, re.MULTILINE)) == RECIPES


def test_commands_see_what_was_imported(results):
    """The line under "Set up" that starts a command with an outside file."""
    folder, _ = results
    (line,) = (line for _, code in blocks(TEXT) for line in code.splitlines() if line.startswith("python -c"))
    code, rest = re.fullmatch(r'python -c "(.*)" (.*)', line).groups()
    done = execute(folder, "-c", code, *rest.split())
    assert done.returncode == 0, done.stderr
    assert "lenient" in done.stdout


def test_files_follow_the_style_of_the_project(tmp_path):
    """As files of the project, but for what a linter would ask of a package alone."""
    for title in RECIPES:
        name, source, *_ = recipe(title)
        (tmp_path / name).write_text(source)
    settings = ("--config", str(ROOT / "pyproject.toml"), "--no-cache", str(tmp_path))
    for command in (("check",), ("format", "--check")):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, *settings], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_what_the_page_names_exists():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make ([\w-]+)", TEXT)) <= set(targets)
    for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`|\]\(([^)]+)\)", TEXT):
        assert (ROOT / (path[0] or path[1])).exists(), path
