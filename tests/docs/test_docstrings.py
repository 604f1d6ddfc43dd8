"""A docstring says what a thing is, returns or does; it does not open with a question word or half a sentence."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Openings that hide the noun or the verb: "What a run trains on" for "The data of a run".
OPENINGS = tuple("As For How It Of That Those What When Where Whether Which Who Whose Why".split())
FOLDERS = ("stack_lm", "parsing", "eval", "recipes", "benchmarks")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def public_docstrings(node, name):
    """The names and docstrings of a module, and of the public classes and functions in it."""
    if text := ast.get_docstring(node):
        yield name, text
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and not child.name.startswith("_"):
            if isinstance(child, ast.ClassDef):
                yield from public_docstrings(child, f"{name}.{child.name}")
            elif text := ast.get_docstring(child):
                yield f"{name}.{child.name}", text


def opens_with_a_clause(text):
    return text.split(maxsplit=1)[0] in OPENINGS


def test_public_docstrings_open_with_what_a_thing_is_or_does():
    assert len(FILES) > 100
    found = [
        f"{name}: {text.splitlines()[0]}"
        for path in FILES
        for name, text in public_docstrings(ast.parse(path.read_text()), str(path.relative_to(ROOT)))
        if opens_with_a_clause(text)
    ]
    assert found == []
