"""CONTRIBUTING.md, followed: each file is written outside the package and tried as the page says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = ("task", "parsing convention", "corpus")


def blocks(text):
    """The code blocks of a text, as pairs of language and code."""
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def recipe(title):
    """The blocks of one recipe: a file with its name, a program, what that prints, and commands with that file."""
    section = re.search(rf"^## Add a {title}\n(.*?)^## ", TEXT, re.DOTALL | re.MULTILINE)[1]
    (file_kind, file), (try_kind, program), (printed_kind, printed), (kind, commands) = blocks(section)
    assert (file_kind, try_kind, printed_kind, kind) == ("python", "python", "text", "sh")
    name, source = re.fullmatch(r"# (\w+\.py)\n(.*)", file, re.DOTALL).groups()
    return name, source, program, printed, commands.splitlines()


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
        name, source, example, *_ = recipe(title)
        (folder / name).write_text(source)
        program += f"exec(compile({example!r}, {title!r}, 'exec'), {{'__name__': 'example'}})\nprint('---')\n"
    done = execute(folder, "-W", "error", "-c", program)
    assert done.returncode == 0, done.stderr
    return folder, dict(zip(RECIPES, done.stdout.split("---\n"), strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("title", RECIPES)
def test_recipe(title, results):
    printed = recipe(title)[3]
    assert results[1][title] == printed


def test_there_are_no_other_recipes():
    assert tuple(re.findall(r"^## Add a (.+)$", TEXT, re.MULTILINE)) == RECIPES


def as_typed(line):
    """A command of the page, for the Python and the recipes of these tests."""
    program, *arguments = shlex.split(line)
    if program == "stack-lm":
        return ["-m", "stack_lm.cli.main", *arguments]
    assert program == "python"
    return [str(ROOT / arguments[0]), *arguments[1:]]


@pytest.mark.slow
def test_commands_import_the_files(results):
    folder, _ = results
    (folder / "gold.mrg").write_text("(S (NP (D the) (N dog)) (VP (V sees) (NP (D a) (N cat))) (. .))\n")
    (folder / "models").symlink_to(ROOT / "models")
    (folder / "predicted.mrg").write_text("(X (X the dog) (X (X sees a) cat) .)\n")
    printed = {}
    for title in RECIPES:
        for line in recipe(title)[4]:
            done = execute(folder, *as_typed(line))
            assert done.returncode == 0, done.stderr
            printed[title] = printed.get(title, "") + done.stdout
    assert "source a" in printed["task"]
    assert "suzgun2019/lstm on anbn" in printed["task"]
    assert "75.00" in printed["parsing convention"]
    assert "perplexity" in printed["corpus"]


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
        assert (ROOT / (path[0] or path[1]).partition("#")[0]).exists(), path
